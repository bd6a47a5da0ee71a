"""The launch of the two passes that keep their weights on the chip."""

from __future__ import annotations

import ctypes
import os
import warnings
from ctypes import c_int, c_void_p
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..dispatch import insist
from .machine import Chip, CompileError, DriverError, Kernel, machine_of, text
from .plan import Plan, board, plan, samples, sets

if TYPE_CHECKING:
    from ..triton.large.weights import Sizes

Given = dict[str, Tensor | None]

ORDER = {
    "forward": (
        "u", "mask", "W_h", "W_ah", "b", "alpha", "beta", "W_zs", "W_z", "b_z", "P", "P_bar", "b_bar",
        "batch_sizes", "offsets", "out", "alphas", "flags", "ew", "mh", "sgz", "h0", "board", "counters", "others",
    ),
    "backward": (
        "mask", "W_h", "W_ah", "W_zs", "W_z", "P", "P_bar", "alpha", "beta", "batch_sizes", "offsets", "alphas",
        "flags", "d_out", "d_u", "ew", "grads", "carry", "sums", "board", "counters", "others",
    ),
}  # fmt: skip
_COUNTERS = 64  # the two in use lie on lines of their own
_FIXED = {
    torch.bfloat16: ("W_h", "W_ah", "W_zs", "W_z", "P", "P_bar"),
    torch.float32: ("alpha", "beta"),
    torch.int64: ("batch_sizes", "offsets"),
}
_TYPES = {torch.float32: "float", torch.bfloat16: "bf16"}
# What each pass calls the types of its arguments, and the arguments that have them.
TYPES: dict[str, dict[str, tuple[str, ...]]] = {
    "forward": {"Input": ("u",), "Dropout": ("mask",), "Bias": ("b", "b_z", "b_bar"), "Output": ("out",)},
    "backward": {"Input": ("d_u",), "Dropout": ("mask",), "Outward": ("d_out",)},
}


def run_pass(name: str, size: Sizes, update: int, given: Given, *, reverse: bool, keep: bool = False) -> str | None:
    """The pass `name`, "forward" or "backward", of what is `given` by the names of `ORDER`, less the last three.
    Where these kernels are not for the device, the dtypes or the sizes, it does nothing and returns the reason."""
    weight = given["W_h"]
    assert weight is not None
    types = types_of(name, given)
    machine = machine_of(weight.device)
    if machine is None:
        return f"no machine for {weight.device}"
    if types is None or not aligned(given):
        return "it does not read tensors of these dtypes, or weights that do not begin at a multiple of 16 bytes"
    backward = name == "backward"
    chosen = plan(size, machine.processors, machine.memory, machine.threads, backward=backward)
    if chosen is None:
        return f"the {name} pass does not fit on the chip"
    more = {"MASKED": given["mask"] is not None, "REVERSE": reverse, "KEEP": keep}
    numbers = constants(size, chosen, update, machine.threads, more)
    kernel = _kernel(machine, name, chosen.memory, tuple(numbers.items()), tuple(types.items()))
    if isinstance(kernel, str):
        return kernel
    talk = torch.zeros(_COUNTERS + board(size, backward=backward) // 2, dtype=torch.int32, device=weight.device)
    others = torch.empty(chosen.others, dtype=torch.uint8, device=weight.device) if chosen.others else None
    tensors = given | {"counters": talk, "board": talk[_COUNTERS:], "others": others}
    kernel(chosen.blocks, packed([tensors[each] for each in ORDER[name]], [size.B, size.T, size.R]))
    return None


def aligned(given: Given) -> bool:
    """Whether the weights can be read 16 bytes at a time, which the start of a view may not allow."""
    matrices = (given[name] for name in _FIXED[torch.bfloat16])
    return all(each is None or each.data_ptr() % 16 == 0 for each in matrices)


def types_of(name: str, given: Given) -> dict[str, str] | None:
    """The types of the kernel's arguments; None if the kernels do not support a tensor's dtype."""
    for dtype, names in _FIXED.items():
        if any(each.dtype != dtype for each in (given[which] for which in names) if each is not None):
            return None
    found: dict[str, str] = {}
    for key, names in TYPES[name].items():
        dtypes = {each.dtype for each in (given[which] for which in names) if each is not None}
        if len(dtypes) > 1 or not dtypes <= _TYPES.keys():
            return None
        found[key] = _TYPES[dtypes.pop()] if dtypes else "float"
    return found


def constants(size: Sizes, chosen: Plan, update: int, threads: int, more: dict[str, bool]) -> dict[str, int | bool]:
    """The constants that a kernel is compiled with."""
    return {
        "THREADS": threads, "H": size.H, "HP": size.HP, "Z": size.Z, "ZP": size.ZP, "WIDTH": size.width,
        "GRADS": size.grads, "KIND": update, "ELASTIC": size.elastic, "SETS": sets(size), "KEPT": chosen.kept,
        "UNITS": chosen.units, "UNIT_BLOCKS": chosen.unit_blocks, "Z_BLOCKS": chosen.row_blocks,
        "COLUMNS": -(-size.B // 8), "SAMPLES": samples(size.B), "SLABS": chosen.slabs,
        # For debugging: so many polls of a counter, then the kernel gives up.
        "PATIENCE": int(os.environ.get("EIREHN_CUDA_PATIENCE", "0")), **more,
    }  # fmt: skip


@lru_cache(maxsize=64)
def _kernel(
    machine: Chip,
    name: str,
    memory: int,
    constants: tuple[tuple[str, int | bool], ...],
    types: tuple[tuple[str, str], ...],
) -> Kernel | str:
    """A kernel, or the reason why it cannot be made."""
    code = source(name, dict(constants), dict(types), machine.hardware)
    try:
        return machine.build(code, f"{name}_pass", memory)
    except (CompileError, DriverError) as met:  # an older compiler than the device, say
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "the kernels of a large network are loaded at its first call, which a CUDA graph cannot record: "
                f"run the step once before ({met})"
            ) from met
        insist("cuda", f"its kernels were not built: {met}")
        warnings.warn(f"the kernels of large networks were not built; Triton's are used: {met}", stacklevel=2)
        return f"its kernels were not built: {met}"


def source(name: str, constants: dict[str, int | bool], types: dict[str, str], hardware: str) -> str:
    """The source code of the pass `name`, after the constants of a network."""
    declared = [
        f"constexpr {'bool' if isinstance(value, bool) else 'int'} {key} = {str(value).lower()};"
        for key, value in constants.items()
    ]
    named = [f"typedef {of} {key};" for key, of in types.items()]
    return "\n".join([*declared, hardware, *named, text("pieces"), text(name)])


def packed(tensors: list[Tensor | None], numbers: list[int]) -> ctypes.Structure:
    """A kernel's argument: addresses, then numbers, as C lays them out."""
    structure = _structure(len(tensors), len(numbers))()
    for index, each in enumerate(tensors):
        setattr(structure, f"p{index}", None if each is None else each.data_ptr())
    for index, number in enumerate(numbers):
        setattr(structure, f"n{index}", number)
    return structure


@lru_cache
def _structure(pointers: int, numbers: int) -> type[ctypes.Structure]:
    fields: list[tuple[str, type]] = [(f"p{index}", c_void_p) for index in range(pointers)]
    fields += [(f"n{index}", c_int) for index in range(numbers)]
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})
