"""Recurrences of large networks in CUDA C++ that keep their weights on the chip, compiled at first use.

Nothing is compiled or loaded at import. The host's side, but for the two passes, is that of Triton's large ones.
"""

from __future__ import annotations

from functools import partial

import torch

from ...cells import EIREHNCell, RecurrentCell, RHNCell
from ..triton import large
from ..triton.large.plan import sizes_for
from .machine import machine_of
from .plan import plan

__all__ = ["backward", "forward", "obstacle"]

forward = partial(large.forward, cuda=True)
backward = partial(large.backward, cuda=True)


def obstacle(cell: RecurrentCell, device: torch.device, batch: int, max_depth: int, which: str) -> str | None:
    """Why the pass `which`, "forward" or "backward", cannot run `cell` with a batch of so many samples."""
    machine = machine_of(device)
    if machine is None:
        return (
            "it needs an NVIDIA GPU of compute capability 9.0 or later and CUDA's runtime compiler; the weights "
            f"are on {device}"
        )
    kind, Z = "none", 0
    if isinstance(cell, RHNCell):
        kind = "RHN" if cell.W_h.dim() == 3 else "SRHN"
    elif isinstance(cell, EIREHNCell) and cell.weight_update != "none":
        kind, Z = cell.weight_update, cell.hyper_size
    size = sizes_for(kind, cell.hidden_size, Z, max_depth, batch)
    if plan(size, machine.processors, machine.memory, machine.threads, backward=which == "backward"):
        return None
    return (
        f"the {which} pass of {cell.hidden_size} units with a batch of {batch} does not fit on the chip, "
        f"{machine.processors} multiprocessors"
    )
