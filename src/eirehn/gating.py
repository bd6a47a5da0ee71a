"""What a network puts out, apart from what it remembers: a gated map between its state and a head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cells.base import fill_uniform


class GatedMap(nn.Module):
    """`(V h + c) ⊗ 2 sigm(U h + d)`, from states h of H numbers to `size`.

    An LSTM tells by an output gate what of its memory is of use now. A highway network's state is its memory and
    its output in one: a unit that must be kept for later also moves what is said now. With this map it need not.
    The 2 lets through what a gate knows nothing of.

    `weight` has V above U, `bias` c before d."""

    def __init__(self, hidden_size: int, size: int, bound: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2 * size, hidden_size))
        self.bias = nn.Parameter(torch.zeros(2 * size))
        fill_uniform(bound, self.weight)

    def forward(self, h: Tensor) -> Tensor:
        rows = h.reshape(-1, h.size(-1))  # on a GPU the bias of a product of rows is added on the way
        both = F.linear(rows, self.weight, self.bias)
        return 2 * F.glu(both).view(*h.shape[:-1], both.size(-1) // 2)
