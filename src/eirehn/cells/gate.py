"""The elastic gate, which decides how many inner steps a unit takes before it takes the first."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from .base import Constants, at_least_float32, stops_by_data

ALPHA_LIMIT = {torch.float32: 87.0, torch.float64: 708.0}  # e^(limit + 1) is still finite


def elastic_gate(alpha: Tensor, beta: Tensor, alpha_t: Tensor, r: int) -> Tensor:
    """The elastic gate at inner step r, Eq. 11 of the paper: `d^r = max(β + e^α − e^{(α+α_t) r}, 0)`.

    It falls with r and stays 0 once it is 0. It is computed as `max(β − e^α (e^v − 1), 0)` with
    `v = α (r−1) + α_t r`: since `e^α ≥ 1` and `β ≤ 1`, the gate is 0 if `v ≥ 1`, so `v` is clamped there. Nothing
    overflows, and no gradient is NaN.

    Args:
        alpha: global decay α > 0.
        beta: bias β of the gate, between 0 and 1.
        alpha_t: local decay α_t of this time step, between 0 and 1.
        r: the inner step, counted from 1.

    Returns:
        The gate, of at least single precision.

    Shape:
        - alpha and beta: `(H,)`.
        - alpha_t and the gate: `(B, H)`; or any shapes that broadcast.

    Examples:
        >>> alpha, beta, alpha_t = torch.tensor([0.25]), torch.tensor([0.95]), torch.tensor([[0.02]])
        >>> torch.cat([eirehn.elastic_gate(alpha, beta, alpha_t, r) for r in (1, 2, 3)], 1)
        tensor([[0.9241, 0.5180, 0.0000]])
    """
    alpha, beta, alpha_t = map(at_least_float32, (alpha, beta, alpha_t))
    alpha = alpha.clamp(max=ALPHA_LIMIT[alpha.dtype])
    v = ((r - 1) * alpha + r * alpha_t).clamp(max=1.0)
    return torch.relu(beta - torch.exp(alpha) * torch.expm1(v))


def global_decay(alpha_hat: Tensor, beta_hat: Tensor) -> tuple[Tensor, Tensor]:
    """`α = softplus(α̂)` and `β = sigm(β̂)`, Eqs. 13 and 12, at least in single precision: e^α overflows in half."""
    alpha_hat, beta_hat = at_least_float32(alpha_hat), at_least_float32(beta_hat)
    return F.softplus(alpha_hat), torch.sigmoid(beta_hat)


def depth_bound(alpha: Tensor, beta: Tensor) -> Tensor:
    """The paper's bound on the depth of a unit, Eq. 15: `⌊log(β + e^α) / α⌋`.

    No input makes a unit take more inner steps, except for rounding. It is infinite at α = 0.

    Args:
        alpha: global decay α ≥ 0.
        beta: bias β of the gate, between 0 and 1.

    Returns:
        Float64.

    Shape:
        - alpha, beta and the bound: `(H,)`, or any shapes that broadcast.

    Examples:
        >>> eirehn.depth_bound(torch.tensor([0.25, 0.05]), torch.tensor([0.95, 0.95]))
        tensor([ 3., 13.], dtype=torch.float64)
    """
    alpha, beta = alpha.double(), beta.double()
    return torch.floor(1.0 + torch.log1p(beta * torch.exp(-alpha)) / alpha)


def gate_root(alpha: Tensor, beta: Tensor, alpha_t: Tensor) -> Tensor:
    """`log(β + e^α) / (α + α_t)`: the gate is open at the inner steps r below it."""
    alpha, beta, alpha_t = map(at_least_float32, (alpha, beta, alpha_t))
    alpha = alpha.clamp(max=ALPHA_LIMIT[alpha.dtype])
    return (alpha + torch.log1p(beta * torch.exp(-alpha))) / (alpha + alpha_t).clamp(min=1e-6)


def depth_cost(root: Tensor, max_depth: int) -> Tensor:
    """The depth before rounding, from the largest `gate_root` of all units: the depth is `⌈cost⌉ − 1`. Where
    `max_depth` cuts a time step short it grows with the logarithm of the root, so that gradients stay modest."""
    limit = max_depth + 1
    return root.clamp(max=limit) + limit * torch.log1p(F.relu(root - limit) / limit)


def inverse_softplus(alpha: float) -> float:
    return alpha + math.log(-math.expm1(-alpha))


class ElasticSteps:
    """The inner steps of one time step: iterates over r = 1, 2, … while the gate of some unit is open, and counts.

    A gate that has closed stays closed. A NaN gate counts as open at r = 1, so that the NaN reaches the state, and
    as closed after.
    """

    def __init__(self, constants: Constants, alpha_t: Tensor) -> None:
        assert constants.alpha is not None
        assert constants.beta is not None
        self.alpha, self.beta = constants.alpha, constants.beta  # (H,)
        self.alpha_t = at_least_float32(alpha_t)  # (B, H)
        self.dtype = alpha_t.dtype
        self.open = torch.ones_like(self.alpha_t, dtype=torch.bool)  # (B, H)
        self.depth = torch.zeros_like(self.alpha_t[..., 0], dtype=torch.int64)  # (B,)

    def walk(self, max_depth: int) -> Iterator[tuple[int, Tensor]]:
        """Yields `r` and `d^r` (B, H)."""
        for r in range(1, max_depth + 1):
            d = elastic_gate(self.alpha, self.beta, self.alpha_t, r)
            self.open = (d > 0) | d.isnan() if r == 1 else self.open & (d > 0)
            # The first inner step is always computed, so that a batch of closed gates has gradients: zeros.
            if r > 1 and stops_by_data(d) and not self.open.any():
                return
            d = torch.where(self.open, d, 0.0)
            self.depth = self.depth + self.open.any(-1)
            yield r, d.to(self.dtype)
