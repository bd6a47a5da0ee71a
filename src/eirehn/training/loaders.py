"""Batches of sequences and of text: their order depends on seed and epoch alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from ..data.dataset import Augment, Split, Splits
from ..data.text import LanguageData
from .config import LanguageOptimisation, Recipe


class Parts:
    """A split in order, in batches for evaluation."""

    size = 500

    def __init__(self, split: Split) -> None:
        self.split = split

    def __len__(self) -> int:
        return -(-len(self.split.x) // self.size)

    def __iter__(self) -> Iterator[Split]:
        for first in range(0, len(self.split.x), self.size):
            part = slice(first, first + self.size)
            yield self.split.map(lambda each, part=part: each[part])  # type: ignore[misc]


class _Resumable:
    """Numbered batches of an epoch, which can be resumed at any of them by its number."""

    epoch = 0
    _position = 0

    @property
    def sampler(self) -> Self:
        """Lightning calls set_epoch of a sampler."""
        return self

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def _numbers(self, count: int) -> Iterator[int]:
        for number in range(self._position % count, count):  # the epoch is complete: start the next
            self._position = number + 1
            yield number
        self._position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._position = state["position"]


class Batches(_Resumable):
    """One pass over `tensors`, (N, …) each, in batches with a leading ensemble axis, (M, B, …).

    The order of an epoch depends only on the seed and the epoch's number, so a run
    can be resumed at any batch. With several processes each takes every `world`-th sequence of every batch, and
    `share` is its share of the batch.
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
        self.tensors, self.batch_size, self.seeds = tuple(tensors), batch_size, tuple(seeds)
        self.augment, self.rank, self.world = augment, rank, world

    def __len__(self) -> int:
        return -(-len(self.tensors[0]) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        order = self._order()  # (M, N)
        for number in self._numbers(len(self)):
            rows = order[:, number * self.batch_size : (number + 1) * self.batch_size]  # (M, B)
            whole = self._batch(rows, number)
            own = slice(self.rank, None, self.world)
            count = len(range(*own.indices(rows.size(1))))
            if not count:  # fewer sequences than processes: compute with one, at weight 0
                own = slice(0, 1)
            yield *(part[:, own] for part in whole), count * self.world / rows.size(1)

    def _batch(self, rows: Tensor, number: int) -> tuple[Tensor, ...]:
        """The sequences of `rows` (M, B), augmented independently for each member."""
        batch = tuple(tensor[rows] for tensor in self.tensors)
        if self.augment is None:
            return batch
        return self.augment(batch, [np.random.default_rng([seed, self.epoch, number]) for seed in self.seeds])

    def _order(self) -> Tensor:
        count = len(self.tensors[0])
        orders = [np.random.default_rng([seed, self.epoch]).permutation(count) for seed in self.seeds]
        return torch.from_numpy(np.stack(orders)).to(self.tensors[0].device)


class Streams(_Resumable):
    """One pass over a text (1, N), cut into `batch_size` parallel streams of equal length; a batch is `steps`
    tokens of each, (M, B, T).

    The remainder at the end is not read, so that all batches have one shape. With several processes each takes
    every `world`-th stream, and `share` is its share of a batch.

    With `shift` each epoch of a member starts at a random offset, which depends on its seed and the epoch, and
    wraps around at the end of the text, so that batches differ between epochs.
    """

    def __init__(
        self,
        text: Split,
        batch_size: int,
        steps: int,
        seeds: Sequence[int],
        *,
        shift: bool = False,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        self.text, self.steps, self.seeds, self.shift = text, steps, tuple(seeds), shift
        self.length = text.x.size(1) // batch_size
        if len(self) < 1:
            raise ValueError(
                f"the training text is too short for batch_size {batch_size} and steps {steps}: it has "
                f"{text.x.size(1) + 1} tokens, and {batch_size * steps + 1} are needed"
            )
        self.rows = torch.arange(batch_size, device=text.x.device)[rank::world, None] * self.length  # (B, 1)
        self.share = len(self.rows) * world / batch_size

    def __len__(self) -> int:
        return self.length // self.steps

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, float]]:
        tokens, device = self.text.x.size(1), self.rows.device
        drawn = [int(np.random.default_rng([seed, self.epoch]).integers(tokens)) for seed in self.seeds]
        offsets = torch.tensor(drawn if self.shift else [0], device=device)[:, None, None]
        window = offsets + self.rows + torch.arange(self.steps, device=device)  # (M or 1, B, T)
        for number in self._numbers(len(self)):
            at = (window + number * self.steps) % tokens
            x, target = (each[0][at].long() for each in (self.text.x, self.text.target))
            yield x.expand(len(self.seeds), -1, -1), target.expand(len(self.seeds), -1, -1), self.share


class Windows:
    """A text (1, N) to be evaluated in `batch_size` parallel streams, `tokens` at a time; a single
    stream reads all of it."""

    size = 1024  # tokens at a time: each has as many logits as there are words

    def __init__(
        self, text: Split, batch_size: int, *, rank: int = 0, world: int = 1, tokens: int | None = None
    ) -> None:
        count = min(batch_size, text.x.size(1))
        length = text.x.size(1) // count
        self.x, self.target = (
            each[0, : count * length].view(count, length)[rank::world] for each in (text.x, text.target)
        )
        self.steps = max(1, (tokens or self.size) // batch_size)

    def __len__(self) -> int:
        return -(-self.x.size(1) // self.steps)

    def __iter__(self) -> Iterator[Split]:
        for x, target in zip(self.x.split(self.steps, 1), self.target.split(self.steps, 1), strict=True):
            yield Split(x.long(), target.long())


class Data(pl.LightningDataModule):
    """The splits, moved to the device at the start. Only a text that would take much of its memory stays in its
    file and is moved batch by batch."""

    most_bytes = 1 << 30
    trainer: pl.Trainer

    def __init__(self, recipe: Recipe, splits: Splits) -> None:
        super().__init__()
        self.recipe, self.splits = recipe, splits

    def setup(self, stage: str) -> None:
        if self.trainer.world_size > self.recipe.optimisation.batch_size:
            raise ValueError(
                f"batch_size must be at least the number of processes, {self.trainer.world_size}, "
                f"got {self.recipe.optimisation.batch_size}"
            )
        found = self.splits.validation.x.shape[1 if self.recipe.data.task == "language" else 0]
        if self.trainer.world_size > found > 0:
            raise ValueError(
                f"validation needs at least one sequence for each of {self.trainer.world_size} processes"
            )

    def train_dataloader(self) -> Batches | Streams:
        return training_batches(self.recipe, self._placed(self.splits.train), **self._process())

    def val_dataloader(self) -> Parts | Windows:
        whole, process = self._placed(self.splits.validation), self._process()
        if isinstance(self.recipe.data, LanguageData):
            tokens = most_tokens(self.recipe, whole.x.device)
            return Windows(whole, self.recipe.optimisation.batch_size, tokens=tokens, **process)
        return Parts(whole.map(lambda each: each[process["rank"] :: process["world"]]))

    def _process(self) -> dict[str, int]:
        """The rank of this process and the number of processes."""
        return {"rank": self.trainer.global_rank, "world": self.trainer.world_size}

    def _placed(self, split: Split) -> Split:
        device = self.trainer.strategy.root_device
        if isinstance(self.recipe.data, LanguageData) and split.x.nbytes > self.most_bytes:
            return split
        return split.map(lambda each: each.to(device))


def training_batches(recipe: Recipe, train: Split, *, rank: int = 0, world: int = 1) -> Batches | Streams:
    """One pass over the training data."""
    data, optimisation, seeds = recipe.data, recipe.optimisation, recipe.seeds
    if isinstance(data, LanguageData):
        assert isinstance(optimisation, LanguageOptimisation)
        shift = optimisation.shift
        return Streams(train, optimisation.batch_size, data.steps, seeds, shift=shift, rank=rank, world=world)
    tensors = [each for each in train if each is not None]
    return Batches(tensors, optimisation.batch_size, seeds, augment=data.augment, rank=rank, world=world)


def most_tokens(recipe: Recipe, device: torch.device) -> int:
    """Tokens to validate at once: a GPU needs many to be busy. Their logits and states take some hundred megabytes;
    the memory of a pointer grows with their square."""
    if device.type != "cuda" or bool(getattr(recipe.network, "pointer", False)):
        return Windows.size
    wide = max(recipe.data.output_size, 8 * recipe.network.hidden_size)
    return max(Windows.size, min(4096, 2**25 // (len(recipe.seeds) * wide)))


def final_parts(recipe: Recipe, split: Split, batch: int | None = None) -> Parts | Windows:
    """All of a split, for results to report: a text is one stream, unless `batch` is given."""
    if isinstance(recipe.data, LanguageData):
        return Windows(split, 1 if batch is None else batch)
    if batch is not None:
        raise ValueError("batch is the number of parallel streams of a text, and these data are not a text")
    return Parts(split)
