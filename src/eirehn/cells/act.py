"""ACT: adaptive computation time (Graves 2016), which the elastic gate is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .._internal.checks import check_pair, finite, floating, one_of, positive_int
from .base import (
    Constants,
    RecurrentCell,
    Step,
    at_least_float32,
    default_bound,
    fill_uniform,
    product,
    stops_by_data,
)
from .lstm import one_bias

CELLS: dict[str, Callable[..., nn.RNNCellBase]] = {"RNN": nn.RNNCell, "GRU": nn.GRUCell, "LSTM": nn.LSTMCell}


class ACTCell(RecurrentCell):
    """Adaptive computation time (Graves 2016) around torch's RNN, GRU or LSTM cell S, with the interface of that
    cell.

    It takes inner steps `s^n = S(s^{n-1}, [x; [n=1]])` with halting probabilities `p^n = sigm(w_p h^n + b_p)`. `N`
    is the first n with `Σ p ≥ 1 − ε`, or `max_depth`; the last step has the weight that is left, the remainder
    `R = 1 − Σ_{n<N} p^n` in place of `p^N`. State and output are the means `Σ_n p^n s^n`; the ponder cost is
    `N + R`. For an LSTM the state is `[h; c]`, and the output is h alone.

    Args:
        input_size: features of the input.
        hidden_size: units of the cell.
        cell: `"RNN"`, `"GRU"` or `"LSTM"`. Default: `"LSTM"`.
        max_depth: most inner steps of a time step. Default: 10.
        epsilon: ε above, at least 0 and below 1. Default: 0.01.
        device: device of the parameters. Default: torch's default.
        dtype: floating point type of the parameters. Default: torch's default.

    Shape:
        - input: `(B, X)`, or `(X,)` unbatched, with X = `input_size`.
        - state: `(B, H)`, or `(H,)`, with H = `hidden_size`; for an LSTM a pair `(h, c)` of such tensors.
        - depth (int64) and cost: `(B,)`, or `()`.

    Examples:
        >>> cell = eirehn.ACTCell(9, 32, cell="LSTM")
        >>> (h, c), cost = cell(torch.randn(4, 9), return_cost=True)
        >>> h.shape, cost.shape
        (torch.Size([4, 32]), torch.Size([4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        cell: str = "LSTM",
        max_depth: int = 10,
        epsilon: float = 0.01,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        one_of("cell", cell, CELLS)
        hidden_size = positive_int("hidden_size", hidden_size)
        super().__init__(input_size, hidden_size, state_size=2 * hidden_size if cell == "LSTM" else hidden_size)
        self.max_depth = positive_int("max_depth", max_depth)
        self.epsilon = finite("epsilon", epsilon)
        if not 0 <= epsilon < 1:
            raise ValueError(f"epsilon must be in [0, 1), got {epsilon}")
        factory: dict[str, Any] = {"device": device, "dtype": floating(dtype)}
        self.kind = cell
        self.cell = one_bias(CELLS[cell](input_size + 1, hidden_size, **factory))
        self.w_p = nn.Parameter(torch.empty(1, hidden_size, **factory))
        self.b_p = nn.Parameter(torch.empty(1, **factory))
        self.reset_parameters()

    def reset_parameters(self, *, halting_bias: float = 1.0) -> None:
        """Draws all parameters anew, those of the inner cell as torch does.

        Args:
            halting_bias: initial `b_p`; a positive one makes the first training steps shallow. Default: 1.

        Examples:
            >>> eirehn.ACTCell(9, 32).reset_parameters(halting_bias=2.0)
        """
        finite("halting_bias", halting_bias)
        self.cell.reset_parameters()
        one_bias(self.cell)
        fill_uniform(default_bound(None, self.hidden_size), self.w_p)
        nn.init.constant_(self.b_p, halting_bias)

    def weight(self) -> Tensor:
        return self.w_p

    def project(self, x: Tensor, *, keep_half: bool = False) -> Tensor:
        W_x = self.cell.weight_ih[:, : self.input_size]
        return product(x, W_x, self.cell.bias_ih, keep_half=keep_half)  # (…, G·H)

    def transition(self, u: Tensor, state: Tensor, first: bool) -> Tensor:
        """`S(s, [x; flag])`, given the projected input `u`."""
        if first:
            u = u + self.cell.weight_ih[:, self.input_size]
        return TRANSITIONS[self.kind](u, state, self.cell.weight_hh, self.cell.bias_hh)

    def step(
        self, u: Tensor, h: Tensor, *, max_depth: int, constants: Constants, h_mask: Tensor | None = None
    ) -> Step:
        state, mean = h, torch.zeros_like(h)  # (B, S)
        spent = at_least_float32(torch.zeros_like(h[..., :1]))  # (B, 1): Σ p so far
        remainder = torch.zeros_like(spent)
        running = torch.ones_like(spent, dtype=torch.bool)
        depth = torch.zeros_like(spent[..., 0], dtype=torch.int64)  # (B,)
        for n in range(1, max_depth + 1):
            if n > 1 and stops_by_data(running) and not running.any():
                break
            state = self.transition(u, state, n == 1)
            p = torch.sigmoid(
                at_least_float32(product(state[..., : self.hidden_size], self.w_p, self.b_p))
            )  # (B, 1)
            # Written so that a NaN halts: the NaN then reaches the mean, and the sample stops.
            last = torch.ones_like(running) if n == max_depth else ~(spent + p < 1 - self.epsilon)
            weight = torch.where(last, 1 - spent, p)
            mean = torch.where(running, mean + weight.to(h.dtype) * state, mean)
            remainder = torch.where(running & last, weight, remainder)
            depth = depth + running[..., 0]
            spent = spent + p  # not used once a sample has halted
            running = running & ~last
        return Step(mean, depth, depth + remainder[..., 0])

    def state_parts(self, hx: Any) -> tuple[Tensor, ...]:
        return check_pair(hx) if self.kind == "LSTM" else (hx,)

    def forward(
        self,
        input: Tensor,
        hx: Any = None,
        *,
        max_depth: int | None = None,
        return_depth: bool = False,
        return_cost: bool = False,
    ) -> Any:
        """Takes one time step, as `nn.GRUCell` or, for an LSTM, `nn.LSTMCell` does.

        Args:
            input: the input of this time step.
            hx: the state before it, for an LSTM the pair `(h, c)`. Default: zeros.
            max_depth: most inner steps in this call. Default: the cell's own.
            return_depth: whether to return the number of inner steps taken, too. Default: `False`.
            return_cost: whether to return the ponder cost `N + R`, too. Default: `False`.

        Returns:
            The new state; with `return_depth` or `return_cost` a tuple of it and `depth`, `cost` or both, in this
            order.

        Shape:
            As the class says.

        Examples:
            >>> h, depth = eirehn.ACTCell(9, 32, cell="GRU")(torch.randn(4, 9), max_depth=3, return_depth=True)
            >>> h.shape, depth.shape
            (torch.Size([4, 32]), torch.Size([4]))
        """
        result = super().forward(input, hx, max_depth=max_depth, return_depth=return_depth, return_cost=return_cost)
        if self.kind != "LSTM":
            return result
        if isinstance(result, tuple):
            return (result[0].chunk(2, -1), *result[1:])
        return result.chunk(2, -1)

    if TYPE_CHECKING:
        __call__ = forward

    def extra_repr(self) -> str:
        return (
            f"{self.input_size}, {self.hidden_size}, cell={self.kind!r}, "
            f"max_depth={self.max_depth}, epsilon={self.epsilon:g}"
        )


def rnn(u: Tensor, h: Tensor, W_hh: Tensor, b_hh: Tensor) -> Tensor:
    return torch.tanh(u + product(h, W_hh, b_hh))


def gru(u: Tensor, h: Tensor, W_hh: Tensor, b_hh: Tensor) -> Tensor:
    u_r, u_z, u_n = u.chunk(3, -1)
    h_r, h_z, h_n = product(h, W_hh, b_hh).chunk(3, -1)
    r, z = torch.sigmoid(u_r + h_r), torch.sigmoid(u_z + h_z)
    return (1 - z) * torch.tanh(u_n + r * h_n) + z * h


def lstm(u: Tensor, state: Tensor, W_hh: Tensor, b_hh: Tensor) -> Tensor:
    h, c = state.chunk(2, -1)
    i, f, g, o = (u + product(h, W_hh, b_hh)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.cat([torch.sigmoid(o) * torch.tanh(c), c], -1)


# vmap has no rule for torch's LSTM cell, and a slow fallback for the others, so the equations are written out.
TRANSITIONS = {"RNN": rnn, "GRU": gru, "LSTM": lstm}
