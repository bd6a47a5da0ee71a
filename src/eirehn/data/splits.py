"""What every data set comes down to: inputs and targets to train on, to choose by, and to report."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Split(NamedTuple):
    x: Tensor  # (N, T, X)
    target: Tensor  # (N, T, O), or (N,) for a class per sequence


class Splits(NamedTuple):
    train: Split
    validation: Split
    test: Split
