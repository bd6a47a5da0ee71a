"""SREHN: the recurrent highway network with shared weights and the elastic gate in place of a fixed depth."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .._internal.checks import finite, floating, positive_int
from .base import (
    Constants,
    RecurrentCell,
    Step,
    at_least_float32,
    default_bound,
    fill_uniform,
    masked,
    product,
    residual_and_gate,
)
from .gate import ElasticSteps, depth_bound, depth_cost, elastic_gate, gate_root, global_decay, inverse_softplus


class SREHNCell(RecurrentCell):
    """Recurrent highway network with shared weights and the elastic gate, with the interface of `nn.GRUCell`.

    For r = 1, 2, … until every `d^r` is zero or r = max_depth,
    `[s; ĝ]^r = [tanh; sigm](W_h h^{r-1} + [r=1] W_x x + b)`, `g^r = d^r ⊗ ĝ^r` and
    `h^r = g^r ⊗ s^r + (1−g^r) ⊗ h^{r-1}`. `d^r` is the elastic gate (`elastic_gate`) of `α = softplus(α̂)`,
    `β = sigm(β̂)` and the local decay `α_t = sigm(W_ah h[t-1] + W_ax x + b_a)`. Rows 0 … H−1 of `W_h`, `W_x` and
    `b` are of the residual s, rows H … 2H−1 of the residual gate ĝ.

    Args:
        input_size: features of the input.
        hidden_size: units.
        max_depth: most inner steps of a time step. Default: 10.
        device: device of the parameters. Default: torch's default.
        dtype: floating point type of the parameters. Default: torch's default.

    Shape:
        - input: `(B, X)`, or `(X,)` unbatched, with X = `input_size`.
        - state: `(B, H)`, or `(H,)`, with H = `hidden_size`.
        - depth (int64) and cost: `(B,)`, or `()`.

    Examples:
        >>> cell = eirehn.SREHNCell(9, 32)
        >>> h, depth = cell(torch.randn(4, 9), return_depth=True)
        >>> h.shape, depth.shape
        (torch.Size([4, 32]), torch.Size([4]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        max_depth: int = 10,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.max_depth = positive_int("max_depth", max_depth)
        factory: dict[str, Any] = {"device": device, "dtype": floating(dtype)}
        self.W_h = nn.Parameter(torch.empty(2 * hidden_size, hidden_size, **factory))
        self.W_x = nn.Parameter(torch.empty(2 * hidden_size, input_size, **factory))
        self.b = nn.Parameter(torch.empty(2 * hidden_size, **factory))
        self.W_ah = nn.Parameter(torch.empty(hidden_size, hidden_size, **factory))
        self.W_ax = nn.Parameter(torch.empty(hidden_size, input_size, **factory))
        self.b_a = nn.Parameter(torch.empty(hidden_size, **factory))
        self.alpha_hat = nn.Parameter(torch.empty(hidden_size, **factory))
        self.beta_hat = nn.Parameter(torch.empty(hidden_size, **factory))
        self.parameter_names = tuple(self._parameters)
        SREHNCell.reset_parameters(self)  # a subclass initialises what it adds itself

    def reset_parameters(
        self,
        *,
        weight_bound: float | None = None,
        gate_bias: float = -1.0,
        alpha: float = 0.1,
        beta_hat: float = 3.0,
        decay_bias: float = -1.8,
        decay_scale: float = 1.0,
        input_scale: float = 1.0,
        gate_scale: float = 1.0,
    ) -> None:
        """Draws all parameters anew, by default such that training is stable whatever `max_depth` is.

        A time step replaces a share `Σ_r d^r ĝ^r` of the state, so memory and gradients shrink or grow
        exponentially in time steps times inner steps. By default the elastic gates fall fast (0.78, 0.44, 0.00) and
        the residual gates are a quarter open, so that this share is 0.21 for one inner step and 0.33 for any larger
        number. More than half of the decay comes from the input and the state, so depth depends on them from the
        start. The network begins with three to four inner steps, and takes more if training lowers α or α_t.

        Args:
            weight_bound: weights and biases without a value of their own are uniform within ± this. Default:
                `1/√hidden_size`.
            gate_bias: bias of the residual gate ĝ. Default: −1.
            alpha: global decay α, after its softplus. A small one, such as 0.05, opens many inner steps at once and
                is less stable. Default: 0.1.
            beta_hat: β̂, before its sigmoid. Default: 3.
            decay_bias: `b_a`. Near 0 it makes `α_t` one half, which closes the gate after one inner step; a very
                negative value leaves the depth to α alone, the same for every input. Default: −1.8.
            decay_scale: factor on the uniform initialisation of `W_ah` and `W_ax`. Default: 1.
            input_scale: factor on that of `W_x`. A large one makes the network react strongly to small inputs.
                Default: 1.
            gate_scale: factor on that of the rows of `W_h` of the residual gate. Default: 1.

        Examples:
            >>> eirehn.SREHNCell(9, 32).reset_parameters(gate_bias=-2.0, alpha=0.1)
        """
        bound = default_bound(weight_bound, self.hidden_size)
        for name, scale in (("decay_scale", decay_scale), ("input_scale", input_scale), ("gate_scale", gate_scale)):
            finite(name, scale, least=0.0)
        alpha_hat = inverse_softplus(finite("alpha", alpha, above=0.0))
        for name, value in (("gate_bias", gate_bias), ("beta_hat", beta_hat), ("decay_bias", decay_bias)):
            finite(name, value)
        fill_uniform(bound, self.W_h, self.W_x, self.b)
        fill_uniform(bound * decay_scale, self.W_ah, self.W_ax)
        with torch.no_grad():
            self.W_x.mul_(input_scale)
            self.W_h[self.hidden_size :].mul_(gate_scale)
            self.b[self.hidden_size :] = gate_bias
            self.b_a.fill_(decay_bias)
            self.alpha_hat.fill_(alpha_hat)
            self.beta_hat.fill_(beta_hat)

    def weight(self) -> Tensor:
        return self.W_x

    def depth_bound(self) -> Tensor:
        """The paper's bound on the depth of each unit, see `depth_bound`.

        Returns:
            Float64 of shape `(hidden_size,)`.

        Examples:
            >>> eirehn.SREHNCell(9, 4).depth_bound()
            tensor([7., 7., 7., 7.], dtype=torch.float64)
        """
        return depth_bound(*global_decay(self.alpha_hat.detach(), self.beta_hat.detach()))

    def project(self, x: Tensor, *, keep_half: bool = False) -> Tensor:
        """`W_x x` and `W_ax x + b_a`, concatenated."""
        parts = [product(x, self.W_x, keep_half=keep_half), product(x, self.W_ax, self.b_a, keep_half=keep_half)]
        return torch.cat(parts, -1)  # (…, 3H)

    def local_decay(self, u: Tensor, h: Tensor, h_mask: Tensor | None = None) -> Tensor:
        """`α_t`, Eq. 14, from the projected input and the state before this time step."""
        u_a = u[..., 2 * self.hidden_size :]
        return torch.sigmoid(product(masked(h, h_mask), self.W_ah) + u_a)  # (B, H)

    def first_gate(self, u: Tensor, h: Tensor) -> Tensor:
        """`d^1`, which is zero for a unit that keeps its value in this time step."""
        return elastic_gate(*global_decay(self.alpha_hat, self.beta_hat), self.local_decay(u, h), 1)

    def depth_cost(self, x: Tensor, h: Tensor, max_depth: int) -> Tensor:
        """The depth before rounding at inputs `x` (…, X) and states `h` (…, H) before the time step, (…,)."""
        alpha, beta = global_decay(self.alpha_hat, self.beta_hat)
        with torch.no_grad():
            alpha_t = torch.sigmoid(product(h, self.W_ah) + product(x, self.W_ax, self.b_a))  # (…, H)
            unit = gate_root(alpha, beta, alpha_t).argmax(-1)  # the deepest one, which alone has a gradient
        inputs = ((h, self.W_ah), (x, self.W_ax))
        own = sum(((at_least_float32(each) * weight[unit]).sum(-1) for each, weight in inputs), self.b_a[unit])
        return depth_cost(gate_root(alpha[unit], beta[unit], torch.sigmoid(own)), max_depth)

    def constants(self) -> Constants:
        return Constants(*global_decay(self.alpha_hat, self.beta_hat))

    def step(
        self, u: Tensor, h: Tensor, *, max_depth: int, constants: Constants, h_mask: Tensor | None = None
    ) -> Step:
        u_x = u[..., : 2 * self.hidden_size]
        steps = ElasticSteps(constants, self.local_decay(u, h, h_mask))
        for r, d in steps.walk(max_depth):
            pre = product(masked(h, h_mask), self.W_h, self.b)  # (B, 2H)
            s, g_hat = residual_and_gate(pre + u_x if r == 1 else pre)  # (B, H) each
            g = d * g_hat
            h = torch.where(steps.open, g * s + (1 - g) * h, h)  # a closed unit keeps its bits
        return Step(h, steps.depth)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, max_depth={self.max_depth}"
