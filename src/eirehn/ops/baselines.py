"""The recurrences of torch's RNN and LSTM for what torch's own kernels do not do: run under vmap.

A whole sequence is one node of the graph. All tensors have a leading axis E, the members of an ensemble; vmap folds
its own axis into it. Rows lie as in a `PackedSequence`.

    u (E, N, G)   what the input contributes: `W_ih x + b`, G = H or, of an LSTM, 4H in torch's order i, f, g, o
    W (E, G, H)   the weights of `h`
    h0 and, of an LSTM, c0 (E, B, H)

They give all states: `h` and, of an LSTM, `c` (E, N, H).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .backend import differentiated_by_transform
from .fused import final_rows
from .reference import states_before

sigmoid_backward, tanh_backward = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


@dataclass(frozen=True)
class Order:
    """Which rows belong together, and in which order of time. No tuple: vmap would look at every number in it."""

    batch_sizes: list[int]
    reverse: bool


def recurrence(
    mode: str, u: Tensor, W: Tensor, first: tuple[Tensor, ...], order: Order
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """`h` of all steps (N, H) and the last state of each sample, each part (B, H); here without the axis E."""
    function = FUNCTIONS[mode]
    u, W, *state = (each.unsqueeze(0) for each in (u, W, *first))
    if differentiated_by_transform():
        states = by_steps(function.step, u, W, order, *state)
    else:
        states = function.apply(u, W, order, *state)[: len(first)]  # type: ignore[no-untyped-call]
    parts = [part.squeeze(0) for part in states]
    return parts[0], tuple(final_rows(part, order.batch_sizes, order.reverse) for part in parts)


def by_steps(
    step: Callable[..., tuple[Tensor, ...]], u: Tensor, W: Tensor, order: Order, *first: Tensor
) -> tuple[Tensor, ...]:
    """The equations in plain PyTorch."""
    state, steps = first, []
    for b, now in _in_time(order, u):
        before = tuple(part[:, :b] for part in state)
        steps.append(step(now + torch.bmm(before[0], W.mT).to(u.dtype), *before))
        state = tuple(_replaced(old, new, b) for old, new in zip(state, steps[-1], strict=True))
    if order.reverse:
        steps.reverse()
    return tuple(torch.cat(part, 1) for part in zip(*steps, strict=True))


def rnn_step(pre: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    return (torch.tanh(pre),)


def lstm_step(pre: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    i, f, g, o = pre.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


class _Recurrence(torch.autograd.Function):
    """What the two have in common. Besides the states, `forward` gives what the backward pass needs."""

    step: Callable[..., tuple[Tensor, ...]]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        u, W, ctx.order, *first = inputs
        ctx.given = 2 + len(first)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[len(first) :])
        ctx.save_for_backward(u, W, *first, *output)

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        def fold(given: Any, dim: int | None) -> Any:
            if not isinstance(given, Tensor):
                return given
            given = given.expand(info.batch_size, *given.shape) if dim is None else given.movedim(dim, 0)
            return given.flatten(0, 1)

        folded = [fold(given, dim) for given, dim in zip(inputs, in_dims, strict=True)]
        found = cls.apply(*folded)  # type: ignore[no-untyped-call]
        return tuple(each.unflatten(0, (info.batch_size, -1)) for each in found), (0,) * len(found)

    @classmethod
    def again(cls, ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients as functions that can be differentiated once more."""
        u, W, *first = ctx.saved_tensors[: ctx.given]
        states = by_steps(cls.step, u, W, ctx.order, *first)
        known = [(part, grad) for part, grad in zip(states, gradients, strict=False) if grad is not None]
        given = [(each, needed) for each, needed in zip((u, W, None, *first), ctx.needs_input_grad, strict=True)]
        found = iter(
            torch.autograd.grad(
                [part for part, _ in known],
                [each for each, needed in given if each is not None and needed],
                [grad for _, grad in known],
                create_graph=True,
            )
        )
        return tuple(next(found) if needed else None for _, needed in given)


class RNNRecurrence(_Recurrence):
    step = staticmethod(rnn_step)

    @staticmethod
    def forward(u: Tensor, W: Tensor, order: Order, h0: Tensor) -> tuple[Tensor, ...]:
        states, weight, h = u.clone(memory_format=torch.contiguous_format), W.mT, h0
        for b, now in _in_time(order, states):
            now.baddbmm_(h[:, :b], weight).tanh_()
            h = _replaced(h, now, b)
        return (states,)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            return RNNRecurrence.again(ctx, *gradients)
        _, W, h0, states = ctx.saved_tensors
        slope = 1 - states * states
        # What reaches each step directly; the rest comes back through time.
        d_u = torch.zeros_like(states) if gradients[0] is None else gradients[0] * slope
        d_h = torch.zeros_like(h0)
        for b, d_now, rate in _in_time(ctx.order, d_u, slope, backwards=True):
            d_now.addcmul_(d_h[:, :b], rate)
            d_h = _replaced(d_h, torch.bmm(d_now, W), b)
        return d_u, torch.bmm(d_u.mT, _before(ctx.order, states, h0)), None, d_h


class LSTMRecurrence(_Recurrence):
    step = staticmethod(lstm_step)

    @staticmethod
    def forward(u: Tensor, W: Tensor, order: Order, h0: Tensor, c0: Tensor) -> tuple[Tensor, ...]:
        hidden, weight, h, c = W.size(2), W.mT, h0, c0
        gates = u.clone(memory_format=torch.contiguous_format)
        out, cells, squashed = (u.new_empty(*u.shape[:2], hidden) for _ in range(3))  # h, c, tanh(c)
        parts = (gates, gates[..., : 2 * hidden], *gates.chunk(4, -1), out, cells, squashed)
        for b, now, i_and_f, i, f, g, o, h_now, c_now, tanh_c in _in_time(order, *parts):
            now.baddbmm_(h[:, :b], weight)
            i_and_f.sigmoid_()
            g.tanh_()
            o.sigmoid_()
            torch.mul(f, c[:, :b], out=c_now).addcmul_(i, g)
            torch.mul(o, torch.tanh(c_now, out=tanh_c), out=h_now)
            h, c = _replaced(h, h_now, b), _replaced(c, c_now, b)
        return out, cells, gates, squashed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            return LSTMRecurrence.again(ctx, *gradients)
        _, W, h0, c0, out, cells, gates, squashed = ctx.saved_tensors
        i, f, g, o = gates.chunk(4, -1)
        # How each pre-activation moves c and, the last, h; and how c moves h.
        slopes = torch.empty_like(gates)
        to_i, to_f, to_g, to_o = slopes.chunk(4, -1)
        sigmoid_backward.grad_input(g, i, grad_input=to_i)  # g i (1 - i)
        sigmoid_backward.grad_input(_before(ctx.order, cells, c0), f, grad_input=to_f)
        tanh_backward.grad_input(i, g, grad_input=to_g)  # i (1 - g²)
        sigmoid_backward.grad_input(squashed, o, grad_input=to_o)
        through = tanh_backward(o, squashed)
        # What reaches h and c of each step directly; the rest comes back through time.
        d_out, d_cells = (
            torch.zeros_like(out) if grad is None else grad.clone(memory_format=torch.contiguous_format)
            for grad in gradients[:2]
        )
        d_u = torch.empty_like(slopes)
        by_gate = [each.unflatten(-1, (4, -1)) for each in (slopes, d_u)]  # (E, N, 4, H)
        parts = (d_out, d_cells, through, *(each[:, :, k] for k in (slice(3), 3) for each in by_gate), d_u, f)
        d_h, d_c = torch.zeros_like(h0), torch.zeros_like(c0)
        for b, d_h_now, d_c_now, rate, slopes_c, d_u_c, slope_h, d_u_h, d_now, kept in _in_time(
            ctx.order, *parts, backwards=True
        ):
            d_h_now.add_(d_h[:, :b])
            d_c_now.add_(d_c[:, :b]).addcmul_(d_h_now, rate)
            torch.mul(slopes_c, d_c_now.unsqueeze(2), out=d_u_c)
            torch.mul(slope_h, d_h_now, out=d_u_h)
            d_h = _replaced(d_h, torch.bmm(d_now, W), b)
            d_c = _replaced(d_c, d_c_now.mul_(kept), b)
        return d_u, torch.bmm(d_u.mT, _before(ctx.order, out, h0)), None, d_h, d_c


FUNCTIONS: dict[str, type[_Recurrence]] = {"RNN_TANH": RNNRecurrence, "LSTM": LSTMRecurrence}


def _in_time(order: Order, *parts: Tensor, backwards: bool = False) -> Iterator[tuple[Any, ...]]:
    """Of each step the number of samples and its rows of all parts (E, N, …), in the order in which the recurrence
    takes the steps, or the opposite."""
    sizes = order.batch_sizes
    steps = list(zip(sizes, *(part.split(sizes, 1) for part in parts), strict=True))
    return iter(steps[::-1] if order.reverse != backwards else steps)


def _replaced(state: Tensor, first: Tensor, b: int) -> Tensor:
    """`state` (E, B, H) with its first `b` samples replaced."""
    return first if b == state.size(1) else torch.cat([first, state[:, b:]], 1)


def _before(order: Order, states: Tensor, first: Tensor) -> Tensor:
    """What each step started from, (E, N, H)."""
    sizes, batch = order.batch_sizes, first.size(1)
    if sizes[-1] < batch:
        return states_before(states.movedim(1, 0), sizes, first.movedim(1, 0), reverse=order.reverse).movedim(0, 1)
    shifted = (states[:, batch:], first) if order.reverse else (first, states[:, : states.size(1) - batch])
    return torch.cat(shifted, 1)
