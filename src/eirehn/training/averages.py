"""A running average of the weights over training steps, validated and kept in place of the last weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Averages:
    """Of each value of M members, (M, …), with a `decay` per step; with a decay of 0 there is none. At first it
    forgets faster, so that it is not of the initial values for as long as it looks back."""

    def __init__(self, decay: float, values: Sequence[Tensor]) -> None:
        self.decay = decay
        self.values = [value.detach().clone() for value in values] if decay > 0 else []
        self.steps = 0  # not on the device, where to read it would take waiting

    def __bool__(self) -> bool:
        return bool(self.values)

    def place_like(self, values: Sequence[Tensor]) -> None:
        self.values = [each.to(own) for each, own in zip(self.values, values, strict=False)]

    @torch.no_grad()
    def update(self, values: Sequence[Tensor]) -> None:
        """Takes in the values of one more step."""
        if not self.values:
            return
        self.steps += 1
        torch._foreach_lerp_(self.values, list(values), 1 - min(self.decay, self.steps / (self.steps + 9)))

    @torch.no_grad()
    def swap(self, values: Sequence[Tensor]) -> None:
        """Puts the averaged values in the place of the trained ones, or back."""
        for average, value in zip(self.values, values, strict=False):
            trained = value.clone()
            value.copy_(average)
            average.copy_(trained)

    def state_dict(self) -> dict[str, Any]:
        return {"values": self.values, "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values, self.steps = (
            list(state["values"]),
            state.get("steps", 1 << 40),
        )  # states of version 0.1 may lack it
