"""What every cell shares: the contract with the layers, and small pieces of arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._internal.checks import check_cell_input, check_cell_state, finite, positive_int


class Step(NamedTuple):
    """What one time step gives back."""

    state: Tensor  # (B, S)
    depth: Tensor  # (B,) int64: inner steps taken by each sample
    cost: Tensor | None  # (B,): the cost of depth, where it was asked for


class Constants(NamedTuple):
    """What is the same for all samples and time steps of one call; each system fills in what it has."""

    alpha: Tensor | None = None  # (H,): global decay
    beta: Tensor | None = None  # (H,): bias of the elastic gate
    z: Tensor | None = None  # (Z,): first state of the hypernetwork


class RecurrentCell(nn.Module):
    """One time step of a recurrent network that takes several inner steps.

    A subclass gives `project`, what the input contributes (for all time steps at once), and `step`, the
    transition itself. A layer asks for the `constants` once a call.
    """

    reset_parameters: Callable[..., None]
    parameter_names: tuple[str, ...] = ()
    max_depth: int
    depth_cost: Callable[..., Tensor] | None = None
    """Where an elastic gate decides the depth: the differentiable cost of it, in place of `Step.cost`."""

    def __init__(self, input_size: int, hidden_size: int, *, state_size: int | None = None) -> None:
        super().__init__()
        self.input_size = positive_int("input_size", input_size)
        self.hidden_size = positive_int("hidden_size", hidden_size)
        # Wider than hidden_size where the state holds more than the output: the LSTM inside ACT.
        self.state_size = hidden_size if state_size is None else state_size

    def project(self, x: Tensor, *, keep_half: bool = False) -> Tensor:
        """What the input contributes; `keep_half` as in `product`."""
        raise NotImplementedError

    def constants(self) -> Constants:
        return Constants()

    def step(
        self,
        u: Tensor,
        h: Tensor,
        *,
        max_depth: int,
        constants: Constants,
        h_mask: Tensor | None = None,
        with_cost: bool = False,
    ) -> Step:
        raise NotImplementedError

    def resolve_depth(self, max_depth: int | None) -> int:
        """The number of inner steps allowed in this call."""
        return self.max_depth if max_depth is None else positive_int("max_depth", max_depth)

    def weight(self) -> Tensor:
        """A parameter whose dtype and device are those of the cell."""
        raise NotImplementedError

    def state_parts(self, hx: Any) -> tuple[Tensor, ...]:
        """What a caller's state consists of, each part of hidden size."""
        return (hx,)

    def initial_state(self, batch: int) -> Tensor:
        weight = self.weight()
        return torch.zeros(batch, self.state_size, dtype=weight.dtype, device=weight.device)

    def forward(
        self,
        input: Tensor,
        hx: Tensor | None = None,
        *,
        max_depth: int | None = None,
        return_depth: bool = False,
        return_cost: bool = False,
    ) -> Any:
        """One time step, as with `nn.GRUCell`: `input` is (B, X) or (X,), `hx` and the result (B, H) or (H,).

        `return_depth` and `return_cost` append a tensor of shape (B,) or () each.
        """
        name = type(self).__name__
        check_cell_input(name, input, self.input_size, self.weight())
        x = input if input.dim() == 2 else input.unsqueeze(0)  # (B, X)
        if hx is None:
            h = self.initial_state(x.size(0))
        else:
            parts = self.state_parts(hx)
            for part in parts:
                check_cell_state(name, part, input, self.hidden_size, self.weight())
            h = torch.cat(parts, -1).to(self.weight().dtype).reshape(-1, self.state_size)  # (B, S)
        most = self.resolve_depth(max_depth)
        step = self.step(
            self.project(x),
            h,
            max_depth=most,
            constants=self.constants(),
            with_cost=return_cost,
        )
        batched = input.dim() == 2
        state, depth = (step.state, step.depth) if batched else (step.state[0], step.depth[0])
        results: list[Tensor] = [state]
        if return_depth:
            results.append(depth)
        if step.cost is not None:
            cost = self.depth_cost(x, h, most) if self.depth_cost is not None else step.cost
            results.append(cost if batched else cost[0])
        return results[0] if len(results) == 1 else tuple(results)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, keep_half: bool = False) -> Tensor:
    """`W x + b`. Under autocast only the product runs in half precision; the state keeps the weights' dtype. With
    `keep_half` the result stays in half precision."""
    y = F.linear(x, weight, bias)
    return y if keep_half else y.to(weight.dtype)


def masked(h: Tensor, mask: Tensor | None) -> Tensor:
    return h if mask is None else h * mask


def residual_and_gate(pre: Tensor) -> tuple[Tensor, Tensor]:
    """`s = tanh(·)` from the first half of the stacked pre-activations, `ĝ = sigm(·)` from the second."""
    s, g = pre.chunk(2, -1)
    return torch.tanh(s), torch.sigmoid(g)


def at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def traced(tensor: Tensor) -> bool:
    """Whether a graph is made here, or shapes alone are worked out: `tensor` has no values."""
    if torch.compiler.is_compiling() or torch.jit._trace.is_tracing():
        return True
    return type(tensor) is not Tensor or tensor.is_meta


def transformed() -> bool:
    """Whether a graph is traced here, or a function transform (vmap, grad, jvp, …) is at work."""
    if torch.compiler.is_compiling() or torch.jit._trace.is_tracing():
        return True
    return torch._C._functorch.maybe_current_level() is not None


def stops_by_data(tensor: Tensor) -> bool:
    """Whether Python may look at the values of `tensor` to leave a loop early.

    It may not while a graph is traced or captured, under a function transform, and where there are no values.
    """
    if transformed() or traced(tensor):
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def fill_uniform(bound: float, *parameters: Tensor) -> None:
    for parameter in parameters:
        nn.init.uniform_(parameter, -bound, bound)


def default_bound(bound: float | None, hidden_size: int) -> float:
    """torch's own initialisation of recurrent weights, unless the caller names another bound."""
    if bound is None:
        return 1.0 / math.sqrt(hidden_size)
    return finite("weight_bound", bound, above=0.0)
