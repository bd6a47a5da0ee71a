"""Sequences in memory, from NumPy to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def check_single(values: Tensor, what: str) -> None:
    """That numbers which were finite still are, in single precision."""
    if not values.isfinite().all():
        raise ValueError(
            f"{what} has values that are too large for single precision, or too far from those trained on"
        )


def padded(x: Sequence[npt.NDArray[Any]], dtype: npt.DTypeLike = np.float32) -> tuple[Tensor, Tensor]:
    """Sequences (T, X), each T its own, as (N, T, X) with zeros at their ends, and their lengths (N,)."""
    lengths = [len(each) for each in x]
    out = np.zeros((len(x), max(lengths), x[0].shape[1]), dtype)
    for row, each in zip(out, x, strict=True):
        row[: len(each)] = each
    return torch.from_numpy(out), torch.tensor(lengths)


def moments(values: npt.NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each column of `values` (rows, X); 1 for the deviation of one that does not vary."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale = values.mean(0), values.std(0)
    if not np.isfinite(mean).all() or not np.isfinite(scale).all():
        raise ValueError(
            f"values are too large to standardise, up to {np.abs(values).max():.3g}: divide them before"
        )
    # A constant has a deviation of rounding errors.
    varies = scale > 1e-12 * np.abs(values).max(0)
    return tuple(mean.tolist()), tuple(np.where(varies, scale, 1.0).tolist())
