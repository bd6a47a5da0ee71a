"""The gated map between a state and a head against its definition, one number at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from eirehn.gating import GatedMap
from eirehn.models import LanguageModel, Network, SequenceModel
from eirehn.training.ensemble import Ensemble

SHARP = {"weight_bound": 1.0}


def by_hand(gated: GatedMap, h: Any) -> Any:
    """What it makes of `h`, (B, T, H): all loops."""
    weight, bias = (each.detach().numpy() for each in (gated.weight, gated.bias))
    size = len(bias) // 2
    made = np.zeros((*h.shape[:2], size))
    for i, t, k in np.ndindex(*made.shape):
        value = sum(weight[k, j] * h[i, t, j] for j in range(h.shape[-1])) + bias[k]
        opening = sum(weight[size + k, j] * h[i, t, j] for j in range(h.shape[-1])) + bias[size + k]
        made[i, t, k] = value * 2 / (1 + math.exp(-opening))
    return made


def outputs(model: LanguageModel, tokens: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.network.run(model.body, model.embedding(tokens), None, max_depth=None, with_cost=False)[0]


def make(network: Network, vocabulary: int = 5) -> LanguageModel:
    torch.manual_seed(0)
    model = LanguageModel(network, vocabulary).double()
    assert model.gated is not None
    with torch.no_grad():
        model.gated.bias.uniform_(-1, 1)  # which starts at zero
    return model


@pytest.mark.parametrize("kind", ["EIREHN", "RHN", "LSTM"])
@pytest.mark.parametrize(("size", "tied"), [(None, True), (4, True), (9, True), (4, False)])
def test_by_hand(kind: str, size: int | None, tied: bool) -> None:
    network = Network(kind, 6, max_depth=2, gated_output=True, embedding_size=size, tied=tied, start=SHARP)
    model = make(network).eval()
    tokens = torch.randint(0, 5, (3, 7))
    said = by_hand(model.gated, outputs(model, tokens).numpy())  # type: ignore[arg-type]  # `make` has looked
    matrix = (model.embedding.weight if model.output is None else model.output).detach().numpy()
    expected = said @ matrix.T + model.bias.detach().numpy()
    np.testing.assert_allclose(model(tokens).detach().numpy(), expected, rtol=1e-12, atol=1e-13)
    assert model.narrowing is None  # it narrows, too


@pytest.mark.parametrize("by_step", [False, True])
def test_what_is_dropped_by_hand(by_step: bool, masks: dict[float, torch.Tensor]) -> None:
    """In training: a part of what it reads, and a part of what it makes, of each its own."""
    network = Network("EIREHN", 6, max_depth=2, output_dropout=0.5, step_masks=by_step, start=SHARP)
    model = make(replace(network, gated_output=True, gated_dropout=0.3, embedding_size=4)).train()
    tokens = torch.randint(0, 5, (3, 7))
    found = model(tokens).detach().numpy()
    assert {p: tuple(mask.shape) for p, mask in masks.items()} == {
        0.3: (3, 7 if by_step else 1, 6),
        0.5: (3, 7 if by_step else 1, 4),
    }
    seen, kept = (masks[p].numpy() for p in (0.3, 0.5))
    said = by_hand(model.gated, outputs(model, tokens).numpy() * seen) * kept  # type: ignore[arg-type]
    expected = said @ model.embedding.weight.detach().numpy().T + model.bias.detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    masks.clear()
    whole = model.eval()(tokens).detach().numpy()
    assert not masks
    said = by_hand(model.gated, outputs(model, tokens).numpy())  # type: ignore[arg-type]
    expected = said @ model.embedding.weight.detach().numpy().T + model.bias.detach().numpy()
    np.testing.assert_allclose(whole, expected, rtol=1e-12, atol=1e-13)


def test_gradients() -> None:
    gated = GatedMap(4, 3, 1.0).double()
    h = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h, *_: gated(h), (h, gated.weight, gated.bias))


def test_where_it_starts() -> None:
    gated = make(Network("LSTM", 25, embedding_size=40, gated_output=True)).gated
    assert gated is not None
    assert gated.weight.shape == (80, 25)
    assert 0.19 < gated.weight.abs().max() <= 0.2  # 1/√H
    fresh = LanguageModel(Network("LSTM", 25, gated_output=True, start={"weight_bound": 0.3}), 5).gated
    assert fresh is not None
    assert 0.28 < fresh.weight.abs().max() <= 0.3
    assert not fresh.bias.any()


def test_a_gate_that_knows_nothing_leaves_what_it_gates() -> None:
    """From V = 1 and U = 0 a model says what one without the map does, and has as many more numbers as it says."""
    torch.manual_seed(0)
    plain = LanguageModel(Network("EIREHN", 6, max_depth=2, start=SHARP), 5).double().eval()
    model = make(Network("EIREHN", 6, max_depth=2, gated_output=True, start=SHARP)).eval()
    own = {**model.state_dict(), **plain.state_dict()}
    own["gated.weight"] = torch.cat([torch.eye(6), torch.zeros(6, 6)]).double()
    own["gated.bias"] = torch.zeros(12).double()
    model.load_state_dict(own)
    tokens = torch.randint(0, 5, (3, 7))
    torch.testing.assert_close(model(tokens), plain(tokens), rtol=1e-13, atol=1e-15)
    more = sum(each.numel() for each in model.parameters()) - sum(each.numel() for each in plain.parameters())
    assert more == 2 * 6 * 6 + 2 * 6


def test_not_training_it_is_not_rounded() -> None:
    """Under autocast, too: bfloat16 has two or three digits of a logit."""
    model = LanguageModel(Network("LSTM", 8, gated_output=True), 11).eval()
    tokens = torch.randint(0, 11, (2, 5))
    with torch.autocast("cpu", torch.bfloat16):
        outcome, out, _ = model.run_watched(tokens)
    assert model.gated is not None
    exact = model.gated(out.float()) @ model.embedding.weight.T + model.bias
    torch.testing.assert_close(outcome.prediction, exact, rtol=1e-5, atol=1e-6)  # bfloat16 is off by 1e-3


def test_no_sequence_at_all() -> None:
    model = make(Network("EIREHN", 6, max_depth=2, gated_output=True, embedding_size=4)).eval()
    assert model(torch.zeros(0, 3, dtype=torch.int64)).shape == (0, 3, 5)


def test_members_of_an_ensemble_have_maps_of_their_own() -> None:
    """And hide other parts of what they read from them."""
    network = Network("EIREHN", 6, max_depth=2, gated_output=True, start=SHARP)
    members = [make(replace(network, hidden_size=6)), LanguageModel(network, 5).double()]
    tokens = torch.randint(0, 5, (3, 7))
    found = Ensemble(members).eval()(tokens.expand(2, 3, 7)).prediction
    torch.testing.assert_close(found, torch.stack([member.eval()(tokens) for member in members]))
    alike = Ensemble([make(replace(network, gated_dropout=0.5)) for _ in range(2)]).train()
    one, other = alike(tokens.expand(2, 3, 7)).prediction
    assert not torch.equal(one, other)


def test_refused() -> None:
    with pytest.raises(ValueError, match="gated_output does not go with a mixture"):
        Network("EIREHN", 6, gated_output=True, mixture=2)
    with pytest.raises(ValueError, match="gated_output must be true"):
        Network("EIREHN", 6, gated_dropout=0.2)
    with pytest.raises(TypeError, match="gated_output should be of type bool"):
        Network("EIREHN", 6, gated_output="yes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"gated_output, .* belong to language models"):
        SequenceModel(Network("EIREHN", 6, gated_output=True), 2, 2)
