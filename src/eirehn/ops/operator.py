"""A whole sequence as one torch operator, `eirehn::recurrence`, and how a cell calls it.

All tensors have a leading axis E, the members of an ensemble (1 for one model); vmap folds its own axis into it.
Rows lie as in a `PackedSequence`: N = sum(batch_sizes), B = batch_sizes[0].

    u     (E, N, 3H)  what the input contributes: `W_x x`, then `W_ax x + b_a`; (E, N, 2H) at fixed depth
    h0    (E, B, H)
    mask  (E, B, H)   dropout of `h` in `W_h h` and `W_ah h`
    and the weights as in `Weights`

It returns `out` (E, N, H) and `depth` (E, N) int64.
"""

# No postponed annotations here: torch reads an operator's schema off them.
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch._C._functorch import _add_batch_dim, _unwrap_batched, is_legacy_batchedtensor
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

from ..cells import EIREHNCell, RecurrentCell
from ..cells.base import at_least_float32, traced, transformed
from . import dispatch, kernels
from .reference import Scan, masked_rows, unfused
from .weights import Arguments, Weights, halved, weights_of

if TYPE_CHECKING:
    from .cpu.call import CellCall


def fused_scan(
    backend: str,
    cell: RecurrentCell,
    x: Tensor,
    batch_sizes: list[int],
    state: Tensor,
    max_depth: int,
    reverse: bool,
    x_mask: Tensor | None,
    h_mask: Tensor | None,
) -> Scan:
    """As `reference.scan`, by the kernels of `backend`, as one node of the autograd graph."""
    x = masked_rows(x, x_mask, batch_sizes)
    if backend == "cpu" and not traced(x):
        from .cpu.call import CellCall

        own = cell._parameters  # faster than getattr, which is needed only if they were replaced
        parameters = (own[name] if name in own else getattr(cell, name) for name in cell.parameter_names)
        call = CellCall(cell, batch_sizes, max_depth, reverse)
        out, depth = _over_members(call, (x.to(state.dtype), state, h_mask, *parameters))
    else:
        kind = cell.weight_update if isinstance(cell, EIREHNCell) else "none"
        options = (batch_sizes, kind, max_depth, reverse, backend)
        out, depth = _projected(cell, x, state, h_mask, options)
    return Scan(out, final_rows(out, batch_sizes, reverse), depth)


def _projected(
    cell: RecurrentCell, x: Tensor, state: Tensor, h_mask: Tensor | None, options: tuple[Any, ...]
) -> tuple[Tensor, Tensor]:
    """`out` (N, H) and `depth` (N,), the input projected by torch."""
    half = dispatch.runs_in_half(x)
    u = cell.project(x, keep_half=half)
    weights = weights_of(cell, cell.constants())
    if half:
        weights = halved(weights)
    # The kernels keep the state in float32; the backward pass reads the initial state again.
    first, mask = at_least_float32(state), None if h_mask is None else at_least_float32(h_mask)
    if not transformed() and not traced(x):
        out, depth = run(KernelCall(options), u, first, mask, *weights)
    else:
        # One node of a traced graph, one call for all members under vmap.
        out, depth = (each[0] for each in recurrence(*_as_ensemble((u, first, mask, *weights)), *options))
    return out.to(state.dtype), depth


def _over_members(call: "CellCall", tensors: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
    """`run`; under vmap all members of an ensemble in one call.

    This does by hand what the vmap rule of an autograd function does, which would take 0.4 ms.
    """
    if torch._C._functorch.maybe_current_level() is None:
        return run(call, *tensors)
    interpreter: Any = retrieve_current_functorch_interpreter()
    level, members = interpreter.level(), interpreter.batch_size()
    pairs = [(None, None) if each is None else _unwrap_batched(each, level) for each in tensors]
    with interpreter.lower():
        if all(dim is None for _, dim in pairs):
            return _over_members(call, tensors)
        stacked = [_stacked(each, dim, members) for each, dim in pairs]
        if call.members is None:
            results = _over_members(call.of(members), stacked)
        else:  # one vmap inside another: both axes become one
            folded = [None if each is None else each.flatten(0, 1) for each in stacked]
            whole = _over_members(call.of(members * call.members), folded)
            results = tuple(each.unflatten(0, (members, call.members)) for each in whole)
    out, depth = (_add_batch_dim(each, 0, level) for each in results)
    return out, depth


def final_rows(out: Tensor, batch_sizes: list[int], reverse: bool) -> Tensor:
    """The state after the last step of each sample, (B, H)."""
    batch = batch_sizes[0]
    if reverse:
        return out[:batch]
    if batch_sizes[-1] == batch:
        return out[-batch:]
    rows = [0] * batch
    for start, size in zip(accumulate(batch_sizes, initial=0), batch_sizes, strict=False):
        rows[:size] = range(start, start + size)
    return out.index_select(0, torch.tensor(rows, device=out.device))


_TENSORS = "Tensor u, Tensor h0, Tensor? mask, " + ", ".join(
    f"{'Tensor?' if name in Weights._field_defaults else 'Tensor'} {name}" for name in Weights._fields
)
_OPTIONS = "SymInt[] batch_sizes, str kind, SymInt max_depth, bool reverse, str backend"
TENSORS = 3 + len(Weights._fields)  # u, h0, mask and the weights come first in both operators


def _arguments(tensors: Iterable[Any], options: Iterable[Any]) -> Arguments:
    u, h0, mask, *weights = tensors
    return Arguments(u, h0, mask, Weights(*weights), *options)


@torch.library.custom_op(
    "eirehn::recurrence", mutates_args=(), schema=f"({_TENSORS}, {_OPTIONS}) -> (Tensor, Tensor)"
)
def recurrence(u: Tensor, h0: Tensor, mask: Tensor | None, *rest: Any) -> tuple[Tensor, ...]:
    return kernels.forward(_arguments((u, h0, mask, *rest[: TENSORS - 3]), rest[TENSORS - 3 :]))[:2]


@torch.library.custom_op(
    "eirehn::recurrence_backward",
    mutates_args=(),
    schema=f"({_TENSORS}, Tensor out, Tensor d_out, {_OPTIONS}) -> Tensor[]",
)
def recurrence_backward(*given: Any) -> list[Tensor]:
    """The gradients of u, h0 and of each weight that is not None, in order."""
    return kernels.backward(_arguments(given[:TENSORS], given[TENSORS + 2 :]), *given[TENSORS : TENSORS + 2])


@recurrence.register_fake
def _(u: Tensor, h0: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    rows = u.shape[:2]
    return u.new_empty(*rows, h0.size(-1), dtype=h0.dtype), u.new_empty(rows, dtype=torch.int64)


@recurrence_backward.register_fake
def _(*arguments: Any) -> list[Tensor]:
    u, h0, _, *weights = arguments[:TENSORS]
    present = [each for each in (u, h0, *weights) if each is not None]
    return [torch.empty_like(each, memory_format=torch.contiguous_format) for each in present]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:TENSORS], output[0])
    ctx.options = inputs[TENSORS:]


def _differentiate(ctx: Any, d_out: Tensor, _: Any) -> tuple[Any, ...]:
    *tensors, out = ctx.saved_tensors
    found = recurrence_backward(*tensors, out, d_out, *ctx.options)
    return (*_in_place(tensors, found), *[None] * len(ctx.options))


recurrence.register_autograd(_differentiate, setup_context=_save)


def _save_backward(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[: TENSORS + 2])
    ctx.options = inputs[TENSORS + 2 :]


def _leaf(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.detach().requires_grad_()


def _differentiate_twice(ctx: Any, d_found: list[Tensor | None]) -> tuple[Any, ...]:
    """The gradient of the gradient, by the plain path: it is rare, and not worth a kernel."""
    *tensors, _, d_out = ctx.saved_tensors
    with torch.enable_grad():
        given = _arguments(map(_leaf, tensors), ctx.options)
        top = _leaf(d_out)
        out, _ = unfused(given)
        below = [each for each in (given.u, given.h0, *given.weights) if each is not None]
        first = torch.autograd.grad(out, below, top, create_graph=True, materialize_grads=True)
        wanted = [(f, d) for f, d in zip(first, d_found, strict=True) if d is not None and f.requires_grad]
        second = torch.autograd.grad(
            [f for f, _ in wanted], (*below, top), [d for _, d in wanted], allow_unused=True
        )
    found = iter(second)
    return (
        next(found),
        next(found),
        None,
        *(None if each is None else next(found) for each in tensors[3:]),
        None,  # `out` is a function of the others, and was differentiated as such
        next(found),
        *[None] * len(ctx.options),
    )


recurrence_backward.register_autograd(_differentiate_twice, setup_context=_save_backward)


def _fold(info: Any, dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """Merges the axis of vmap into the ensemble axis of every tensor."""
    folded: list[Any] = []
    for argument, dim in zip(arguments, dims, strict=True):
        if not isinstance(argument, Tensor):
            folded.append(argument)
        else:
            stacked = _stacked(argument, dim, info.batch_size)
            assert stacked is not None
            folded.append(stacked.flatten(0, 1))
    return folded


@recurrence.register_vmap
def _(info: Any, dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    results = recurrence(*_fold(info, dims, arguments))
    return tuple(each.unflatten(0, (info.batch_size, -1)) for each in results), (0, 0)


@recurrence_backward.register_vmap
def _(info: Any, dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    results = recurrence_backward(*_fold(info, dims, arguments))
    return [each.unflatten(0, (info.batch_size, -1)) for each in results], [0] * len(results)


class Call(Protocol):
    """A call of the recurrence without its tensors, which are the input, h0, the mask or None, and all weights."""

    def forward(self, tensors: Sequence[Any], *, backward_follows: bool) -> tuple[Sequence[Tensor], Any]:
        """`out` (N, H) and `depth` (N,), and what `backward` needs to keep."""

    def backward(
        self, kept: Any, tensors: Sequence[Any], out: Tensor, d_out: Tensor, *, with_x: bool
    ) -> Sequence[Tensor | None]:
        """The gradients of `tensors`."""

    def differentiable(self, tensors: Sequence[Any], out: Tensor, d_out: Tensor) -> Sequence[Tensor | None]:
        """As `backward`, as differentiable functions of everything."""


def run(call: Call, *tensors: Tensor | None) -> tuple[Tensor, Tensor]:
    """A call as one node of the autograd graph."""
    if torch.is_grad_enabled():
        out, depth = EagerRecurrence.apply(call, *tensors)  # type: ignore[no-untyped-call]  # torch's own
    else:
        (out, depth), _ = call.forward(tensors, backward_follows=False)
    return out, depth


class EagerRecurrence(torch.autograd.Function):
    """The operator's autograd definition once more, for calls that are not traced: the overhead of torch.library
    matters for small networks, and it cannot pass on what the forward pass of a large network on a GPU kept.

    EIREHN with 20 units on a CPU: forward and backward of 20 samples and 20 time steps take 1.18 ms by the operator
    and 0.75 ms by this, one time step of a stream 134 µs and 42 µs."""

    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: Any) -> tuple[Tensor, Tensor]:
        (out, depth), ctx.kept = call.forward(tensors, backward_follows=any(ctx.needs_input_grad))
        ctx.mark_non_differentiable(depth)
        ctx.save_for_backward(*tensors, out)
        ctx.call = call
        return out, depth

    @staticmethod
    def backward(ctx: Any, d_out: Tensor, _: Any) -> tuple[Tensor | None, ...]:
        *tensors, out = ctx.saved_tensors
        if is_legacy_batchedtensor(d_out):
            raise RuntimeError(
                "the fused recurrences take one gradient at a time, not is_grads_batched=True (nor "
                'vectorize=True): use torch.func.jacrev, or eirehn.use_backend("reference")'
            )
        if torch.is_grad_enabled():  # with create_graph=True
            return None, *ctx.call.differentiable(tensors, out, d_out)
        return None, *ctx.call.backward(ctx.kept, tensors, out, d_out, with_x=ctx.needs_input_grad[1])


class KernelCall:
    """A call of the operator for one model, without torch.library."""

    def __init__(self, options: tuple[Any, ...]) -> None:
        self.options = options

    def forward(self, tensors: Sequence[Any], *, backward_follows: bool) -> tuple[Sequence[Tensor], Any]:
        given = _arguments(_as_ensemble(tensors), self.options)
        keep = backward_follows and dispatch.is_large(given.h0.size(-1))
        *results, kept = kernels.forward(given, keep=keep)
        return [each[0] for each in results], kept

    def backward(
        self, kept: Any, tensors: Sequence[Any], out: Tensor, d_out: Tensor, *, with_x: bool
    ) -> list[Tensor | None]:
        arguments = _arguments(_as_ensemble(tensors), self.options)
        found = kernels.backward(arguments, out[None], d_out[None], saved=kept)
        return _in_place(tensors, [each[0] for each in found])

    def differentiable(self, tensors: Sequence[Any], out: Tensor, d_out: Tensor) -> list[Tensor | None]:
        found = recurrence_backward(*_as_ensemble((*tensors, out, d_out)), *self.options)
        return _in_place(tensors, [each[0] for each in found])


def _as_ensemble(tensors: Sequence[Tensor | None]) -> list[Any]:
    """The tensors with an ensemble axis of size 1."""
    return [None if each is None else each[None] for each in tensors]


def _in_place(tensors: Sequence[Tensor | None], found: Sequence[Tensor]) -> list[Tensor | None]:
    """The gradients at the places of their tensors, with None for the mask and for weights that are None."""
    rest = iter(found)
    return [None if index == 2 or each is None else next(rest) for index, each in enumerate(tensors)]


def _stacked(tensor: Tensor | None, dim: int | None, members: int) -> Tensor | None:
    """`tensor` with the ensemble axis in front."""
    if tensor is None or dim == 0:
        return tensor
    return tensor.expand(members, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
