"""A cell over a whole sequence through the fused operator."""

from __future__ import annotations

from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from ..cells import EIREHNCell, RecurrentCell, RHNCell, SREHNCell
from ..cells.base import Constants
from .operator import Weights, recurrence
from .reference import Scan, masked_rows


def fused_scan(
    cell: RecurrentCell,
    x: Tensor,
    batch_sizes: list[int],
    state: Tensor,
    *,
    backend: str,
    max_depth: int,
    reverse: bool = False,
    x_mask: Tensor | None = None,
    h_mask: Tensor | None = None,
    with_cost: bool = False,
) -> Scan:
    """As `reference.scan`, in one operator call."""
    u = cell.project(masked_rows(x, x_mask, batch_sizes))
    weights = weights_of(cell, cell.constants())
    kind = cell.weight_update if isinstance(cell, EIREHNCell) else "none"
    mask = None if h_mask is None else h_mask[None]
    out, depth, cost = recurrence(
        u[None],
        state[None],
        mask,
        *(None if each is None else each[None] for each in weights),
        batch_sizes,
        kind,
        max_depth,
        reverse,
        backend,
    )
    last = final_rows(out[0], batch_sizes, reverse)
    return Scan(out[0], last, by_step(depth[0], batch_sizes), by_step(cost[0], batch_sizes) if with_cost else None)


def weights_of(cell: RecurrentCell, constants: Constants) -> Weights:
    """What the recurrence of `cell` depends on, besides its projected input."""
    if isinstance(cell, RHNCell):
        return Weights(cell.W_h, cell.b)
    assert isinstance(cell, SREHNCell)
    weights = Weights(cell.W_h, cell.b, cell.W_ah, constants.alpha, constants.beta)
    if constants.z is None:
        return weights
    assert isinstance(cell, EIREHNCell)
    gated = "P_bar" in cell._parameters
    return weights._replace(
        z1=constants.z,
        W_zs=torch.cat([cell.W_zh, cell.W_zg], -1),
        W_z=cell.W_z,
        b_z=cell.b_z,
        P=cell.P,
        P_bar=cell.P_bar if gated else None,
        b_bar=cell.b_bar if gated else None,
    )


def final_rows(out: Tensor, batch_sizes: list[int], reverse: bool) -> Tensor:
    """The state of each sample's last step, (B, H)."""
    batch = batch_sizes[0]
    if reverse:
        return out[:batch]
    if batch_sizes[-1] == batch:
        return out[-batch:]
    rows = [0] * batch
    for start, size in zip(accumulate(batch_sizes, initial=0), batch_sizes, strict=False):
        rows[:size] = range(start, start + size)
    return out.index_select(0, torch.tensor(rows, device=out.device))


def by_step(values: Tensor, batch_sizes: list[int]) -> Tensor:
    """(N,) as (T, B), 0 where a sample has ended."""
    batch = batch_sizes[0]
    if batch_sizes[-1] == batch:
        return values.reshape(len(batch_sizes), batch)
    return torch.stack([F.pad(row, (0, batch - row.size(0))) for row in values.split(batch_sizes)])
