"""What Adam remembers of the gradients, in little room.

Its mean squares of a matrix, or of the biases of all depths, are kept as one number for each row and one for each
column, whose product has the same means along both (Shazeer and Stern 2018); those of a vector are kept as they
are. Its mean gradients are not kept: they are those of the last steps, and are made anew in as many, which are
shorter.
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
    square = kept["exp_avg_sq"].cpu()  # (M, …)
    step = {"step": kept["step"].cpu()}
    if square.dim() < 3:
        return {**step, "square": square}
    return {**step, "rows": square.mean(-1, keepdim=True), "columns": square.mean(-2, keepdim=True)}


def whole(optimizer: Mapping[str, Any], values: Sequence[Tensor]) -> dict[str, Any]:
    """What `small` made so, for an optimiser of `values`."""
    kept = optimizer["state"]
    if not kept.keys() <= set(range(len(values))):
        raise ValueError("its optimiser's memory is of another model")
    return {**optimizer, "state": {index: _whole(each, values[index]) for index, each in kept.items()}}


def _whole(kept: Mapping[str, Tensor], value: Tensor) -> dict[str, Tensor]:
    parts, shapes = [kept["square"]] if "square" in kept else [], [[*value.shape]]
    if not parts:
        parts = [kept["rows"], kept["columns"]]
        shapes = [[*value.shape[:-1], 1], [*value.shape[:-2], 1, value.size(-1)]]
    if [[*each.shape] for each in parts] != shapes:  # before room is taken for a product
        raise ValueError("its optimiser's memory does not fit the model of its recipe")
    if any(bool((each < 0).any()) for each in parts):  # of a member that has diverged it may be no number
        raise ValueError("its optimiser remembers squares that are negative")
    if kept["step"].numel() != 1 or not kept["step"] >= 0:
        raise ValueError("its optimiser does not know its step")
    square = parts[0]
    if len(parts) == 2:
        mean = square.mean(-2, keepdim=True)
        square = square / torch.where(mean == 0, 1.0, mean) * parts[1]
    return {"step": kept["step"], "exp_avg": torch.zeros_like(square), "exp_avg_sq": square}
