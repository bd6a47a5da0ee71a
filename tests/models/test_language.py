"""The language model and its pointer against their definitions, written out by hand in NumPy's float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from helpers.oracle import rehn_step, rhn_step
from torch import nn

from eirehn.models import LanguageModel, LanguageNetwork
from eirehn.models.body import run_body
from eirehn.models.language import PointerSentinel

Array = npt.NDArray[np.float64]
Masks = list[tuple[float, Array]]
DROPS = {"word_dropout": 0.25, "input_dropout": 0.75, "hidden_dropout": 0.2, "output_dropout": 0.65}


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> Masks:
    """The masks that dropout draws, in order, with their rates."""
    drawn: Masks = []
    original = nn.functional.dropout

    def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        mask = original(torch.ones_like(x), p)
        if p > 0:
            drawn.append((p, mask.double().numpy()))
        return x * mask

    monkeypatch.setattr(nn.functional, "dropout", dropout)
    return drawn


def step(kind: str, x: Array, h: Array, cell: Any, depth: int, x_mask: Array, h_mask: Array) -> Array:
    """One time step by the paper's equations: `x` in `W_x x` and `h` in `W h` are masked, the carry is not."""
    p = {name: value.detach().double().numpy() for name, value in cell.named_parameters()}
    rows = list(zip(x, h, [depth] * len(x), x_mask, h_mask, strict=True))
    return np.stack([rhn_step("RHN", p, *row) if kind == "RHN" else rehn_step("paper", p, *row)[0] for row in rows])


@pytest.mark.parametrize("kind", ["RHN", "EIREHN"])
@pytest.mark.parametrize("by_step", [False, True], ids=["by sequence", "by step"])
@pytest.mark.parametrize(("layers", "E"), [(1, None), (2, None), (1, 6), (2, 3)])
def test_all_dropouts_by_hand(kind: str, by_step: bool, layers: int, E: int | None, masks: Masks) -> None:
    """Words, inputs and outputs are dropped for a whole sequence, or with `step_masks` inputs and outputs at each
    step; a state's units for the whole sequence; outputs that a map brings to the embedding's size, behind it."""
    torch.manual_seed(0)
    B, T, V, H, depth = 3, 7, 5, 4, 3
    own: dict[str, Any] = {"embedding_size": E, "weight_update": "paper", "start": {"weight_bound": 0.5}}
    drops = {**DROPS, "step_masks": by_step, "dropout": 0.5 if layers > 1 else 0.0}
    model = LanguageModel(LanguageNetwork(kind, H, layers, depth, **own, **drops), V).double()
    tokens, hx = torch.randint(0, V, (B, T)), torch.randn(layers, B, H).double()
    outcome = model.run(tokens, hx)
    drawn: dict[float, list[Array]] = {}
    for p, mask in masks:
        drawn.setdefault(p, []).append(mask)
    steps, size = T if by_step else 1, E or H
    (words,), inputs, (output,) = drawn[0.25], drawn[0.75], drawn[0.65]
    assert output.shape == (B, steps, size)
    if by_step:  # layers above the first have `dropout` alone
        assert [mask.shape for mask in inputs] == [(B, T, size)]
    else:
        assert [mask.shape for mask in inputs] == [(B, size), *[(B, H)] * (layers - 1)]
        inputs = [np.stack([mask] * T, 1) for mask in inputs]
    between = [mask.reshape(T, B, H).swapaxes(0, 1) for mask in drawn.get(0.5, [])]
    assert [mask.shape for mask in drawn[0.2]] == [(B, H)] * layers
    embedding, bias = model.embedding.weight.detach().numpy(), model.bias.detach().numpy()
    narrowing = np.eye(H) if model.narrowing is None else model.narrowing.detach().numpy()
    first = (tokens[:, :, None] == tokens[:, None, :]).int().argmax(-1).numpy()  # (B, T): where each word is first
    states = [hx[layer].numpy() for layer in range(layers)]
    for t in range(T):
        x = embedding[tokens[:, t]] * np.take_along_axis(words, first[:, t : t + 1], 1)
        for layer, cell in enumerate(model.body.cells):
            x = x if layer == 0 else x * between[layer - 1][:, t]
            mask = inputs[layer][:, t] if layer < len(inputs) else np.ones_like(x)
            states[layer] = x = step(kind, x, states[layer], cell, depth, mask, drawn[0.2][layer])
        logits = (x @ narrowing.T * output[:, min(t, steps - 1)]) @ embedding.T + bias
        np.testing.assert_allclose(outcome.prediction[:, t].detach().numpy(), logits, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(outcome.state.detach().numpy(), np.stack(states), rtol=1e-11, atol=1e-13)


def test_nothing_is_dropped_in_evaluation() -> None:
    plain = LanguageModel(LanguageNetwork("RHN", 4, max_depth=2), 5)
    dropping = LanguageModel(LanguageNetwork("RHN", 4, max_depth=2, **DROPS), 5).eval()
    dropping.load_state_dict(plain.state_dict())
    tokens = torch.randint(0, 5, (2, 6))
    assert torch.equal(dropping(tokens), plain(tokens))


def test_an_lstm_as_zaremba_has_it(masks: Masks) -> None:
    """Dropout on the embedded words and on the last output, drawn anew at every step, and two matrices of words."""
    network = LanguageNetwork(
        "LSTM", 4, input_dropout=0.4, output_dropout=0.6, tied=False, start={"weight_bound": 0.3}
    )
    model = LanguageModel(network, 6)
    tokens = torch.randint(0, 6, (2, 7))
    logits = model(tokens)
    assert [(p, mask.shape) for p, mask in masks] == [(0.4, (2, 7, 4)), (0.6, (2, 7, 4))]
    assert model.output is not None
    inputs, outputs = (torch.from_numpy(mask).float() for _, mask in masks)
    out, _ = model.body(model.embedding(tokens) * inputs)
    torch.testing.assert_close(logits, (out * outputs) @ model.output.T + model.bias)
    for parameter in model.parameters():
        assert 0.2 < parameter.abs().max() <= 0.3


def test_initial_values() -> None:
    """U(±0.04) for weights and plain biases, −2 for the transform gates, and what the elastic gate needs."""
    torch.manual_seed(0)
    bound = {"weight_bound": 0.04}
    own = {"alpha_hat", "beta_hat", "b_a", "b_bar", "W_ah", "W_ax"}
    for kind in ("RHN", "EIREHN"):
        model = LanguageModel(LanguageNetwork(kind, 30, max_depth=3, start={**bound, "gate_bias": -2.0}), 50)
        for name, parameter in model.named_parameters():
            values = parameter.detach()
            if name.endswith(".b"):
                assert bool((values[..., 30:] == -2).all())
                values = values[..., :30]
            if name.split(".")[-1] not in own:
                assert values.abs().max() <= 0.04
                assert values.std() == pytest.approx(0.04 / 3**0.5, rel=0.4), name
    cell: Any = model.body.cells[0]
    assert nn.functional.softplus(cell.alpha_hat.detach()).tolist() == pytest.approx([0.1] * 30)
    assert int(model.run(torch.zeros(1, 3, dtype=torch.int64)).depth.min()) == 2


@pytest.mark.parametrize("tied", [True, False])
def test_words_of_another_size_than_the_state(tied: bool) -> None:
    torch.manual_seed(0)
    network = LanguageNetwork("LSTM", 8, embedding_size=3, tied=tied, start={"weight_bound": 0.2})
    model = LanguageModel(network, 11).eval()
    assert model.embedding.weight.shape == (11, 3)
    assert model.narrowing is not None
    assert model.narrowing.shape == (3, 8)
    assert 0.15 < model.narrowing.abs().max() <= 0.2
    assert sum(each.numel() for each in model.parameters()) == 11 * 3 * (1 if tied else 2) + 11 + 3 * 8 + 4 * 8 * (
        3 + 8 + 1
    )
    tokens = torch.randint(0, 11, (2, 5))
    with torch.autocast("cpu", torch.bfloat16):
        outcome, out = model.run(tokens), model.body(model.embedding(tokens))[0]
        assert model.train()(tokens).dtype == torch.bfloat16
    matrix = model.embedding.weight if model.output is None else model.output
    exact = out.float() @ model.narrowing.T @ matrix.T + model.bias
    torch.testing.assert_close(outcome.prediction, exact, rtol=1e-5, atol=1e-6)  # bfloat16 is off by 1e-3
    for size, most in ((100, 0.1), (25, 0.2)):  # 1/√H
        usual = LanguageModel(LanguageNetwork("LSTM", size, embedding_size=50, tied=tied), 11).narrowing
        assert usual is not None
        assert 0.95 * most < usual.abs().max() <= most
    own = LanguageModel(LanguageNetwork("LSTM", 8, embedding_size=8), 11)
    assert own.narrowing is None
    assert set(own.state_dict()) == set(LanguageModel(LanguageNetwork("LSTM", 8), 11).state_dict())


@pytest.mark.parametrize("form", [{}, {"pointer": 5}, {"embedding_size": 6}], ids=str)
def test_logits_are_divided_when_not_training(form: dict[str, Any]) -> None:
    torch.manual_seed(0)
    network = LanguageNetwork("EIREHN", hidden_size=8, max_depth=2, start={"weight_bound": 0.5}, **form)
    model = LanguageModel(replace(network, calibrated=True), 11).eval()
    plain = LanguageModel(network, 11).eval()
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if name != "temperature"})
    assert "temperature" in model.state_dict()
    sizes = [sum(each.numel() for each in one.parameters() if each.requires_grad) for one in (model, plain)]
    assert sizes[0] == sizes[1]
    tokens = torch.randint(11, (3, 6))
    torch.testing.assert_close(model(tokens), plain(tokens))
    assert model.temperature is not None
    model.temperature.data.fill_(2.0)
    torch.testing.assert_close(model(tokens).softmax(-1), (plain(tokens) / 2).softmax(-1))
    if form.get("pointer"):  # it gives log-probabilities
        torch.testing.assert_close(model(tokens).exp().sum(-1), torch.ones(3, 6))
    else:
        torch.testing.assert_close(model(tokens), plain(tokens) / 2)
    torch.testing.assert_close(model.train()(tokens), plain.train()(tokens))


def pointing_by_hand(
    model: LanguageModel, tokens: torch.Tensor, window: int, masks: Sequence[Any] = (1.0, 1.0)
) -> Any:
    """Every p(w), (B, T, V), from the plain model's outputs: all loops. The masks are of what the vocabulary sees
    and of what the pointer asks by."""
    assert model.pointer is not None
    W, b = (each.detach().numpy() for each in (model.pointer.query.weight, model.pointer.query.bias))
    s = model.pointer.sentinel.detach().numpy()
    out = run_body(model.body, model.embedding(tokens), max_depth=None, with_cost=False).out
    h = out.detach().numpy()
    narrowed = h if model.narrowing is None else h @ model.narrowing.detach().numpy().T
    seen_by_vocabulary, asking = narrowed * masks[0], h * masks[1]
    logits = seen_by_vocabulary @ model.embedding.weight.detach().numpy().T + model.bias.detach().numpy()
    B, T, V = logits.shape
    p = np.zeros((B, T, V))
    for i in range(B):
        for t in range(T):
            vocabulary = np.exp(logits[i, t]) / np.exp(logits[i, t]).sum()
            q = np.tanh(W @ asking[i, t] + b)
            seen = range(max(0, t - window + 1), t + 1)
            scores = [math.exp(q @ h[i, j]) for j in seen]
            left = math.exp(q @ s)
            total = sum(scores) + left
            p[i, t] = left / total * vocabulary
            for j, score in zip(seen, scores, strict=True):
                p[i, t, tokens[i, j]] += score / total
    return p


@pytest.mark.parametrize(("kind", "size"), [("EIREHN", None), ("LSTM", None), ("EIREHN", 4)])
@pytest.mark.parametrize("window", [1, 4, 30])
@pytest.mark.parametrize("piece", [12, 5, 1])
def test_a_pointer_by_hand(kind: str, size: int | None, window: int, piece: int) -> None:
    """At once, and in pieces between which only the state is carried."""
    torch.manual_seed(0)
    network = LanguageNetwork(
        kind, 6, max_depth=2, pointer=window, embedding_size=size, start={"weight_bound": 1.0}
    )
    model = LanguageModel(network, 5).double().eval()
    tokens = torch.randint(0, 5, (3, 12))
    expected = pointing_by_hand(model, tokens, window)
    state, found = None, []
    for at in range(0, 12, piece):
        outcome = model.run(tokens[:, at : at + piece], state)
        state = outcome.state
        found.append(outcome.prediction.exp())
    p = torch.cat(found, 1)
    np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-11)
    torch.testing.assert_close(p.sum(-1), torch.ones_like(p.sum(-1)), rtol=1e-6, atol=0)


@pytest.mark.parametrize(("by_step", "size"), [(False, None), (True, None), (True, 4)])
def test_what_is_hidden_from_a_pointer_by_hand(by_step: bool, size: int | None, masks: list[Any]) -> None:
    """In training it asks by a part of an output, as much as the vocabulary sees; what it points at is whole."""
    torch.manual_seed(0)
    own: dict[str, Any] = {"output_dropout": 0.6, "step_masks": by_step, "embedding_size": size}
    network = LanguageNetwork("EIREHN", 6, max_depth=2, pointer=4, start={"weight_bound": 1.0}, **own)
    model = LanguageModel(network, 5).double().train()
    tokens = torch.randint(0, 5, (3, 12))
    first = model.run(tokens[:, :7])
    second = model.run(tokens[:, 7:], first.state)
    assert [p for p, _ in masks] == [0.6] * 4
    # Of each call two, of the vocabulary and of the pointer.
    kept = [
        np.concatenate([np.broadcast_to(one, (3, 7, size)), np.broadcast_to(two, (3, 5, size))], 1)
        for (_, one), (_, two), size in zip(masks[:2], masks[2:], (size or 6, 6), strict=True)
    ]
    assert all((mask == 0).any() and (mask == 2.5).any() for mask in kept)
    assert size is not None or (kept[0] != kept[1]).any()
    expected = pointing_by_hand(model, tokens, 4, kept)
    found = torch.cat([first.prediction, second.prediction], 1).exp()
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-11)
    whole = model.eval().run(tokens).prediction.exp()
    np.testing.assert_allclose(whole.detach().numpy(), pointing_by_hand(model, tokens, 4), rtol=1e-11)


def test_a_pointer_loses_no_digits_of_logits_that_have_few() -> None:
    """As autocast gives them: what is made of them has all digits of float32."""
    torch.manual_seed(0)
    pointer, out, tokens = PointerSentinel(4, 3, 0.1), torch.randn(2, 5, 4), torch.randint(0, 7, (2, 5))
    logits = torch.randn(2, 5, 7).bfloat16()
    for target in (None, torch.randint(0, 7, (2, 5))):
        found, wanted = (pointer(out, out, tokens, each, None, target)[0] for each in (logits, logits.float()))
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
