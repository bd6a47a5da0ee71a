"""The pointer sentinel against its definition, one probability at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from eirehn.models import LanguageModel, Network
from eirehn.pointer import PointerSentinel


def by_hand(model: LanguageModel, tokens: torch.Tensor, window: int) -> Any:
    """Every p(w), (B, T, V), from the plain model's outputs: all loops, no masks."""
    assert model.pointer is not None
    W, b = (each.detach().numpy() for each in (model.pointer.query.weight, model.pointer.query.bias))
    s = model.pointer.sentinel.detach().numpy()
    out = model.network.run(model.body, model.embedding(tokens), None, max_depth=None, with_cost=False)[0]
    h = out.detach().numpy()
    logits = h @ model.embedding.weight.detach().numpy().T + model.bias.detach().numpy()
    B, T, V = logits.shape
    p = np.zeros((B, T, V))
    for i in range(B):
        for t in range(T):
            vocabulary = np.exp(logits[i, t]) / np.exp(logits[i, t]).sum()
            q = np.tanh(W @ h[i, t] + b)
            seen = range(max(0, t - window + 1), t + 1)
            scores = [math.exp(q @ h[i, j]) for j in seen]
            left = math.exp(q @ s)
            total = sum(scores) + left
            p[i, t] = left / total * vocabulary
            for j, score in zip(seen, scores, strict=True):
                p[i, t, tokens[i, j]] += score / total
    return p


@pytest.mark.parametrize("kind", ["EIREHN", "LSTM"])
@pytest.mark.parametrize("window", [1, 4, 30])
@pytest.mark.parametrize("piece", [12, 5, 1])
def test_by_hand(kind: str, window: int, piece: int) -> None:
    """At once, and in pieces between which only the state is carried."""
    torch.manual_seed(0)
    network = Network(kind, 6, max_depth=2, pointer=window, start={"weight_bound": 1.0})
    model = LanguageModel(network, 5).double().eval()
    tokens = torch.randint(0, 5, (3, 12))
    expected = by_hand(model, tokens, window)
    state, found = None, []
    for at in range(0, 12, piece):
        outcome = model.run(tokens[:, at : at + piece], state)
        state = outcome.state
        found.append(outcome.prediction.exp())
    p = torch.cat(found, 1)
    np.testing.assert_allclose(p.detach().numpy(), expected, rtol=1e-11)
    torch.testing.assert_close(p.sum(-1), torch.ones_like(p.sum(-1)), rtol=1e-6, atol=0)


def test_it_learns_to_point() -> None:
    """A word of 30, drawn anew for each sequence and repeated: pointing is sooner learned than 30 words."""
    torch.manual_seed(0)
    losses = {}
    for pointer in (0, 8):
        torch.manual_seed(1)
        model = LanguageModel(Network("RHN", 12, max_depth=1, pointer=pointer), 30)
        optimizer = torch.optim.Adam(model.parameters(), 0.02)
        for _ in range(60):
            tokens = torch.randint(0, 30, (32, 1)).repeat(1, 6)
            loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses[pointer] = loss.item()
    assert losses[8] < 0.5
    assert losses[8] < losses[0] - 0.5


def test_members_with_memories_of_their_own() -> None:
    from eirehn.training.ensemble import Ensemble

    torch.manual_seed(0)
    models = [LanguageModel(Network("LSTM", 4, pointer=3), 5) for _ in range(2)]
    ensemble = Ensemble(models).eval()
    tokens = torch.randint(0, 5, (2, 3, 8))
    first = ensemble(tokens[:, :, :4])
    second = ensemble(tokens[:, :, 4:], first.state).prediction
    for index, model in enumerate(models):
        alone = model.eval().run(tokens[index])
        torch.testing.assert_close(second[index], alone.prediction[:, 4:])


def test_a_window_must_be_positive() -> None:
    with pytest.raises(ValueError, match="pointer must be greater than zero"):
        Network("LSTM", 4, pointer=-1)
    with pytest.raises(ValueError, match="window must be greater than zero"):
        PointerSentinel(4, 0)
