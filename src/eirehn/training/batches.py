"""The order in which an ensemble sees its data: each member its own, a function of seed and epoch alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.dataset import Augment, Split


class Parts:
    """A split in order, in parts small enough to evaluate at once."""

    size = 500

    def __init__(self, split: Split) -> None:
        self.split = split

    def __len__(self) -> int:
        return -(-len(self.split.x) // self.size)

    def __iter__(self) -> Iterator[Split]:
        for first in range(0, len(self.split.x), self.size):
            part = slice(first, first + self.size)
            yield self.split.map(lambda each, part=part: each[part])  # type: ignore[misc]


class Batches:
    """One pass over `tensors`, (N, …) each, in batches with a leading ensemble axis, (M, B, …).

    The order of an epoch depends on the seed and the epoch's number and on nothing that happened before, so a run
    can go on from any batch. With several processes each takes every `world`-th sequence of every batch, and
    `share` says what part of the batch that is.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        batch_size: int,
        seeds: Sequence[int],
        *,
        augment: Augment | None = None,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.tensors = tuple(tensors)
        self.augment = augment
        self.batch_size, self.seeds = batch_size, tuple(seeds)
        self.rank, self.world = rank, world
        self.epoch = 0
        self._position = 0

    def __len__(self) -> int:
        return -(-len(self.tensors[0]) // self.batch_size)

    @property
    def sampler(self) -> Batches:
        """Where Lightning looks for set_epoch."""
        return self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        first = self._position % len(self)  # a finished epoch is followed by a new one
        order = self._order()  # (M, N)
        for number in range(first, len(self)):
            self._position = number + 1
            rows = order[:, number * self.batch_size : (number + 1) * self.batch_size]  # (M, B)
            whole = self._batch(rows, number)
            own = slice(self.rank, None, self.world)
            count = len(range(*own.indices(rows.size(1))))
            if not count:  # fewer sequences than processes: take part, but do not count
                own = slice(0, 1)
            yield *(part[:, own] for part in whole), count * self.world / rows.size(1)
        self._position = 0

    def _batch(self, rows: Tensor, number: int) -> tuple[Tensor, ...]:
        """The sequences of `rows` (M, B), each member's changed by draws of its own."""
        batch = tuple(tensor[rows] for tensor in self.tensors)
        if self.augment is None:
            return batch
        return self.augment(batch, [np.random.default_rng([seed, self.epoch, number]) for seed in self.seeds])

    def _order(self) -> Tensor:
        count = len(self.tensors[0])
        orders = [np.random.default_rng([seed, self.epoch]).permutation(count) for seed in self.seeds]
        return torch.from_numpy(np.stack(orders)).to(self.tensors[0].device)

    def state_dict(self) -> dict[str, int]:
        return {"position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._position = state["position"]
