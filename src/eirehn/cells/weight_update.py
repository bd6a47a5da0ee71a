"""How the hypernetwork's state z^r changes `W h` from one inner step to the next.

The weight matrix is never built per sample: every change is diagonal (or of rank one), so `W^r h` is the shared
product `W h` and element-wise operations. Each update below takes

    Wh  (B, 2H)  the shared product `W h^{r-1}`, of the residual, then of the residual gate
    hh  (B, 2H)  `h^{r-1}` twice
    z   (B, Z)   the hypernetwork's state `z^r`

and returns the changed product, `Ŵ^r h^{r-1}`. It keeps what it needs from r to r+1; there is a new one for every
time step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .base import product

if TYPE_CHECKING:
    from .eirehn import EIREHNCell


class WeightUpdate:
    """Base class. The cell has the parameters that `projections` names, which map z to the change, and `P̄` and
    `b̄` if it is `gated`."""

    projections: tuple[str, ...] = ("P",)
    gated = True

    def __init__(self, cell: EIREHNCell) -> None:
        self.cell = cell
        self.a: Tensor | float = 1.0  # factor on W, in the updates that scale it
        self.c: Tensor | float = 0.0  # the sum of the diagonal changes so far

    def __call__(self, Wh: Tensor, hh: Tensor, z: Tensor) -> Tensor:
        raise NotImplementedError

    def change(self, z: Tensor) -> Tensor:
        """`w^r = P z^r`, Eq. 19."""
        return product(z, self.cell.P)

    def gate(self, z: Tensor) -> Tensor:
        """`ḡ^r`, Eq. 21."""
        return torch.sigmoid(product(z, self.cell.P_bar, self.cell.b_bar))


class Additive(WeightUpdate):
    """Eq. 17 alone: `W^r = W^{r-1} + diag(w^r)`, so `W^r h = W h + c^r ⊗ h` with `c^r = c^{r-1} + w^r`."""

    gated = False

    def __call__(self, Wh: Tensor, hh: Tensor, z: Tensor) -> Tensor:
        self.c = self.c + self.change(z)
        return Wh + self.c * hh


class Scaling(WeightUpdate):
    """After Ha et al. (2016): `W^r = diag(1 + P z^r) W`."""

    gated = False

    def __call__(self, Wh: Tensor, hh: Tensor, z: Tensor) -> Tensor:
        return (1 + self.change(z)) * Wh


class Paper(WeightUpdate):
    """Eq. 22 over Eq. 17: `ḡ ⊗ (W^{r-1} h) + (1−ḡ) ⊗ w^r ⊗ h` with `W^{r-1} = W + diag(c^{r-1})`."""

    def __call__(self, Wh: Tensor, hh: Tensor, z: Tensor) -> Tensor:
        w, g_bar = self.change(z), self.gate(z)
        changed = g_bar * (Wh + self.c * hh) + (1 - g_bar) * w * hh
        self.c = self.c + w
        return changed


class Recursive(WeightUpdate):
    """Eq. 22 as the update itself: `W^r = ḡ ⊗ W^{r-1} + (1−ḡ) ⊗ diag(w^r)`, that is `diag(a^r) W + diag(c^r)`."""

    def __call__(self, Wh: Tensor, hh: Tensor, z: Tensor) -> Tensor:
        w, g_bar = self.change(z), self.gate(z)
        self.a = g_bar * self.a
        self.c = g_bar * self.c + (1 - g_bar) * w
        return self.a * Wh + self.c * hh


class Bounded(Recursive):
    """`Recursive` with a change of at most 1, `w^r = tanh(P z^r)`. Then `c`, the feedback of a unit to itself, is
    at most 1, too, so that feedback alone cannot make a unit's value grow."""

    def change(self, z: Tensor) -> Tensor:
        return torch.tanh(super().change(z))


class Outer(WeightUpdate):
    """After Schmidhuber (1992): as `Paper`, with `ΔW^r = (P_u z^r)(P_v z^r)ᵀ` in place of `diag(P z^r)`.

    It keeps all changes of a time step, so its cost grows with the square of the depth.
    """

    projections = ("P_u", "P_v")

    def __init__(self, cell: EIREHNCell) -> None:
        super().__init__(cell)
        self.past: list[tuple[Tensor, Tensor]] = []

    def __call__(self, Wh: Tensor, hh: Tensor, z: Tensor) -> Tensor:
        halves = (2, self.cell.hidden_size)  # the residual and the gate
        u, v = (product(z, P).unflatten(-1, halves) for P in (self.cell.P_u, self.cell.P_v))  # (B, 2, H) each
        g_bar = self.gate(z)
        h = hh.unflatten(-1, halves)
        before = Wh
        for change in self.past:
            before = before + outer_times(*change, h).flatten(-2)
        self.past.append((u, v))
        return g_bar * before + (1 - g_bar) * outer_times(u, v, h).flatten(-2)


def outer_times(u: Tensor, v: Tensor, h: Tensor) -> Tensor:
    """`(u vᵀ) h`."""
    return u * (v * h).sum(-1, keepdim=True)


RENAMED = {"printed": "paper"}
"""Names of version 0.1, in its runs, models and pickled layers."""
WEIGHT_UPDATES: dict[str, type[WeightUpdate] | None] = {
    "paper": Paper,
    "recursive": Recursive,
    "bounded": Bounded,
    "additive": Additive,
    "scaling": Scaling,
    "outer": Outer,
    "none": None,
}
