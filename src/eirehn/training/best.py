"""What each member was at its best epoch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .ensemble import Ensemble


class Best:
    """Each member's values at its best epoch, by a score that is better when lower."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.score = torch.full((ensemble.size,), torch.inf, dtype=torch.float64)
        self.epoch = torch.full((ensemble.size,), -1)
        self.values = {name: value.clone() for name, value in ensemble.values().items()}

    def consider(self, score: Tensor, epoch: int, ensemble: Ensemble) -> None:
        """This epoch where it is better, which NaN never is: a member that diverges keeps what it had."""
        self._take(score < self.score, score, epoch, ensemble)

    def take(self, score: Tensor, epoch: int, ensemble: Ensemble) -> None:
        """This epoch in place of the one before, better or not, unless it has diverged."""
        self._take(score.isfinite(), score, epoch, ensemble)

    def _take(self, better: Tensor, score: Tensor, epoch: int, ensemble: Ensemble) -> None:
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
