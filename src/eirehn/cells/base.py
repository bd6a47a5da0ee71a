"""What every cell shares: the contract with the layers, and small pieces of arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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

    def __init__(self, input_size: int, hidden_size: int, *, state_size: int | None = None) -> None:
        super().__init__()
        self.input_size = positive_int("input_size", input_size)
        self.hidden_size = positive_int("hidden_size", hidden_size)
        # Wider than hidden_size where the state holds more than the output: the LSTM inside ACT.
        self.state_size = hidden_size if state_size is None else state_size

    def project(self, x: Tensor) -> Tensor:
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
        raise NotImplementedError

    def weight(self) -> Tensor:
        """A parameter whose dtype and device are those of the cell."""
        return next(self.parameters())

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
            check_cell_state(name, hx, input, self.state_size)
            h = hx.to(self.weight().dtype).reshape(-1, self.state_size)  # (B, S)
        step = self.step(
            self.project(x),
            h,
            max_depth=self.resolve_depth(max_depth),
            constants=self.constants(),
            with_cost=return_cost,
        )
        batched = input.dim() == 2
        state, depth = (step.state, step.depth) if batched else (step.state[0], step.depth[0])
        results: list[Tensor] = [state]
        if return_depth:
            results.append(depth)
        if step.cost is not None:
            results.append(step.cost if batched else step.cost[0])
        return results[0] if len(results) == 1 else tuple(results)


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`W x + b`. Under autocast only the product runs in half precision; the state keeps the weights' dtype."""
    return F.linear(x, weight, bias).to(weight.dtype)


def masked(h: Tensor, mask: Tensor | None) -> Tensor:
    return h if mask is None else h * mask


def residual_and_gate(pre: Tensor) -> tuple[Tensor, Tensor]:
    """`s = tanh(·)` from the first half of the stacked pre-activations, `ĝ = sigm(·)` from the second."""
    s, g = pre.chunk(2, -1)
    return torch.tanh(s), torch.sigmoid(g)


def stops_by_data(tensor: Tensor) -> bool:
    """Whether Python may look at the values of `tensor` to leave a loop early.

    It may not while a graph is traced or captured, under a function transform, and where there are no values.
    """
    if torch.compiler.is_compiling() or torch.jit._trace.is_tracing():
        return False
    if torch._C._functorch.maybe_current_level() is not None:  # inside vmap, grad, jvp, …
        return False
    if type(tensor) is not Tensor or tensor.is_meta:
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def fill_uniform(bound: float, *parameters: Tensor) -> None:
    for parameter in parameters:
        nn.init.uniform_(parameter, -bound, bound)


def default_bound(bound: float | None, hidden_size: int) -> float:
    """torch's own start for recurrent weights, unless the caller names another."""
    if bound is None:
        return 1.0 / math.sqrt(hidden_size)
    return finite("weight_bound", bound, above=0.0)


def positive_int(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
    if value <= 0:
        raise ValueError(f"{name} must be greater than zero, got {value}")
    return value


def finite(name: str, value: float, *, above: float | None = None) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{name} should be a number, got: {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    if above is not None and value <= above:
        raise ValueError(f"{name} must be greater than {above:g}, got {value}")
    return float(value)


def floating(dtype: torch.dtype | None) -> torch.dtype | None:
    if dtype is not None and not dtype.is_floating_point:
        raise ValueError(f"dtype must be a floating point type, got {dtype}")
    return dtype


def check_dtype(input: Tensor, weight: Tensor) -> None:
    if input.dtype == weight.dtype:
        return
    if input.is_floating_point() and torch.is_autocast_enabled(input.device.type):
        return
    raise ValueError(
        f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
        f"Convert input: input.to({weight.dtype}), or convert model: model.to({input.dtype})"
    )


def check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} should be a Tensor, got: {type(value).__name__}")


def check_cell_input(name: str, input: Tensor, input_size: int, weight: Tensor) -> None:
    check_tensor("input", input)
    if input.dim() not in (1, 2):
        raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
    if input.size(-1) != input_size:
        raise ValueError(f"input.size(-1) must be equal to input_size. Expected {input_size}, got {input.size(-1)}")
    check_dtype(input, weight)


def check_cell_state(name: str, hx: Tensor, input: Tensor, state_size: int) -> None:
    check_tensor("hx", hx)
    expected = (*input.shape[:-1], state_size)
    if tuple(hx.shape) != expected:
        raise ValueError(f"{name}: Expected hidden size {expected}, got {list(hx.shape)}")
