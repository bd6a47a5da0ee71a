"""RHN and SRHN: the recurrent highway network of Zilly et al. (2016), with weights of its own for each inner step,
or with one set of weights for all."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._internal.checks import finite, floating, positive_int
from .base import (
    Constants,
    RecurrentCell,
    Step,
    default_bound,
    fill_uniform,
    masked,
    product,
    residual_and_gate,
)

DEPTH = 5


def _inner_steps(name: str, depth: int | None, max_depth: int | None) -> int:
    """The number of inner steps, given under one of two names."""
    if max_depth is None:
        return DEPTH if depth is None else positive_int("depth", depth)
    if depth is not None:
        raise TypeError(f"{name}: max_depth is another name for depth; give one of them, not both")
    return positive_int("max_depth", max_depth)


class RHNCell(RecurrentCell):
    """Recurrent highway network (Zilly et al. 2016), with the interface of `nn.GRUCell`.

    For r = 1 … depth, `[s; t]^r = [tanh; sigm](W_h^r h^{r-1} + [r=1] W_x x + b^r)` and
    `h^r = t ⊗ s + (1−t) ⊗ h^{r-1}`: Eqs. 7 and 8 with the carry gate coupled, `c = 1 − t`, as the parameter counts
    of the paper imply. Rows 0 … H−1 of `W_h^r`, `W_x` and `b^r` are of the residual s, rows H … 2H−1 of the
    transform gate t.

    Args:
        input_size: features of the input.
        hidden_size: units.
        depth: inner steps of each time step. Default: 5.
        max_depth: another name for `depth`, as the other cells call it; give one of them.
        device: device of the parameters. Default: torch's default.
        dtype: floating point type of the parameters. Default: torch's default.

    Shape:
        - input: `(B, X)`, or `(X,)` unbatched, with X = `input_size`.
        - state: `(B, H)`, or `(H,)`, with H = `hidden_size`.
        - depth (int64) and cost: `(B,)`, or `()`; both are the number of inner steps.

    Examples:
        >>> cell = eirehn.RHNCell(9, 32, depth=3)
        >>> h = cell(torch.randn(4, 9))
        >>> h.shape
        torch.Size([4, 32])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        depth: int | None = None,
        max_depth: int | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.depth = self.max_depth = _inner_steps(type(self).__name__, depth, max_depth)
        factory: dict[str, Any] = {"device": device, "dtype": floating(dtype)}
        sets = self._weight_sets()
        self.W_h = nn.Parameter(torch.empty(*sets, 2 * hidden_size, hidden_size, **factory))
        self.W_x = nn.Parameter(torch.empty(2 * hidden_size, input_size, **factory))
        self.b = nn.Parameter(torch.empty(*sets, 2 * hidden_size, **factory))
        self.parameter_names = tuple(self._parameters)
        self.reset_parameters()

    def _weight_sets(self) -> tuple[int, ...]:
        return (self.depth,)

    def inner_weights(self, r: int) -> tuple[Tensor, Tensor]:
        """`W_h^r` (2H, H) and `b^r` (2H,)."""
        return self.W_h[r - 1], self.b[r - 1]

    def reset_parameters(self, *, weight_bound: float | None = None, gate_bias: float = -2.0) -> None:
        """Draws all parameters anew.

        Args:
            weight_bound: weights and biases are uniform within ± this. Default: `1/√hidden_size`.
            gate_bias: bias of the transform gate; a negative one makes the network keep its state. Default: −2.

        Examples:
            >>> eirehn.RHNCell(9, 32).reset_parameters(gate_bias=-1.0)
        """
        bound, bias = default_bound(weight_bound, self.hidden_size), finite("gate_bias", gate_bias)
        fill_uniform(bound, self.W_h, self.W_x, self.b)
        with torch.no_grad():
            self.b[..., self.hidden_size :] = bias

    def weight(self) -> Tensor:
        return self.W_x

    def resolve_depth(self, max_depth: int | None) -> int:
        """Fewer inner steps than `depth` are allowed; for more there are no trained weights."""
        if max_depth is None:
            return self.depth
        if positive_int("max_depth", max_depth) > self.depth:
            raise ValueError(f"max_depth must not exceed the network's depth of {self.depth}, got {max_depth}")
        return max_depth

    def project(self, x: Tensor, *, keep_half: bool = False) -> Tensor:
        return product(x, self.W_x, keep_half=keep_half)  # (…, 2H)

    def depth_cost(self, x: Tensor, h: Tensor, max_depth: int) -> Tensor:
        """The depth itself, a constant."""
        return h.new_full(h.shape[:-1], max_depth, dtype=torch.promote_types(h.dtype, torch.float32))

    def step(
        self, u: Tensor, h: Tensor, *, max_depth: int, constants: Constants, h_mask: Tensor | None = None
    ) -> Step:
        for r in range(1, max_depth + 1):
            W_h, b = self.inner_weights(r)
            pre = product(masked(h, h_mask), W_h, b)  # (B, 2H)
            s, t = residual_and_gate(pre + u if r == 1 else pre)  # (B, H) each
            h = t * s + (1 - t) * h
        return Step(h, torch.full(h.shape[:-1], max_depth, dtype=torch.int64, device=h.device))

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, depth={self.depth}"


class SRHNCell(RHNCell):
    """Recurrent highway network with one set of weights for all inner steps.

    For r = 1 … depth, `[s; t]^r = [tanh; sigm](W_h h^{r-1} + [r=1] W_x x + b)` and
    `h^r = t ⊗ s + (1−t) ⊗ h^{r-1}`.

    Args:
        input_size: features of the input.
        hidden_size: units.
        depth: inner steps of each time step. Default: 5.
        max_depth: another name for `depth`, as the other cells call it; give one of them.
        device: device of the parameters. Default: torch's default.
        dtype: floating point type of the parameters. Default: torch's default.

    Shape:
        - input: `(B, X)`, or `(X,)` unbatched, with X = `input_size`.
        - state: `(B, H)`, or `(H,)`, with H = `hidden_size`.
        - depth (int64) and cost: `(B,)`, or `()`; both are the number of inner steps.

    Examples:
        >>> cell = eirehn.SRHNCell(9, 32, depth=3)
        >>> h = cell(torch.randn(4, 9))
        >>> h.shape
        torch.Size([4, 32])
    """

    def _weight_sets(self) -> tuple[int, ...]:
        return ()

    def inner_weights(self, r: int) -> tuple[Tensor, Tensor]:
        return self.W_h, self.b
