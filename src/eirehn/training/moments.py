"""What Adam remembers of the gradients, in little room.

Its mean squares of a matrix are kept as one number for each row and one for each column, whose product has the same
means along both (Shazeer and Stern 2018); those of a vector are kept as they are. Its mean gradients are not kept:
they are those of the last steps, and are made anew in as many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

SMALL = ("adam", "adamw", "sgd")
"""Optimisers whose memory can be kept so; that of sgd is empty."""


def small(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """An optimiser's state, as its `state_dict` has it, in little room."""
    return {**optimizer, "state": {index: _small(kept) for index, kept in optimizer["state"].items()}}


def _small(kept: Mapping[str, Tensor]) -> dict[str, Tensor]:
    square = kept["exp_avg_sq"].cpu()
    step = {"step": kept["step"].cpu()}
    if square.dim() < 3:  # (M, N)
        return {**step, "square": square}
    return {**step, "rows": square.mean(-1, keepdim=True), "columns": square.mean(-2, keepdim=True)}


def whole(optimizer: Mapping[str, Any], values: Sequence[Tensor]) -> dict[str, Any]:
    """What `small` made so, for an optimiser of `values`."""
    kept = optimizer["state"]
    if not kept.keys() <= set(range(len(values))):
        raise ValueError("its optimiser's memory is of another model")
    return {**optimizer, "state": {index: _whole(each, values[index]) for index, each in kept.items()}}


def _whole(kept: Mapping[str, Tensor], value: Tensor) -> dict[str, Tensor]:
    if "square" in kept:
        square = kept["square"]
    else:
        rows, columns = kept["rows"], kept["columns"]
        shapes = [*value.shape[:-1], 1], [*value.shape[:-2], 1, value.size(-1)]
        if [list(each.shape) for each in (rows, columns)] != list(shapes):  # before room is taken for their product
            raise ValueError("its optimiser's memory does not fit the model of its recipe")
        mean = rows.mean(-2, keepdim=True)
        square = rows / torch.where(mean > 0, mean, 1.0) * columns
    if square.shape != value.shape or not bool((square >= 0).all()):
        raise ValueError("its optimiser's memory does not fit the model of its recipe")
    if kept["step"].numel() != 1:
        raise ValueError("its optimiser does not know its step")
    return {"step": kept["step"], "exp_avg": torch.zeros_like(square), "exp_avg_sq": square}
