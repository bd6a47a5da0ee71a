"""Recurrences over whole sequences, each by the fastest implementation that can serve."""

from __future__ import annotations

from torch import Tensor

from ..cells import RecurrentCell
from . import reference
from .backend import backend_for, use_backend
from .reference import Scan, states_before

__all__ = ["Scan", "scan", "states_before", "use_backend"]


def scan(
    cell: RecurrentCell,
    x: Tensor,
    batch_sizes: list[int],
    state: Tensor,
    *,
    max_depth: int,
    reverse: bool = False,
    x_mask: Tensor | None = None,
    h_mask: Tensor | None = None,
    with_cost: bool = False,
) -> Scan:
    """Runs `cell` over `x`, see `reference.scan`, by the implementation that `backend_for` names."""
    backend = backend_for(cell, x, one_sample=batch_sizes[0] == 1 and h_mask is None)
    if backend == "reference":
        return reference.scan(
            cell,
            x,
            batch_sizes,
            state,
            max_depth=max_depth,
            reverse=reverse,
            x_mask=x_mask,
            h_mask=h_mask,
            with_cost=with_cost,
        )
    from .fused import fused_scan

    return fused_scan(
        cell,
        x,
        batch_sizes,
        state,
        backend=backend,
        max_depth=max_depth,
        reverse=reverse,
        x_mask=x_mask,
        h_mask=h_mask,
        with_cost=with_cost,
    )
