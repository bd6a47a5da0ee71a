"""The continuous cache against its definition in NumPy, word by word."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from eirehn.recall import Recall


def by_hand(out: np.ndarray, words: np.ndarray, window: int, sharpness: float) -> list[float]:
    """What the last `window` words before each one give it."""
    found = [np.nan]
    for t in range(1, len(words)):
        past = range(max(0, t - window), t)
        angles = [out[t] @ out[i] / (np.linalg.norm(out[t]) * np.linalg.norm(out[i])) for i in past]
        weights = np.exp(sharpness * np.array(angles))
        found.append(sum(w for w, i in zip(weights, past, strict=True) if words[i] == words[t]) / weights.sum())
    return found


@pytest.mark.parametrize("window", [1, 3, 2**62])
@pytest.mark.parametrize("parts", [[11], [4, 4, 3], [1] * 11, [1, 9, 1]])
def test_by_hand(window: int, parts: list[int]) -> None:
    random = np.random.default_rng(0)
    out, words = random.normal(size=(2, 2, 11, 5)), random.integers(0, 3, (2, 2, 11))
    sharpness = np.array([[0.0, 3.0], [1.0, 40.0]])
    cache = Recall(window, torch.from_numpy(sharpness))
    pieces = zip(torch.from_numpy(out).split(parts, 2), torch.from_numpy(words).split(parts, 2), strict=True)
    found = torch.cat([cache(*piece) for piece in pieces], -1).numpy()
    assert found.shape == (2, 2, 2, 11)
    for k, m, b in np.ndindex(2, 2, 2):
        np.testing.assert_allclose(found[k, m, b], by_hand(out[m, b], words[m, b], window, sharpness[m, k]))


def test_all_words_together_are_certain() -> None:
    random = torch.Generator().manual_seed(0)
    out, words = torch.randn(1, 1, 8, 4, generator=random), torch.randint(0, 3, (1, 1, 7), generator=random)
    chances = []
    for last in range(3):
        given = torch.cat([words, torch.tensor([[[last]]])], -1)
        chances.append(Recall(5, torch.tensor([[2.0]]))(out, given)[0, 0, 0, -1])
    assert torch.stack(chances).sum().item() == pytest.approx(1.0, abs=1e-6)


def test_no_window() -> None:
    for window in (0, 10**30):
        with pytest.raises(ValueError, match="window must be"):
            Recall(window, torch.ones(1, 1))
