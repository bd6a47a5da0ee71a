"""Weights beside the trained ones: a running average, and those of the best epoch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from .ensemble import Ensemble


class Averages:
    """Of each value of M members, (M, …), with a `decay` per step; with a decay of 0 there is none. At first it
    forgets faster, so that it is not of the initial values for as long as it looks back."""

    def __init__(self, decay: float, values: Iterable[Tensor]) -> None:
        self.decay = decay
        self.values = [value.detach().clone() for value in values] if decay > 0 else []
        self.steps = 0  # not on the device, where to read it would take waiting

    def __bool__(self) -> bool:
        return bool(self.values)

    def place_like(self, values: Iterable[Tensor]) -> None:
        self.values = [each.to(own) for each, own in zip(self.values, values, strict=False)]

    @torch.no_grad()
    def update(self, values: Iterable[Tensor]) -> None:
        """Takes in the values of one more step."""
        if not self.values:
            return
        self.steps += 1
        torch._foreach_lerp_(self.values, list(values), 1 - min(self.decay, self.steps / (self.steps + 9)))

    @torch.no_grad()
    def swap(self, values: Iterable[Tensor]) -> None:
        """Puts the averaged values in the place of the trained ones, or back."""
        for average, value in zip(self.values, values, strict=False):
            trained = value.clone()
            value.copy_(average)
            average.copy_(trained)

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = list(state["values"])
        self.steps = state.get("steps", 1 << 40)  # states of version 0.1 may lack it


class Best:
    """Each member's values at its best epoch, by a score that is better when lower."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.score = torch.full((ensemble.size,), torch.inf, dtype=torch.float64)
        self.epoch = torch.full((ensemble.size,), -1)
        self.values = {name: value.clone() for name, value in ensemble.values().items()}

    def take(self, score: Tensor, epoch: int, ensemble: Ensemble, *, if_better: bool) -> None:
        """This epoch in place of the one before, always or where it is better, unless it has diverged: NaN and
        infinity are never better."""
        better = score < self.score if if_better else score.isfinite()
        self.score[better] = score[better]
        self.epoch[better] = epoch
        for name, value in ensemble.values().items():
            self.values[name][better] = value[better]

    def place_like(self, ensemble: Ensemble) -> None:
        own = ensemble.values()
        self.values = {name: value.to(own[name]) for name, value in self.values.items()}
        device = ensemble.stacked[0].device
        self.score, self.epoch = self.score.to(device), self.epoch.to(device)

    def state_dict(self) -> dict[str, Any]:
        return {"score": self.score, "epoch": self.epoch, "values": self.values}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.score, self.epoch, self.values = state["score"], state["epoch"], dict(state["values"])
