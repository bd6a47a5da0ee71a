"""The plain path: a Python loop over time around the equations of the cell. The kernels are tested against it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..cells import EIREHNCell, RecurrentCell, RHNCell, SREHNCell, SRHNCell
from ..cells.base import Constants
from .weights import Arguments, Weights


class Scan(NamedTuple):
    """The result of a cell for whole sequences, in rows as in a `PackedSequence`: N = sum(batch_sizes).

    While a program is exported there are no `batch_sizes`, as T may be symbolic, and (N,) is (T, B)."""

    out: Tensor  # (N, H)
    state: Tensor  # (B, S): after the last step of each sample
    depth: Tensor  # (N,) int64
    cost: Tensor | None = None  # (N,), as in `Step`


def scan(
    cell: RecurrentCell,
    x: Tensor,
    batch_sizes: list[int],
    state: Tensor,
    max_depth: int,
    reverse: bool = False,
    x_mask: Tensor | None = None,
    h_mask: Tensor | None = None,
) -> Scan:
    """Runs `cell` over `x` (N, X) from `state` (B, S).

    The first `batch_sizes[t]` samples are still running at step t. The masks (B, X) and (B, H) are dropout on the
    inputs of the matrix products, the same at every step.
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
    )


def masked_rows(x: Tensor, mask: Tensor | None, batch_sizes: list[int] | None) -> Tensor:
    """The rows of a batch (N, X), each multiplied by the mask of its sample (B, X)."""
    if mask is None:
        return x
    return x * (mask if batch_sizes is None else torch.cat([mask[:b] for b in batch_sizes]))


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
        )
        state = step.state if b == batch else torch.cat([step.state, state[b:]])
        outs.append(step.state[..., : cell.hidden_size])
        depths.append(step.depth)
        if step.cost is not None:
            costs.append(step.cost)
    if reverse:
        for collected in (outs, depths, costs):
            collected.reverse()
    return Scan(torch.cat(outs), state, torch.cat(depths), torch.cat(costs) if costs else None)


def states_before(out: Tensor, batch_sizes: list[int] | None, first: Tensor, *, reverse: bool = False) -> Tensor:
    """The state before each step, (N, H), given all states `out` (N, H) and the initial ones (B, H)."""
    if batch_sizes is None:
        return torch.cat([out, first[None]])[1:] if reverse else torch.cat([first[None], out])[:-1]
    batch, steps = batch_sizes[0], range(len(batch_sizes))
    if batch_sizes[-1] == batch:
        return torch.cat([out[batch:], first] if reverse else [first, out[:-batch]])
    outs = out.split(batch_sizes)
    before: dict[int, Tensor] = {}
    previous, known = first, 0  # the first `known` rows of `previous` come from a step, the others start here
    for t in reversed(steps) if reverse else steps:
        b = batch_sizes[t]
        before[t] = torch.cat([previous[: min(b, known)], first[min(b, known) : b]])
        previous, known = outs[t], b
    return torch.cat([before[t] for t in steps])


def unfused(given: Arguments) -> tuple[Tensor, Tensor]:
    """As `eirehn::recurrence`, by the equations of the cells, one ensemble member after the other."""
    members = []
    for e in range(given.u.size(0)):
        own: list[Any] = [
            None if each is None else each[e] for each in (given.u, given.h0, given.mask, *given.weights)
        ]
        members.append(_member(given._replace(u=own[0], h0=own[1], mask=own[2], weights=Weights(*own[3:]))))
    out, depth = zip(*members, strict=True)
    return torch.stack(out), torch.stack(depth)


def _member(given: Arguments) -> tuple[Tensor, Tensor]:
    u, h0, mask, weights, _, kind, max_depth, reverse, _ = given
    batch_sizes, hidden = list(given.batch_sizes), h0.size(-1)
    names = ("W_h", "b", "W_ah", "W_z", "b_z", "P", "P_bar", "b_bar")
    parameters = {name: getattr(weights, name) for name in names}
    if weights.W_zs is not None:
        parameters["W_zh"], parameters["W_zg"] = weights.W_zs.chunk(2, -1)
    cell: RecurrentCell
    if weights.W_ah is None:
        sort, depth = (RHNCell, weights.W_h.size(0)) if weights.W_h.dim() == 3 else (SRHNCell, max_depth)
        cell = sort(1, hidden, depth=depth, device="meta")
    elif weights.z1 is None:
        cell = SREHNCell(1, hidden, device="meta")
    else:
        cell = EIREHNCell(1, hidden, hyper_size=weights.z1.size(-1), weight_update=kind, device="meta")
    own = {f"cell.{name}": value for name, value in parameters.items() if value is not None}
    options = {"max_depth": max_depth, "reverse": reverse, "h_mask": mask}
    constants = Constants(weights.alpha, weights.beta, weights.z1)
    scan: Scan = torch.func.functional_call(Frame(cell), own, (steps, u, batch_sizes, h0, constants), options)
    return scan.out, scan.depth


class Frame(nn.Module):
    """A cell for `torch.func.functional_call`, which replaces its weights."""

    def __init__(self, cell: RecurrentCell) -> None:
        super().__init__()
        self.cell = copy.copy(cell)  # a dictionary of its own, so that the caller's parameters are not replaced
        self.cell._parameters = dict(cell._parameters)

    def forward(self, function: Callable[..., Scan], *arguments: Any, **options: Any) -> Scan:
        return function(self.cell, *arguments, **options)
