"""Averages of the values over the steps of a training, validated and kept in the place of the last values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .optimisation import Optimisation

LONG = 1 << 40


class Averages:
    """Of each value of M members, (M, …): a running average with a decay, or the plain one over all steps since a
    certain epoch (ASGD), or since validation no longer said that it got better (NT-ASGD, Merity et al. 2017).
    Until a plain average begins it is the last value. A running one forgets faster at first, so that it is not of
    the initial values for as long as it looks back. Without any of them there is nothing here to do."""

    def __init__(self, optimisation: Optimisation, values: Sequence[Tensor]) -> None:
        self.optimisation = optimisation
        wanted = optimisation.average > 0 or optimisation.averages_evenly
        self.values = [value.detach().clone() for value in values] if wanted else []
        self.begun = torch.zeros(len(values[0]), dtype=torch.bool)  # (M,)
        self.count = torch.zeros(len(values[0]), dtype=torch.float64)  # (M,): the steps an average is of
        self.steps = 0  # all there were; not on the device, where to read it would take waiting
        self.scores: list[Tensor] = []  # of every epoch, (M,) each

    def __bool__(self) -> bool:
        return bool(self.values)

    def place_like(self, values: Sequence[Tensor]) -> None:
        self.values = [each.to(own) for each, own in zip(self.values, values, strict=False)]
        self.begun, self.count = self.begun.to(values[0].device), self.count.to(values[0].device)
        self.scores = [each.to(values[0].device) for each in self.scores]

    def start_epoch(self, epoch: int) -> None:
        first = self.optimisation.average_from
        if first is not None and epoch >= first:
            self.begun.fill_(True)

    def next_share(self) -> float:
        """Counts one more step, and tells what a running average takes of its values."""
        self.steps += 1
        return 1 - min(self.optimisation.average, self.steps / (self.steps + 9))

    @torch.no_grad()
    def update(self, values: Sequence[Tensor]) -> None:
        """Takes in the values of one more step."""
        if not self.values:
            return
        if self.optimisation.average:
            torch._foreach_lerp_(self.values, list(values), self.next_share())
            return
        self.steps += 1
        self.count += self.begun
        weight = 1 / self.count.clamp(min=1.0)  # (M,)
        for average, value in zip(self.values, values, strict=True):
            average.lerp_(value, weight.to(value.dtype).view(-1, *[1] * (value.dim() - 1)))

    def consider(self, score: Tensor, lost: Tensor | None = None) -> None:
        """Of an epoch that has ended, (M,), better when lower; of members that got lost, (M,), it says nothing."""
        patience = self.optimisation.average_after
        if patience is None:
            return
        if len(self.scores) > patience:
            worse = score > torch.stack(self.scores[: len(self.scores) - patience]).amin(0)
            self.begun |= worse if lost is None else worse & ~lost
        self.scores.append(score.clone() if lost is None else score.masked_fill(lost, torch.inf))

    @torch.no_grad()
    def swap(self, values: Sequence[Tensor]) -> None:
        """Puts the averaged values in the place of the trained ones, or back."""
        for average, value in zip(self.values, values, strict=False):
            trained = value.clone()
            value.copy_(average)
            average.copy_(trained)

    @torch.no_grad()
    def begin_anew(self, which: Tensor, values: Sequence[Tensor]) -> None:
        """With the values as they are now, for members whose earlier ones do not count any more, (M,)."""
        for average, value in zip(self.values, values, strict=False):
            average[which] = value[which]
        self.count[which] = 0

    def state_dict(self) -> dict[str, Any]:
        names = ("values", "begun", "count", "scores", "steps")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values, self.scores = list(state["values"]), list(state["scores"])
        self.begun, self.count = state["begun"], state["count"]
        self.steps = state.get("steps", LONG)  # which older states do not tell; theirs never forgot faster
