"""The language model against its definition, written out by hand in NumPy's float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from helpers.oracle import rehn_step, rhn_step
from torch import nn

from eirehn.experiments.results import published
from eirehn.models import LanguageModel, LanguageNetwork
from eirehn.models.language import word_mask

Array = npt.NDArray[np.float64]


DROPS = {"word_dropout": 0.25, "input_dropout": 0.75, "hidden_dropout": 0.25, "output_dropout": 0.75}


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, Array]]:
    """The masks that dropout draws, with their rates; each is multiplied with what it was asked for."""
    masks: list[tuple[float, Array]] = []

    def dropout(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        mask = (torch.rand(x.shape) > p).to(x) / (1 - p)
        if p > 0:
            masks.append((p, mask.double().numpy()))
        return x * mask

    monkeypatch.setattr(nn.functional, "dropout", dropout)
    return masks


def step(kind: str, x: Array, h: Array, cell: Any, depth: int, x_mask: Array, h_mask: Array) -> Array:
    """One time step by the paper's equations: `x` in `W_x x` and `h` in `W h` are masked, the carry is not."""
    p = {name: value.detach().double().numpy() for name, value in cell.named_parameters()}
    rows = list(zip(x, h, [depth] * len(x), x_mask, h_mask, strict=True))
    return np.stack([rhn_step("RHN", p, *row) if kind == "RHN" else rehn_step("paper", p, *row)[0] for row in rows])


@pytest.mark.parametrize("kind", ["RHN", "EIREHN"])
@pytest.mark.parametrize("layers", [1, 2])
def test_all_dropouts_by_hand(kind: str, layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    B, T, V, H, depth = 3, 7, 5, 4, 3
    network = LanguageNetwork(
        kind, H, num_layers=layers, max_depth=depth, weight_update="paper", start={"weight_bound": 0.5}, **DROPS
    )
    model = LanguageModel(network, V).double()
    masks = recorded(monkeypatch)
    tokens = torch.randint(0, V, (B, T))
    hx = torch.randn(layers, B, H).double()
    outcome = model.run(tokens, hx)
    assert [p for p, _ in masks] == [0.25, *[0.75, 0.25] * layers, 0.75]  # words, input and state, output
    (_, words), *inner, (_, output) = masks
    assert output.shape == (B, 1, H)
    for _, mask in inner:
        assert mask.shape == (B, H)
    embedding, bias = model.embedding.weight.detach().numpy(), model.bias.detach().numpy()
    fate: dict[tuple[int, int], float] = {}
    for b in range(B):
        for t in range(T):
            fate.setdefault((b, int(tokens[b, t])), words[b, t])
    states = [hx[layer].numpy() for layer in range(layers)]
    for t in range(T):
        x = np.stack([embedding[tokens[b, t]] * fate[b, int(tokens[b, t])] for b in range(B)])
        for layer, cell in enumerate(model.body.cells):
            x_mask, h_mask = inner[2 * layer][1], inner[2 * layer + 1][1]
            states[layer] = x = step(kind, x, states[layer], cell, depth, x_mask, h_mask)
        logits = (x * output[:, 0]) @ embedding.T + bias
        np.testing.assert_allclose(outcome.prediction[:, t].detach().numpy(), logits, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(outcome.state.detach().numpy(), np.stack(states), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("kind", ["RHN", "EIREHN"])
@pytest.mark.parametrize(("layers", "E"), [(1, None), (2, None), (1, 6), (2, 3)])
def test_masks_of_each_step_by_hand(kind: str, layers: int, E: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs and outputs are dropped anew at every step, a state's units for the whole sequence; outputs that a map
    brings to the size of the embedding, behind it."""
    torch.manual_seed(0)
    B, T, V, H, depth = 3, 7, 5, 4, 3
    drops = {"input_dropout": 0.7, "hidden_dropout": 0.2, "output_dropout": 0.6, "step_masks": True}
    if layers > 1:
        drops["dropout"] = 0.5
    start, update = {"weight_bound": 0.5}, {"weight_update": "paper"}
    network = LanguageNetwork(kind, H, layers, depth, embedding_size=E, start=start, **update, **drops)
    model = LanguageModel(network, V).double()
    narrowing = np.eye(H) if model.narrowing is None else model.narrowing.detach().numpy()
    E = E or H
    drawn, masks = recorded(monkeypatch), {}
    tokens, states = torch.randint(0, V, (B, T)), [np.zeros((B, H))] * layers
    logits = model(tokens).detach().numpy()
    for p, mask in drawn:
        masks.setdefault(p, []).append(mask)
    shapes = {p: [mask.shape for mask in each] for p, each in masks.items()}
    between = {0.5: [(T * B, H)]} if layers > 1 else {}
    assert shapes == {0.7: [(B, T, E)], 0.2: [(B, H)] * layers, **between, 0.6: [(B, T, E)]}
    inputs = [*masks[0.7], *(mask.reshape(T, B, H).swapaxes(0, 1) for mask in masks.get(0.5, []))]
    embedding, bias = model.embedding.weight.detach().numpy(), model.bias.detach().numpy()
    for t in range(T):
        x = embedding[tokens[:, t]]
        for layer, cell in enumerate(model.body.cells):
            states[layer] = x = step(kind, x, states[layer], cell, depth, inputs[layer][:, t], masks[0.2][layer])
        wanted = (x @ narrowing.T * masks[0.6][0][:, t]) @ embedding.T + bias
        np.testing.assert_allclose(logits[:, t], wanted, rtol=1e-11, atol=1e-13)


def test_word_masks() -> None:
    """Kept or dropped as a whole, apart in each sequence, as often as asked for, and inverted."""
    torch.manual_seed(0)
    tokens = torch.randint(0, 40, (500, 35))
    mask = word_mask(torch.ones(500, 35), tokens, 0.25)[..., 0]
    kept = []
    for row, fates in zip(tokens.tolist(), mask.tolist(), strict=True):
        by_word: dict[int, set[float]] = {}
        for token, fate in zip(row, fates, strict=True):
            by_word.setdefault(token, set()).add(fate)
        assert all(len(each) == 1 for each in by_word.values())
        kept += [next(iter(each)) for each in by_word.values()]
    assert set(np.round(kept, 6)) == {0.0, round(1 / 0.75, 6)}
    assert np.mean(np.array(kept) > 0) == pytest.approx(0.75, abs=4 * (0.25 * 0.75 / len(kept)) ** 0.5)


def test_nothing_is_dropped_in_evaluation() -> None:
    plain = LanguageModel(LanguageNetwork("RHN", 4, max_depth=2), 5)
    dropping = LanguageModel(LanguageNetwork("RHN", 4, max_depth=2, **DROPS), 5).eval()
    dropping.load_state_dict(plain.state_dict())
    tokens = torch.randint(0, 5, (2, 6))
    assert torch.equal(dropping(tokens), plain(tokens))


def test_an_lstm_as_zaremba_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout on the embedded words and on the last output, drawn anew at every step, and two matrices of words."""
    network = LanguageNetwork(
        "LSTM", 4, input_dropout=0.4, output_dropout=0.6, tied=False, start={"weight_bound": 0.3}
    )
    model = LanguageModel(network, 6)
    masks, tokens = recorded(monkeypatch), torch.randint(0, 6, (2, 7))
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
    assert nn.functional.softplus(cell.alpha_hat.detach()).tolist() == pytest.approx([0.25] * 30)
    assert int(model.run(torch.zeros(1, 3, dtype=torch.int64)).depth.min()) == 3


def count(network: LanguageNetwork, vocabulary: int = 10_000) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in LanguageModel(network, vocabulary).parameters())


def test_the_published_parameter_counts() -> None:
    table = published()["ptb_test_perplexity_by_depth_hidden_1200"]
    for depth, millions in zip(table["RHN"]["depth"], table["RHN"]["parameters_millions"], strict=True):
        assert round(count(LanguageNetwork("RHN", 1200, max_depth=depth)) / 1e6, 1) == millions
    assert round(count(LanguageNetwork("EIREHN", 1200, hyper_size=600)) / 1e6, 2) == 25.34
    assert round(count(LanguageNetwork("EIREHN", 1000, hyper_size=500)) / 1e6) == 19
    assert round(count(LanguageNetwork("RHN", 830, max_depth=10)) / 1e6) in (23, 24)  # 23.5 in its authors' table
    assert round(count(LanguageNetwork("LSTM", 1500, num_layers=2, tied=False)) / 1e6) == 66


@pytest.mark.parametrize("tied", [True, False])
def test_words_of_another_size_than_the_state(tied: bool) -> None:
    torch.manual_seed(0)
    network = LanguageNetwork("LSTM", 8, embedding_size=3, tied=tied, start={"weight_bound": 0.2})
    model = LanguageModel(network, 11).eval()
    assert model.embedding.weight.shape == (11, 3)
    assert model.narrowing is not None
    assert model.narrowing.shape == (3, 8)
    assert 0.15 < model.narrowing.abs().max() <= 0.2
    assert count(network, 11) == 11 * 3 * (1 if tied else 2) + 11 + 3 * 8 + 4 * 8 * (3 + 8 + 1)
    tokens = torch.randint(0, 11, (2, 5))
    with torch.autocast("cpu", torch.bfloat16):
        outcome, out = model.run(tokens), model.body(model.embedding(tokens))[0]
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


def test_evaluation_has_all_digits_of_the_logits() -> None:
    model = LanguageModel(LanguageNetwork("EIREHN", 8, max_depth=2), 6)
    tokens = torch.randint(0, 6, (2, 5))
    with torch.autocast("cpu", torch.bfloat16):
        assert model(tokens).dtype == torch.bfloat16
        assert model.eval()(tokens).dtype == torch.float32


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
