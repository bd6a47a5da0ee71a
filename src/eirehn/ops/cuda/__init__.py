"""Recurrences of large networks in CUDA C++ that keep their weights on the chip, compiled at first use.

Nothing is compiled or loaded at import. The host's side, but for the two passes, is that of Triton's large ones.
"""

from __future__ import annotations

from functools import partial

import torch

from ..triton import large
from ..triton.large.plan import sizes_for
from .machine import machine_of
from .plan import plan

__all__ = ["backward", "forward", "obstacle"]

forward = partial(large.forward, cuda=True)
backward = partial(large.backward, cuda=True)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # a compiler cannot ask the device
def obstacle(
    kind: str, hidden_size: int, hyper_size: int, device: torch.device, batch: int, max_depth: int, which: str
) -> str | None:
    """Why the pass `which`, "forward" or "backward", cannot run a network with a batch of so many samples."""
    machine = machine_of(device)
    if machine is None:
        return (
            "it needs an NVIDIA GPU of compute capability 9.0 or later and CUDA's runtime compiler; the weights "
            f"are on {device}"
        )
    size = sizes_for(kind, hidden_size, hyper_size, max_depth, batch)
    if plan(size, machine.processors, machine.memory, machine.threads, backward=which == "backward"):
        return None
    return (
        f"the {which} pass of {hidden_size} units with a batch of {batch} does not fit on the chip, "
        f"{machine.processors} multiprocessors"
    )
