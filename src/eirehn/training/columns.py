"""A text, which is one long sequence, as batches: in columns side by side, each read on from batch to batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ..data.dataset import Split


class Columns:
    """One pass over a text (1, N), cut into `batch_size` columns of one length, `steps` of each a batch, (M, B, T).

    What is left over at the end is not read, so that every batch has one shape. With several processes each takes
    every `world`-th column, and `share` says what part of a batch that is. The position is all there is to go on
    from.

    With `seeds`, one a member, each epoch begins at a place of its own, drawn by seed and epoch, and the text is a
    ring: other words stand side by side, begin a batch, and are left over.
    """

    def __init__(
        self,
        text: Split,
        batch_size: int,
        steps: int,
        members: int = 1,
        *,
        rank: int = 0,
        world: int = 1,
        seeds: Sequence[int] | None = None,
    ) -> None:
        self.text, self.batch_size, self.steps, self.members, self.seeds = text, batch_size, steps, members, seeds
        self.length = text.x.size(1) // batch_size
        if len(self) < 1:
            raise ValueError(
                f"the text to train on is too short for batch_size {batch_size} and steps {steps}: it has "
                f"{text.x.size(1) + 1} tokens, and {batch_size * steps + 1} are needed"
            )
        self.rows = torch.arange(batch_size, device=text.x.device)[rank::world, None] * self.length  # (B, 1)
        self.share = len(self.rows) * world / batch_size
        self.epoch = 0
        self._position = 0

    def __len__(self) -> int:
        return self.length // self.steps

    @property
    def sampler(self) -> Columns:
        """Where Lightning looks for set_epoch."""
        return self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, float]]:
        first = self._position % len(self)  # a finished epoch is followed by a new one
        tokens = self.text.x.size(1)
        window = self._begins() + self.rows + torch.arange(self.steps, device=self.rows.device)  # (M or 1, B, T)
        for number in range(first, len(self)):
            self._position = number + 1
            at = (window + number * self.steps) % tokens
            x, target = (each[0][at].long() for each in (self.text.x, self.text.target))
            yield x.expand(self.members, -1, -1), target.expand(self.members, -1, -1), self.share
        self._position = 0

    def _begins(self) -> Tensor:
        """Of each member, (M, 1, 1), or of all of them."""
        tokens = self.text.x.size(1)
        drawn = [int(np.random.default_rng([seed, self.epoch]).integers(tokens)) for seed in self.seeds or ()]
        return torch.tensor(drawn or [0], device=self.rows.device)[:, None, None]

    def state_dict(self) -> dict[str, int]:
        return {"position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._position = state["position"]


class Windows:
    """A text (1, N) to be evaluated in `batch_size` columns, a window of so many `tokens` at a time; one column
    reads all of it."""

    size = 1024  # tokens of a window: what is told of each is as many numbers as there are words

    def __init__(
        self, text: Split, batch_size: int, *, rank: int = 0, world: int = 1, tokens: int | None = None
    ) -> None:
        x, target = columns(text, min(batch_size, text.x.size(1)))
        self.x, self.target = x[rank::world], target[rank::world]
        self.steps = max(1, (tokens or self.size) // batch_size)

    def __len__(self) -> int:
        return -(-self.x.size(1) // self.steps)

    def __iter__(self) -> Iterator[Split]:
        for x, target in zip(self.x.split(self.steps, 1), self.target.split(self.steps, 1), strict=True):
            yield Split(x.long(), target.long())


def columns(text: Split, count: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets, (B, L) each, views of the text."""
    length = text.x.size(1) // count
    x, target = (each[0, : count * length].view(count, length) for each in (text.x, text.target))
    return x, target
