"""What every cell shares: the contract with the layers, and small pieces of arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._internal.checks import check_cell_input, check_cell_state, finite, positive_int


class Step(NamedTuple):
    """The result of one time step."""

    state: Tensor  # (B, S)
    depth: Tensor  # (B,) int64: inner steps taken by each sample
    cost: Tensor | None = None  # (B,): the cost of depth, where it is a result of the step itself


class Constants(NamedTuple):
    """What is the same for all samples and time steps of a call; None for what a system does not have."""

    alpha: Tensor | None = None  # (H,): global decay
    beta: Tensor | None = None  # (H,): bias of the elastic gate
    z: Tensor | None = None  # (Z,): state of the hypernetwork at the first inner step


class RecurrentCell(nn.Module):
    """Base class of the cells: one time step of a recurrent network, in several inner steps.

    A subclass implements `project`, the part of a step that depends on the input alone and so can be computed for
    all time steps at once, `step`, the transition of the state, and `depth_cost`, unless `step` returns the cost.

    Args:
        input_size: features of the input.
        hidden_size: units.
        state_size: size of the state if it holds more than the output, as an LSTM's `[h; c]`. Default:
            `hidden_size`.

    Examples:
        >>> from eirehn.cells import RecurrentCell
        >>> isinstance(eirehn.EIREHNCell(9, 32), RecurrentCell)
        True
    """

    reset_parameters: Callable[..., None]
    parameter_names: tuple[str, ...] = ()
    max_depth: int

    def __init__(self, input_size: int, hidden_size: int, *, state_size: int | None = None) -> None:
        super().__init__()
        self.input_size = positive_int("input_size", input_size)
        self.hidden_size = positive_int("hidden_size", hidden_size)
        self.state_size = hidden_size if state_size is None else state_size

    def project(self, x: Tensor, *, keep_half: bool = False) -> Tensor:
        """The part of a step that depends on the input alone; `keep_half` as in `product`."""
        raise NotImplementedError

    def constants(self) -> Constants:
        return Constants()

    def step(
        self, u: Tensor, h: Tensor, *, max_depth: int, constants: Constants, h_mask: Tensor | None = None
    ) -> Step:
        raise NotImplementedError

    def depth_cost(self, x: Tensor, h: Tensor, max_depth: int) -> Tensor:
        """The differentiable cost of depth (…,) at inputs `x` (…, X) and the states `h` (…, H) before them."""
        raise NotImplementedError

    def resolve_depth(self, max_depth: int | None) -> int:
        """The number of inner steps allowed in this call."""
        return self.max_depth if max_depth is None else positive_int("max_depth", max_depth)

    def weight(self) -> Tensor:
        """A parameter whose dtype and device are those of the cell."""
        raise NotImplementedError

    def state_parts(self, hx: Any) -> tuple[Tensor, ...]:
        """The tensors of a caller's state, each of hidden size."""
        if isinstance(hx, tuple):
            raise TypeError(f"hx should be a Tensor, got: tuple; {type(self).__name__} has no cell state")
        return (hx,)

    def initial_state(self, batch: int) -> Tensor:
        weight = self.weight()
        return torch.zeros(batch, self.state_size, dtype=weight.dtype, device=weight.device)

    def __prepare_scriptable__(self) -> NoReturn:  # torch.jit.script calls it first
        no_script(self)

    @overload
    def forward(
        self,
        input: Tensor,
        hx: Tensor | None = None,
        *,
        max_depth: int | None = None,
        return_depth: Literal[False] = False,
        return_cost: Literal[False] = False,
    ) -> Tensor: ...
    @overload
    def forward(
        self,
        input: Tensor,
        hx: Tensor | None = None,
        *,
        max_depth: int | None = None,
        return_depth: Literal[True],
        return_cost: Literal[False] = False,
    ) -> tuple[Tensor, Tensor]: ...
    @overload
    def forward(
        self,
        input: Tensor,
        hx: Tensor | None = None,
        *,
        max_depth: int | None = None,
        return_depth: Literal[False] = False,
        return_cost: Literal[True],
    ) -> tuple[Tensor, Tensor]: ...
    @overload
    def forward(
        self,
        input: Tensor,
        hx: Tensor | None = None,
        *,
        max_depth: int | None = None,
        return_depth: Literal[True],
        return_cost: Literal[True],
    ) -> tuple[Tensor, Tensor, Tensor]: ...
    @overload
    def forward(
        self,
        input: Tensor,
        hx: Tensor | None = None,
        *,
        max_depth: int | None = None,
        return_depth: bool = False,
        return_cost: bool = False,
    ) -> Tensor | tuple[Tensor, ...]: ...
    def forward(
        self,
        input: Tensor,
        hx: Any = None,
        *,
        max_depth: int | None = None,
        return_depth: bool = False,
        return_cost: bool = False,
    ) -> Any:
        """Takes one time step, as `nn.GRUCell` does.

        Args:
            input: the input of this time step.
            hx: the state before it. Default: zeros.
            max_depth: most inner steps in this call, in place of the cell's own; a cell of fixed depth takes at
                most that depth. Default: the cell's own.
            return_depth: whether to return the number of inner steps taken, too. Default: `False`.
            return_cost: whether to return the cost of depth, too, see `RecurrentLayer.forward`. Default: `False`.

        Returns:
            The new state; with `return_depth` or `return_cost` a tuple of it and `depth`, `cost` or both, in this
            order.

        Shape:
            - input: `(B, X)`, or `(X,)` unbatched, with X = `input_size`.
            - hx and the new state: `(B, H)`, or `(H,)`, with H = `hidden_size`.
            - depth (int64) and cost: `(B,)`, or `()`.

        Examples:
            >>> cell = eirehn.EIREHNCell(9, 32)
            >>> h = torch.zeros(4, 32)
            >>> for x in torch.randn(12, 4, 9):
            ...     h, depth = cell(x, h, return_depth=True)
            >>> h.shape, depth.shape
            (torch.Size([4, 32]), torch.Size([4]))
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
        step = self.step(self.project(x), h, max_depth=most, constants=self.constants())
        batched = input.dim() == 2
        state, depth = (step.state, step.depth) if batched else (step.state[0], step.depth[0])
        results: list[Tensor] = [state]
        if return_depth:
            results.append(depth)
        if return_cost:
            cost = self.depth_cost(x, h, most) if step.cost is None else step.cost
            results.append(cost if batched else cost[0])
        return results[0] if len(results) == 1 else tuple(results)

    if TYPE_CHECKING:  # a call has the types of `forward`
        __call__ = forward


def no_script(module: nn.Module) -> NoReturn:
    raise TypeError(f"{type(module).__name__} does not support torch.jit.script: use torch.export.export")


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, keep_half: bool = False) -> Tensor:
    """`W x + b`, in the dtype of the weights: under autocast only the product runs in half precision. With
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
    """Whether a graph is being traced, or `tensor` has a shape but no values."""
    if torch.compiler.is_compiling() or torch.jit._trace.is_tracing():
        return True
    return type(tensor) is not Tensor or tensor.is_meta


def transformed() -> bool:
    """Whether a graph is being traced, or a function transform (vmap, grad, jvp, …) is active."""
    if torch.compiler.is_compiling() or torch.jit._trace.is_tracing():
        return True
    return torch._C._functorch.maybe_current_level() is not None


def stops_by_data(tensor: Tensor) -> bool:
    """Whether a loop may stop early by the values of `tensor`: not while a graph is traced or captured, not under a
    function transform, and not if there are no values."""
    if transformed() or traced(tensor):
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def fill_uniform(bound: float, *parameters: Tensor) -> None:
    for parameter in parameters:
        nn.init.uniform_(parameter, -bound, bound)


def default_bound(bound: float | None, hidden_size: int) -> float:
    """The bound of the uniform initialisation: by default that of torch's recurrent layers, `1/√H`."""
    if bound is None:
        return 1.0 / math.sqrt(hidden_size)
    return finite("weight_bound", bound, above=0.0)
