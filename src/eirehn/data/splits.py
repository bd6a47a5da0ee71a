"""What every data set comes down to: inputs and targets to train on, to choose by, and to report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Split(NamedTuple):
    x: Tensor  # (N, T, X)
    target: Tensor  # (N, T, O), or (N,) for a class per sequence
    lengths: Tensor | None = None  # (N,): the sequences' own lengths, where x is padded at its end

    def map(self, change: Callable[[Tensor], Tensor]) -> Split:
        """With `change` made to each tensor that is there."""
        return Split(*(None if each is None else change(each) for each in self))  # type: ignore[arg-type]


class Splits(NamedTuple):
    train: Split
    validation: Split  # may be empty: then the last epoch is the one that counts
    test: Split


Augment = Callable[[Sequence[Tensor], Sequence[np.random.Generator]], tuple[Tensor, ...]]
"""Inputs and targets of a batch, (M, B, …) each, as one more draw of the same task; each member has a generator."""


def sent(array: npt.NDArray[np.float64], like: Tensor) -> Tensor:
    """`array` in the dtype and on the device of `like`, without waiting for a GPU to take it."""
    tensor = torch.from_numpy(array).to(like.dtype)
    return tensor.pin_memory().to(like.device, non_blocking=True) if like.is_cuda else tensor


class Data(Protocol):
    """What a recipe asks of its data: a frozen dataclass whose fields say all there is to know."""

    kind: ClassVar[str]

    @property
    def task(self) -> str:
        """regression or classification."""

    @property
    def input_size(self) -> int: ...

    @property
    def output_size(self) -> int: ...

    @property
    def augment(self) -> Augment | None:
        """What changes a batch to train on, where anything does."""

    def load(self) -> Splits: ...

    def __hash__(self) -> int: ...

    def smaller(self, train: int) -> Data:
        """The same with so many sequences to train on."""
