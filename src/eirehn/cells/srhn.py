"""SRHN: a recurrent highway network with one set of weights for all its inner steps."""

from __future__ import annotations

from torch import Tensor

from .rhn import RHNCell


class SRHNCell(RHNCell):
    """`[s; t]^r = [tanh; sigm](W_h h^{r-1} + [r=1] W_x x + b)`, `h^r = t ⊗ s + (1−t) ⊗ h^{r-1}`, r = 1 … depth."""

    def _weight_sets(self) -> tuple[int, ...]:
        return ()

    def inner_weights(self, r: int) -> tuple[Tensor, Tensor]:
        return self.W_h, self.b
