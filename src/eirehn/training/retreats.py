"""Back to the best epoch, and on more slowly: for trainings that would otherwise be lost to a rate too high."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .optimisation import Optimisation


class Retreats:
    """The share of the learning rate that each of M members is left with."""

    def __init__(self, optimisation: Optimisation, members: int) -> None:
        self.worse = optimisation.retreat
        self.share = torch.ones(members) if self.worse else torch.ones(0)  # (M,), halved each time

    def __bool__(self) -> bool:
        return bool(self.worse)

    def place(self, device: torch.device) -> None:
        self.share = self.share.to(device)

    def lost(self, score: Tensor, best: Tensor) -> Tensor:
        """Which members are to go back, (M,), by this epoch's score and that of the best one, lower being better.

        Those with no best epoch, whose score is infinite, have nothing to go back to.
        """
        return ~(score <= self.worse * best) & best.isfinite()  # so that NaN is lost, too

    def slow(self, lost: Tensor) -> None:
        # In place: a recorded training step reads it there.
        self.share.mul_(torch.where(lost, 0.5, 1.0))

    def state_dict(self) -> dict[str, Any]:
        return {"share": self.share}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.share = state["share"]
