"""Which block keeps which weights, and the launch of the two passes.

A block has a multiprocessor to itself. The first blocks own a few hidden units each and keep their rows of all
weights; the others own rows of the hypernetwork's z. Sizes that do not fit have no plan.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from ctypes import c_int, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from . import nvrtc

if TYPE_CHECKING:
    from ..triton.large.weights import Sizes

THREADS = 512
MAX_BATCH = 32
MAX_UNITS = 16  # one tile of the tensor cores
_COUNTERS = 64  # the two in use lie on lines of their own
_SPARE = 1024  # a product may read so far behind its weights, and leaves the result

FORWARD = (
    "u", "mask", "W_h", "W_ah", "b", "alpha", "beta", "W_zs", "W_z", "b_z", "P", "P_bar", "b_bar", "batch_sizes",
    "offsets", "out", "alphas", "flags", "ew", "mh", "sgz", "h0", "board", "counters",
)  # fmt: skip
BACKWARD = (
    "mask", "W_h", "W_ah", "W_zs", "W_z", "P", "P_bar", "alpha", "beta", "batch_sizes", "offsets", "alphas", "flags",
    "d_out", "d_cost", "d_u", "ew", "grads", "carry", "sums", "board", "counters",
)  # fmt: skip
_TYPES = {torch.float32: "float", torch.bfloat16: "bf16"}
# What each pass calls the types of its arguments, and the argument that decides.
_FORWARD_TYPES = {"Input": "u", "Dropout": "mask", "Bias": "b", "Output": "out"}
_BACKWARD_TYPES = {"Input": "d_u", "Dropout": "mask", "Outward": "d_out", "Price": "d_cost"}


class Plan(NamedTuple):
    """units: of a block, and how many blocks; row_blocks: with 16 rows of z each. slabs: warps whose sums have room
    side by side. memory: bytes of shared memory."""

    units: int
    unit_blocks: int
    row_blocks: int
    slabs: int
    memory: int

    @property
    def blocks(self) -> int:
        return self.unit_blocks + self.row_blocks


def plan(size: Sizes, processors: int, limit: int, *, backward: bool) -> Plan | None:
    """`limit`: bytes of shared memory a block may have."""
    if not 1 <= size.B <= MAX_BATCH:
        return None
    row_blocks = -(-size.ZP // 16)
    if row_blocks >= processors:
        return None
    fewest = -(-size.HP // (processors - row_blocks))
    # Many units share one reading of the state; sums that have room for all warps need not be added in rounds.
    for slabs in (16, 8, 4):
        for units in range(MAX_UNITS, fewest - 1, -1):
            needs = _backward_needs(size, units) if backward else _forward_needs(size, units)
            memory = max(fixed + slabs * _samples(size.B) * wide * 4 for fixed, wide in needs) + _SPARE
            if memory <= limit:
                return Plan(units, -(-size.HP // units), row_blocks, slabs, memory)
    return None


def _forward_needs(size: Sizes, units: int) -> list[tuple[int, int]]:
    """Bytes of weights, and numbers a sample in the sums of the largest product, of a unit's block and of another."""
    sets = size.R if size.own else 1
    halves, projections = 3 if size.elastic else 2, size.projected // size.HP
    constants = 2 * sets + projections + (2 if size.gated else 0)
    head = 16 + -(-(constants + 3) * units // 4) * 16
    weights = (sets * halves * _blocks(size.HP) + projections * _blocks(size.ZP)) * units * 64
    needs = [(head + weights, max(halves, projections) * _pitch(units))]
    if size.hyper:
        needs.append(_hyper_needs(size, 2))
    return needs


def _backward_needs(size: Sizes, units: int) -> list[tuple[int, int]]:
    sets = size.R if size.own else 1
    halves = 3 if size.elastic else 2
    head = sets * (4 if size.elastic else 2) * THREADS * 4 + -(-3 * units // 4) * 16
    weights = (sets * halves * _blocks(size.HP) + 2 * _blocks(size.ZP)) * units * 64
    needs = [(head + weights, (2 if size.hyper else 1) * _pitch(units))]
    if size.hyper:
        needs.append(_hyper_needs(size, size.projected // size.HP))
    return needs


def _hyper_needs(size: Sizes, parts: int) -> tuple[int, int]:
    """`parts` vectors of HP go into z, besides z itself."""
    return 64 + (parts * _blocks(size.HP) + _blocks(size.ZP)) * 16 * 64, _pitch(16)


def _blocks(k: int) -> int:
    return -(-k // 32)


def _samples(batch: int) -> int:
    """What the kernels are compiled for: not every batch size needs its own."""
    return -(-batch // 4) * 4


def _pitch(each: int) -> int:
    return each if 3 <= each % 8 <= 5 else (each + 3) // 8 * 8 + 4


def _board(size: Sizes, backward: bool) -> int:
    """Elements of the board."""
    halves, projections = 3 if size.elastic else 2, size.projected // size.HP
    vectors = halves + projections if backward else 3 if size.hyper else 1
    return 2 * (vectors * _blocks(size.HP) + _blocks(size.ZP)) * _samples(size.B) * 32


def plan_for(size: Sizes, tensors: dict[str, Tensor | None], *, backward: bool) -> Plan | None:
    """For the device and the dtypes of a pass's tensors."""
    weight = tensors["W_h"]
    if weight is None or not weight.is_cuda or weight.dtype != torch.bfloat16 or not nvrtc.available():
        return None
    deciding = _BACKWARD_TYPES if backward else _FORWARD_TYPES
    if any(_type(tensors[name]) is None for name in deciding.values()):
        return None
    properties = torch.cuda.get_device_properties(weight.device)
    if properties.major < 9:
        return None
    return plan(
        size, properties.multi_processor_count, properties.shared_memory_per_block_optin, backward=backward
    )


def source(name: str, constants: dict[str, int | bool], types: dict[str, str]) -> str:
    """Of the pass `name`, behind the constants of one network."""
    lines = [f"constexpr {_kind(value)} {key} = {str(value).lower()};" for key, value in constants.items()]
    hardware, *others = (_text(part) for part in ("hardware", "pieces", name))
    named = [f"typedef {of} {key};" for key, of in types.items()]
    return "\n".join([*lines, hardware, *named, *others])


def _kind(value: int | bool) -> str:
    return "bool" if isinstance(value, bool) else "int"


def _text(name: str) -> str:
    return (Path(__file__).parent / f"{name}.cu").read_text(encoding="utf-8")


def constants(size: Sizes, plan: Plan, update: int, **more: int | bool) -> dict[str, int | bool]:
    return {
        "THREADS": THREADS, "H": size.H, "HP": size.HP, "Z": size.Z, "ZP": size.ZP, "WIDTH": size.width,
        "GRADS": size.grads, "KIND": update, "ELASTIC": size.elastic, "SETS": size.R if size.own else 1,
        "UNITS": plan.units, "UNIT_BLOCKS": plan.unit_blocks, "Z_BLOCKS": plan.row_blocks,
        "COLUMNS": -(-size.B // 8), "SAMPLES": _samples(size.B), "SLABS": plan.slabs,
        "PATIENCE": int(os.environ.get("EIREHN_CUDA_PATIENCE", "0")), **more,
    }  # fmt: skip


@lru_cache(maxsize=64)
def _kernel(
    name: str,
    memory: int,
    constants: tuple[tuple[str, int | bool], ...],
    types: tuple[tuple[str, str], ...],
    device: int,
) -> nvrtc.Kernel | None:
    with torch.cuda.device(device):
        major, minor = torch.cuda.get_device_capability()
        try:
            image = nvrtc.compiled(source(name, dict(constants), dict(types)), f"sm_{major}{minor}")
        except nvrtc.CompileError as met:  # an older compiler than the device, say
            warnings.warn(f"the kernels of large networks did not compile; Triton's are used: {met}", stacklevel=2)
            return None
        return nvrtc.Kernel(image, f"{name}_pass", THREADS, memory)


def forward_pass(
    size: Sizes, plan: Plan, update: int, tensors: dict[str, Tensor | None], *, reverse: bool, keep: bool
) -> bool:
    """`tensors` by the names of `FORWARD`, less those for the blocks' own talk. False where there is no kernel to be had."""
    more = {"MASKED": tensors["mask"] is not None, "REVERSE": reverse, "KEEP": keep}
    return _launch("forward", FORWARD, _FORWARD_TYPES, size, plan, update, tensors, [size.B, size.T, size.R], more)


def backward_pass(
    size: Sizes, plan: Plan, update: int, tensors: dict[str, Tensor | None], *, reverse: bool
) -> bool:
    """`tensors` by the names of `BACKWARD`, otherwise as `forward_pass`."""
    more = {
        "MASKED": tensors["mask"] is not None,
        "REVERSE": reverse,
        "COSTED": size.elastic and tensors["d_cost"] is not None,
    }
    return _launch("backward", BACKWARD, _BACKWARD_TYPES, size, plan, update, tensors, [size.B, size.T, size.R], more)


def _launch(
    name: str,
    order: tuple[str, ...],
    deciding: dict[str, str],
    size: Sizes,
    plan: Plan,
    update: int,
    tensors: dict[str, Tensor | None],
    numbers: list[int],
    more: dict[str, bool],
) -> bool:
    weight = tensors["W_h"]
    assert weight is not None
    words = torch.zeros(_COUNTERS + _board(size, name == "backward") // 2, dtype=torch.int32, device=weight.device)
    given = tensors | {"counters": words, "board": words[_COUNTERS:]}
    types = {key: _type(given[which]) or "" for key, which in deciding.items()}
    kernel = _kernel(
        name,
        plan.memory,
        tuple(constants(size, plan, update, **more).items()),
        tuple(types.items()),
        weight.device.index,
    )
    if kernel is None:
        return False
    with torch.cuda.device(weight.device):
        kernel(plan.blocks, packed([given[each] for each in order], numbers))
    return True


def _type(tensor: Tensor | None) -> str | None:
    """None for a dtype the kernels do not read."""
    return "float" if tensor is None else _TYPES.get(tensor.dtype)


def packed(tensors: list[Tensor | None], numbers: list[int]) -> ctypes.Structure:
    """The kernel's argument: addresses, then numbers, as C lays them out."""
    structure = _structure(len(tensors), len(numbers))()
    for index, each in enumerate(tensors):
        setattr(structure, f"p{index}", None if each is None else each.data_ptr())
    for index, number in enumerate(numbers):
        setattr(structure, f"n{index}", number)
    return structure


@lru_cache
def _structure(pointers: int, numbers: int) -> type[ctypes.Structure]:
    fields = [(f"p{index}", c_void_p) for index in range(pointers)]
    fields += [(f"n{index}", c_int) for index in range(numbers)]
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})
