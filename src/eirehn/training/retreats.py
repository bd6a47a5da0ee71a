"""Back to the best epoch, and on more slowly: for trainings that would otherwise be lost to a rate too high."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .optimisation import Optimisation


def _itself(loss: Tensor) -> Tensor:
    return loss


class Retreats:
    """The share of the learning rate that each of M members is left with."""

    def __init__(self, optimisation: Optimisation, members: int) -> None:
        self.worse = optimisation.retreat
        members = members if self.worse else 0
        self.share = torch.ones(members)  # (M,), halved each time
        self.least = torch.full((members,), torch.inf, dtype=torch.float64)  # (M,): training losses of an epoch

    def __bool__(self) -> bool:
        return bool(self.worse)

    def place(self, device: torch.device) -> None:
        self.share, self.least = self.share.to(device), self.least.to(device)

    def lost(
        self, score: Tensor, best: Tensor, loss: Tensor | None = None, figure: Callable[[Tensor], Tensor] = _itself
    ) -> Tensor:
        """Which members are to go back, (M,), by this epoch's score and that of the best one, lower being better.
        Where there is a training loss of it, (M,), by that, too: what is validated may be an average, or at a
        temperature of its own, and still be good when what is trained has been lost for epochs.

        Losses are compared by the `figure` of validation: where it is a perplexity, a tenth more of the loss would
        be far more. Those with no best epoch, whose score is infinite, have nothing to go back to.
        """
        lost = ~(score <= self.worse * best)  # so that NaN is lost, too
        if loss is not None:
            lost = lost | ~(figure(loss) <= self.worse * figure(self.least))
            self.least = self.least.fmin(loss)
        return lost & best.isfinite()

    def slow(self, lost: Tensor) -> None:
        # In place: a recorded training step reads it there.
        self.share.mul_(torch.where(lost, 0.5, 1.0))
        self.least = self.least.masked_fill(lost, torch.inf)  # the best epoch's may have been higher

    def state_dict(self) -> dict[str, Any]:
        return {"share": self.share, "least": self.least}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.share = state["share"]
        self.least = state.get("least", self.least)  # which older states do not tell
