"""The operator's contract met by the plain path: for gradients of gradients, and to check the kernels against."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..cells import EIREHNCell, RecurrentCell, RHNCell, SREHNCell, SRHNCell
from ..cells.base import Constants
from .reference import Scan, steps

if TYPE_CHECKING:
    from .operator import Weights


def unfused(
    u: Tensor,
    h0: Tensor,
    mask: Tensor | None,
    weights: Weights,
    batch_sizes: Sequence[int],
    kind: str,
    max_depth: int,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """What `eirehn::recurrence` returns, from the cells' own equations, one member after the other."""
    members = []
    for e in range(u.size(0)):
        own = [None if each is None else each[e] for each in (u, h0, mask, *weights)]
        members.append(_member(own, list(batch_sizes), kind, max_depth, reverse))
    out, depth, cost = zip(*members, strict=True)
    return torch.stack(out), torch.stack(depth), torch.stack(cost)


def _member(
    tensors: list[Tensor | None], batch_sizes: list[int], kind: str, max_depth: int, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    u, h0, mask, W_h, b, W_ah, alpha, beta, z1, W_zs, W_z, b_z, P, P_bar, b_bar = tensors
    assert u is not None
    assert h0 is not None
    assert W_h is not None
    hidden = h0.size(-1)
    parameters = {"W_h": W_h, "b": b, "W_ah": W_ah, "W_z": W_z, "b_z": b_z, "P": P, "P_bar": P_bar, "b_bar": b_bar}
    if W_zs is not None:
        parameters["W_zh"], parameters["W_zg"] = W_zs.chunk(2, -1)
    cell: RecurrentCell
    if W_ah is None:
        sort, depth = (RHNCell, W_h.size(0)) if W_h.dim() == 3 else (SRHNCell, max_depth)
        cell = sort(1, hidden, depth=depth, device="meta")
    elif z1 is None:
        cell = SREHNCell(1, hidden, device="meta")
    else:
        cell = EIREHNCell(1, hidden, hyper_size=z1.size(-1), weight_update=kind, device="meta")
    given = {f"cell.{name}": value for name, value in parameters.items() if value is not None}
    options = {"max_depth": max_depth, "reverse": reverse, "h_mask": mask, "with_cost": True}
    arguments = (steps, u, batch_sizes, h0, Constants(alpha, beta, z1))
    scan: Scan = torch.func.functional_call(Frame(cell), given, arguments, options)
    assert scan.cost is not None
    running = [t for t, size in enumerate(batch_sizes) for _ in range(size)]
    sample = [i for size in batch_sizes for i in range(size)]
    return scan.out, scan.depth[running, sample], scan.cost[running, sample]


class Frame(nn.Module):
    """A cell to be called with others' weights, by `torch.func.functional_call`."""

    def __init__(self, cell: RecurrentCell) -> None:
        super().__init__()
        self.cell = copy.copy(cell)  # its own dictionary of parameters: nothing of the caller's is swapped
        self.cell._parameters = dict(cell._parameters)

    def forward(self, function: Callable[..., Scan], *arguments: Any, **options: Any) -> Scan:
        return function(self.cell, *arguments, **options)
