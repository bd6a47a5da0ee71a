"""The pointer sentinel against its definition, one probability at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from eirehn.models import LanguageModel, LanguageNetwork
from eirehn.models.body import run_body
from eirehn.models.pointer import PointerSentinel


def by_hand(model: LanguageModel, tokens: torch.Tensor, window: int, masks: Sequence[Any] = (1.0, 1.0)) -> Any:
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
def test_by_hand(kind: str, size: int | None, window: int, piece: int) -> None:
    """At once, and in pieces between which only the state is carried."""
    torch.manual_seed(0)
    network = LanguageNetwork(
        kind, 6, max_depth=2, pointer=window, embedding_size=size, start={"weight_bound": 1.0}
    )
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


@pytest.mark.parametrize(("by_step", "size"), [(False, None), (True, None), (True, 4)])
def test_what_is_hidden_from_it_by_hand(by_step: bool, size: int | None, masks: list[Any]) -> None:
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
    expected = by_hand(model, tokens, 4, kept)
    found = torch.cat([first.prediction, second.prediction], 1).exp()
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-11)
    whole = model.eval().run(tokens).prediction.exp()
    np.testing.assert_allclose(whole.detach().numpy(), by_hand(model, tokens, 4), rtol=1e-11)


def test_logits_of_few_digits_lose_no_more() -> None:
    """As autocast gives them: what is made of them has all digits of float32."""
    torch.manual_seed(0)
    pointer, out, tokens = PointerSentinel(4, 3), torch.randn(2, 5, 4), torch.randint(0, 7, (2, 5))
    logits = torch.randn(2, 5, 7).bfloat16()
    for target in (None, torch.randint(0, 7, (2, 5))):
        found, wanted = (pointer(out, tokens, each, None, target)[0] for each in (logits, logits.float()))
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
