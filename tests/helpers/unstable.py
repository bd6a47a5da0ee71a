"""Trainings that diverge."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from eirehn.training.config import Recipe
from eirehn.training.ensemble import Ensemble
from helpers.small import small


def exploding(**options: Any) -> Recipe:
    """The first training step takes the weights so far that the loss of all others is infinite."""
    return small("SREHN", **{"clip": 1.0, "epochs": 5, "learning_rate": 1e30, **options})


def spoil(monkeypatch: pytest.MonkeyPatch, which: dict[int, set[int]]) -> None:
    """Makes the gradients of member m NaN at the training steps `which[m]`, counted from 0."""
    clip, step = Ensemble.clip_gradients, [0]

    def spoiled(self: Ensemble, norm: float) -> torch.Tensor:
        for member, steps in which.items():
            if step[0] in steps:
                self.stacked[0].grad[member] = torch.nan
        step[0] += 1
        return clip(self, norm)

    monkeypatch.setattr(Ensemble, "clip_gradients", spoiled)
