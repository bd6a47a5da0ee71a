"""Compiles kernels before they are called, into numba's cache on disk: `python -m eirehn.ops.cpu.ahead float32`
those of the backward pass."""

from __future__ import annotations

import gc
import sys
from collections.abc import Collection
from functools import partial
from typing import Any

import torch

from ...cells import EIREHNCell
from . import runtime
from .call import CellCall
from .compiling import BACKWARD, HERE, start_companion, wait_for_companion


def warm_up(dtype: str) -> str:
    """Compiles all kernels for a type, and says in which folder they are."""
    folder = runtime.kernels().forward.folder()
    if folder is None:
        raise ValueError("compiled kernels cannot be stored: set NUMBA_CACHE_DIR to a folder that can be written")
    start_companion(dtype)
    compile_kernels(dtype, HERE)
    wait_for_companion(dtype)
    compile_kernels(dtype, BACKWARD)  # from its files
    return str(folder)


def compile_kernels(dtype: str, names: Collection[str]) -> None:
    """Compiles the kernels of these names, by both passes of a network in which no kernel runs."""
    known: dict[str, runtime.Kernel] = vars(runtime.kernels())
    calls = {name: kernel.call for name, kernel in known.items()}
    for name, kernel in known.items():
        kernel.call = partial(runtime.compile_for if name in names else _skip, kernel.call)
    try:
        _both_passes(getattr(torch, dtype))
    finally:
        for name, kernel in known.items():
            kernel.call = calls[name]


def _both_passes(dtype: torch.dtype) -> None:
    cell = EIREHNCell(1, 1, dtype=dtype)
    parameters = [getattr(cell, name).detach() for name in cell.parameter_names]
    for batch in (1, 2):  # one sample alone has a kernel of its own
        x, h0 = (torch.zeros(batch, 1, dtype=dtype) for _ in range(2))
        call, tensors = CellCall(cell, [batch], 1, False), (x, h0, None, *parameters)
        (out, _), kept = call.forward(tensors, backward_follows=batch == 2)
    call.backward(kept, tensors, out, torch.zeros_like(out), with_x=True)


def _skip(dispatcher: Any, *arguments: Any) -> None:
    pass


if __name__ == "__main__":
    gc.disable()  # a tenth of the time
    compile_kernels(sys.argv[1], BACKWARD)
