"""The whole sequence as one torch operator, `eirehn::recurrence`: what torch.compile, export and vmap see.

All tensors have a leading axis E, the members of an ensemble (1 for one model); vmap folds its own axis into it.
Rows lie as in a `PackedSequence`: N = sum(batch_sizes), B = batch_sizes[0].

    u     (E, N, 3H)  what the input contributes: `W_x x`, then `W_ax x + b_a`; (E, N, 2H) at fixed depth
    h0    (E, B, H)
    mask  (E, B, H)   dropout of `h` in `W_h h` and `W_ah h`
    W_h (E, 2H, H) and b (E, 2H), with an axis of depths behind E where every inner step has its own;
    W_ah (E, H, H), alpha, beta (E, H): the elastic gate, none at fixed depth;
    z1 (E, Z), W_zs (E, Z, 2H), W_z (E, Z, Z), b_z (E, Z), P, P_bar (E, 2H, Z), b_bar (E, 2H): the hypernetwork

It returns `out` (E, N, H), `depth` (E, N) int64 and `cost` (E, N).
"""

# No postponed annotations here: torch reads an operator's schema off them.
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import implementations
from .unfused import unfused


class Weights(NamedTuple):
    """The parameters of the recurrence, or their gradients; None is what a system does not have."""

    W_h: Tensor
    b: Tensor
    W_ah: Tensor | None = None
    alpha: Tensor | None = None
    beta: Tensor | None = None
    z1: Tensor | None = None
    W_zs: Tensor | None = None
    W_z: Tensor | None = None
    b_z: Tensor | None = None
    P: Tensor | None = None
    P_bar: Tensor | None = None
    b_bar: Tensor | None = None


@torch.library.custom_op("eirehn::recurrence", mutates_args=())
def recurrence(
    u: Tensor,
    h0: Tensor,
    mask: Tensor | None,
    W_h: Tensor,
    b: Tensor,
    W_ah: Tensor | None,
    alpha: Tensor | None,
    beta: Tensor | None,
    z1: Tensor | None,
    W_zs: Tensor | None,
    W_z: Tensor | None,
    b_z: Tensor | None,
    P: Tensor | None,
    P_bar: Tensor | None,
    b_bar: Tensor | None,
    batch_sizes: Sequence[int],
    kind: str,
    max_depth: int,
    reverse: bool,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    weights = Weights(W_h, b, W_ah, alpha, beta, z1, W_zs, W_z, b_z, P, P_bar, b_bar)
    return implementations.forward(u, h0, mask, weights, batch_sizes, kind, max_depth, reverse, backend)


@torch.library.custom_op("eirehn::recurrence_backward", mutates_args=())
def recurrence_backward(
    u: Tensor,
    h0: Tensor,
    mask: Tensor | None,
    W_h: Tensor,
    b: Tensor,
    W_ah: Tensor | None,
    alpha: Tensor | None,
    beta: Tensor | None,
    z1: Tensor | None,
    W_zs: Tensor | None,
    W_z: Tensor | None,
    b_z: Tensor | None,
    P: Tensor | None,
    P_bar: Tensor | None,
    b_bar: Tensor | None,
    out: Tensor,
    d_out: Tensor,
    d_cost: Tensor | None,
    batch_sizes: Sequence[int],
    kind: str,
    max_depth: int,
    reverse: bool,
    backend: str,
) -> list[Tensor]:
    """The gradients of u, h0 and of each weight there is, in order."""
    weights = Weights(W_h, b, W_ah, alpha, beta, z1, W_zs, W_z, b_z, P, P_bar, b_bar)
    return implementations.backward(
        u, h0, mask, weights, out, d_out, d_cost, batch_sizes, kind, max_depth, reverse, backend
    )


TENSORS = 3 + len(Weights._fields)  # u, h0, mask and the weights come first in both operators


@recurrence.register_fake
def _(u: Tensor, h0: Tensor, mask: Any, W_h: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows = u.shape[:2]
    return (
        u.new_empty(*rows, h0.size(-1), dtype=h0.dtype),
        u.new_empty(rows, dtype=torch.int64),
        u.new_empty(rows, dtype=implementations.cost_dtype(h0)),
    )


@recurrence_backward.register_fake
def _(*arguments: Any) -> list[Tensor]:
    u, h0, _, *weights = arguments[:TENSORS]
    present = [each for each in (u, h0, *weights) if each is not None]
    return [torch.empty_like(each, memory_format=torch.contiguous_format) for each in present]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:TENSORS], output[0])
    ctx.options = inputs[TENSORS:]


def _differentiate(ctx: Any, d_out: Tensor | None, _: None, d_cost: Tensor | None) -> tuple[Any, ...]:
    *tensors, out = ctx.saved_tensors
    if d_out is None:
        d_out = torch.zeros_like(out)
    found = iter(recurrence_backward(*tensors, out, d_out, d_cost, *ctx.options))
    u, h0 = next(found), next(found)
    weights = (None if each is None else next(found) for each in tensors[3:])
    return (u, h0, None, *weights, *[None] * len(ctx.options))


recurrence.register_autograd(_differentiate, setup_context=_save)


def _save_backward(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[: TENSORS + 3])
    ctx.options = inputs[TENSORS + 3 :]


def _leaf(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.detach().requires_grad_()


def _differentiate_twice(ctx: Any, d_found: list[Tensor | None]) -> tuple[Any, ...]:
    """The gradient's own gradient, through the plain path: rare, and not worth a kernel."""
    *tensors, _, d_out, d_cost = ctx.saved_tensors
    batch_sizes, kind, max_depth, reverse, _ = ctx.options
    with torch.enable_grad():
        u, h0, mask, *weights = map(_leaf, tensors)
        tops = [_leaf(d_out), _leaf(d_cost)]
        out, _, cost = unfused(u, h0, mask, Weights(*weights), batch_sizes, kind, max_depth, reverse)
        below = [each for each in (u, h0, *weights) if each is not None]
        # At fixed depth the cost is a constant, whatever gradient comes in at it.
        above = [(y, d) for y, d in zip((out, cost), tops, strict=True) if d is not None and y.requires_grad]
        first = torch.autograd.grad(
            [y for y, _ in above], below, [d for _, d in above], create_graph=True, materialize_grads=True
        )
        wanted = [(f, d) for f, d in zip(first, d_found, strict=True) if d is not None and f.requires_grad]
        sources = [each for each in (*below, *tops) if each is not None]
        second = torch.autograd.grad([f for f, _ in wanted], sources, [d for _, d in wanted], allow_unused=True)
    found = iter(second)
    return (
        next(found),
        next(found),
        None,
        *(None if each is None else next(found) for each in tensors[3:]),
        None,  # `out` is a function of the others, and was differentiated as such
        *(None if each is None else next(found) for each in (d_out, d_cost)),
        *[None] * len(ctx.options),
    )


recurrence_backward.register_autograd(_differentiate_twice, setup_context=_save_backward)


def _fold(info: Any, dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """vmap's axis, in front of the ensemble axis of every tensor, made one with it."""
    folded: list[Any] = []
    for argument, dim in zip(arguments, dims, strict=True):
        if not isinstance(argument, Tensor):
            folded.append(argument)
        else:
            stacked = argument.expand(info.batch_size, *argument.shape) if dim is None else argument.movedim(dim, 0)
            folded.append(stacked.flatten(0, 1))
    return folded


@recurrence.register_vmap
def _(info: Any, dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    results = recurrence(*_fold(info, dims, arguments))
    return tuple(each.unflatten(0, (info.batch_size, -1)) for each in results), (0, 0, 0)


@recurrence_backward.register_vmap
def _(info: Any, dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    results = recurrence_backward(*_fold(info, dims, arguments))
    return [each.unflatten(0, (info.batch_size, -1)) for each in results], [0] * len(results)
