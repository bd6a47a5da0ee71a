"""Sequences small enough for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

QUICK: dict[str, Any] = {"hidden_size": 6, "max_depth": 2, "epochs": 3, "random_state": 0, "device": "cpu"}
LEARN: dict[str, Any] = {"hidden_size": 12, "max_depth": 3, "epochs": 25, "random_state": 0, "device": "cpu"}


def sequences(count: int = 30, *, equal: bool = False, seed: int = 0) -> list[np.ndarray]:
    """Two channels in units of their own."""
    random = np.random.default_rng(seed)
    lengths = np.full(count, 6) if equal else random.integers(1, 9, count)
    shifts = random.choice([-6.0, 6.0], count)
    return [
        random.normal([50.0 + shift, -3.0], [5.0, 0.1], (length, 2))
        for length, shift in zip(lengths, shifts, strict=True)
    ]


def signs(x: list[np.ndarray]) -> np.ndarray:
    """Whether the first channel is above 50 on the whole."""
    return np.array(["above" if each[:, 0].mean() > 50 else "below" for each in x])
