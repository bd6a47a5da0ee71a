"""The plain path: a Python loop over time, around the cell's own equations."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..cells import RecurrentCell
from ..cells.base import Constants


class Scan(NamedTuple):
    """A whole sequence through one cell. Rows lie as in a `PackedSequence`: N = sum(batch_sizes)."""

    out: Tensor  # (N, H)
    state: Tensor  # (B, S): of each sample's last step
    depth: Tensor  # (T, B) int64, 0 where a sample has ended
    cost: Tensor | None  # (T, B)


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
    """Runs `cell` over `x` (N, X) from `state` (B, S).

    `batch_sizes[t]` samples, the first ones, are still running at step t. The masks (B, X) and (B, H) are the
    dropout of the matrix products' inputs, the same at every step.
    """
    return steps(
        cell,
        cell.project(masked_rows(x, x_mask, batch_sizes)),
        batch_sizes,
        state,
        cell.constants(),
        max_depth=max_depth,
        reverse=reverse,
        h_mask=h_mask,
        with_cost=with_cost,
    )


def masked_rows(x: Tensor, mask: Tensor | None, batch_sizes: list[int]) -> Tensor:
    """The rows of a batch (N, X), each times its sample's mask (B, X)."""
    return x if mask is None else x * torch.cat([mask[:b] for b in batch_sizes])


def steps(
    cell: RecurrentCell,
    u: Tensor,
    batch_sizes: list[int],
    state: Tensor,
    constants: Constants,
    *,
    max_depth: int,
    reverse: bool,
    h_mask: Tensor | None,
    with_cost: bool,
) -> Scan:
    """The loop over time, from projected inputs `u` (N, ·)."""
    batch = batch_sizes[0]
    inputs = u.split(batch_sizes)
    outs: list[Tensor] = []
    depths: list[Tensor] = []
    costs: list[Tensor] = []
    times = range(len(batch_sizes))
    for t in reversed(times) if reverse else times:
        b = batch_sizes[t]
        step = cell.step(
            inputs[t],
            state[:b],
            max_depth=max_depth,
            constants=constants,
            h_mask=None if h_mask is None else h_mask[:b],
            with_cost=with_cost,
        )
        state = step.state if b == batch else torch.cat([step.state, state[b:]])
        outs.append(step.state[..., : cell.hidden_size])
        depths.append(F.pad(step.depth, (0, batch - b)))
        if step.cost is not None:
            costs.append(F.pad(step.cost, (0, batch - b)))
    if reverse:
        for collected in (outs, depths, costs):
            collected.reverse()
    return Scan(torch.cat(outs), state, torch.stack(depths), torch.stack(costs) if costs else None)


def states_before(out: Tensor, batch_sizes: list[int], first: Tensor, *, reverse: bool = False) -> Tensor:
    """The state each step started from, (N, H), given all states `out` (N, H) and the first ones (B, H)."""
    outs = out.split(batch_sizes)
    steps = range(len(batch_sizes))
    before: dict[int, Tensor] = {}
    previous, known = first, 0  # the first `known` rows of `previous` come from a step, the others start here
    for t in reversed(steps) if reverse else steps:
        b = batch_sizes[t]
        before[t] = torch.cat([previous[: min(b, known)], first[min(b, known) : b]])
        previous, known = outs[t], b
    return torch.cat([before[t] for t in steps])
