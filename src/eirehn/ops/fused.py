"""A cell over a whole sequence through the fused operator."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..cells import EIREHNCell, RecurrentCell, RHNCell, SREHNCell
from ..cells.base import Constants, at_least_float32, traced, transformed
from . import implementations
from .implementations import is_large
from .operator import Weights, recurrence, recurrence_backward
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
    x = masked_rows(x, x_mask, batch_sizes)
    if backend == "cpu" and not traced(x):
        from .cpu.eager import Call, run

        own = cell._parameters  # asking the module for each takes longer, and is needed where they were replaced
        parameters = (own[name] if name in own else getattr(cell, name) for name in cell.parameter_names)
        out, depth, cost = run(
            Call(cell, batch_sizes, max_depth, reverse), x.to(state.dtype), state, h_mask, *parameters
        )
    else:
        out, depth, cost = _by_operator(cell, x, batch_sizes, state, h_mask, max_depth, reverse, backend)
    last = final_rows(out, batch_sizes, reverse)
    return Scan(out, last, by_step(depth, batch_sizes), by_step(cost, batch_sizes) if with_cost else None)


def _by_operator(
    cell: RecurrentCell,
    x: Tensor,
    batch_sizes: list[int],
    state: Tensor,
    h_mask: Tensor | None,
    max_depth: int,
    reverse: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """`out` (N, H), `depth` (N,) and `cost` (N,)."""
    mixed = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    half = x.is_cuda and mixed
    u = cell.project(x, keep_half=half)
    weights = weights_of(cell, cell.constants())
    kind = cell.weight_update if isinstance(cell, EIREHNCell) else "none"
    options = (batch_sizes, kind, max_depth, reverse, backend)
    if half:
        weights = halved(weights)
    # The kernels keep the state in float32, and want it so to start from: it is read again by the backward pass.
    first, mask = at_least_float32(state), None if h_mask is None else at_least_float32(h_mask)
    if not transformed():
        apply: Any = DirectRecurrence.apply  # torch leaves it untyped
        out, depth, cost = apply(options, u, first, mask, *weights)
    else:
        # One node of a traced graph, one call for all members under vmap.
        given = (None if each is None else each[None] for each in (u, first, mask, *weights))
        out, depth, cost = (each[0] for each in recurrence(*given, *options))
    return out.to(state.dtype), depth, cost


def halved(weights: Weights) -> Weights:
    """All but the gate's own in bfloat16, for products on tensor cores."""
    given = {name: each for name, each in weights._asdict().items() if each is not None}
    return weights._replace(
        **{name: each.bfloat16() for name, each in given.items() if name not in ("alpha", "beta")}
    )


class DirectRecurrence(torch.autograd.Function):
    """The operator called directly, for one model in eager mode: the registered one costs the host as much again as
    a small network takes, and cannot hand what a large one found on its way forward to the backward pass."""

    @staticmethod
    def forward(ctx: Any, options: Any, *tensors: Any) -> tuple[Tensor, Tensor, Tensor]:
        u, h0, mask, *weights = tensors
        kept: list[Any] | None = [] if is_large(h0.size(-1)) and any(ctx.needs_input_grad) else None
        out, depth, cost = implementations.forward(u, h0, mask, Weights(*weights), *options, kept=kept)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(depth)
        ctx.save_for_backward(*tensors, out)
        ctx.options, ctx.kept = options, kept
        return out, depth, cost

    @staticmethod
    def backward(ctx: Any, d_out: Tensor | None, _: None, d_cost: Tensor | None) -> tuple[Tensor | None, ...]:
        *tensors, out = ctx.saved_tensors
        if d_out is None:
            d_out = torch.zeros_like(out)
        u, h0, mask, *weights = tensors
        if torch.is_grad_enabled():  # somebody wants the gradient's own gradient: the operator has one
            whole = (None if each is None else each[None] for each in (*tensors, out, d_out, d_cost))
            found = iter([each[0] for each in recurrence_backward(*whole, *ctx.options)])
        else:
            found = iter(
                implementations.backward(
                    u, h0, mask, Weights(*weights), out, d_out, d_cost, *ctx.options, kept=ctx.kept
                )
            )
        gradients = [None if each is None else next(found) for each in (u, h0, *weights)]
        return None, gradients[0], gradients[1], None, *gradients[2:]


def weights_of(cell: RecurrentCell, constants: Constants) -> Weights:
    """What the recurrence of `cell` depends on, besides its projected input."""
    if isinstance(cell, RHNCell):
        return Weights(cell.W_h, cell.b)
    assert isinstance(cell, SREHNCell)
    weights = Weights(cell.W_h, cell.b, cell.W_ah, constants.alpha, constants.beta)
    if constants.z is None:
        return weights
    assert isinstance(cell, EIREHNCell)
    gated = "P_bar" in cell.parameter_names
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
