"""The launch of what a training step does with its gradients."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_double, c_float, c_int, c_int64, c_void_p
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from .machine import Kernel, Machine, declared, text

MOST = 48
"""Tensors of one launch: their addresses are its argument, which has 4096 bytes."""
_BLOCKS = 2  # of a multiprocessor
_POINTERS = ("value", "low", "gradient", "low_gradient", "first", "second", "average")


@dataclass
class Part:
    """One tensor of values, float32, and what belongs to it, of the same shape; see update.cu. A `group` below 0 is
    of values that are averaged alone."""

    value: Tensor
    low: Tensor | None = None
    gradient: Tensor | None = None
    low_gradient: Tensor | None = None
    first: Tensor | None = None
    second: Tensor | None = None
    average: Tensor | None = None
    group: int = 0


@dataclass(frozen=True)
class Rule:
    """What is done with a gradient. `clip` of None leaves its length as it is."""

    adam: bool = False
    decoupled: bool = False
    penalty: float = 0.0
    clip: float | None = None
    betas: tuple[float, float] = (0.0, 0.0)
    epsilon: float = 0.0
    weight_decay: float = 0.0


def update(
    machine: Machine,
    rule: Rule,
    parts: Sequence[Part],
    rates: Tensor,
    left_out: Tensor,
    *,
    step: Tensor | None = None,
    share: Tensor | None = None,
) -> None:
    """One step for all `parts`. `rates` (G + 1,) float32 holds those of the groups, and behind them what an average
    takes of a new value; `left_out`, float64, counts gradients that overflow. `step`, float32, is Adam's count with
    this one, `share`, float32, what is left of the rate."""
    pieces = [parts[first : first + MOST] for first in range(0, len(parts), MOST)]
    blocks = _BLOCKS * machine.processors
    squares = torch.empty(blocks * len(pieces), dtype=torch.float64, device=rates.device)
    constants = _constants(rule, rates.numel() - 1, parts[0].average is not None)
    for name in _passes(rule):
        for index, piece in enumerate(pieces):
            kernel = _kernel(machine, name, len(piece), constants)
            own = squares[index * blocks :] if name == "measure_pass" else squares
            arguments = _arguments(len(piece))(
                (_Part * len(piece))(*map(_packed, piece)),
                *map(_address, (rates, step, share, own, left_out)),
                *rule.betas,
                rule.penalty,
                rule.clip or 0.0,
                rule.epsilon,
                rule.weight_decay,
                blocks,
                squares.numel(),
                int(index == 0),
            )
            kernel(blocks, arguments)


def build(machine: Machine, rule: Rule, count: int, *, groups: int, averaged: bool) -> None:
    """What `update` of `count` parts launches, now; a graph cannot record that."""
    for name in _passes(rule):
        for parts in {min(count - first, MOST) for first in range(0, count, MOST)}:
            _kernel(machine, name, parts, _constants(rule, groups, averaged))


def _passes(rule: Rule) -> tuple[str, ...]:
    return ("change_pass",) if rule.clip is None else ("measure_pass", "change_pass")


def _constants(rule: Rule, groups: int, averaged: bool) -> tuple[tuple[str, int | bool], ...]:
    """What the kernels are compiled for, beside the number of parts."""
    constants = {
        "ADAM": rule.adam,
        "FIRST": rule.adam and rule.betas[0] > 0,
        "DECOUPLED": rule.decoupled,
        "CLIPPED": rule.clip is not None,
        "AVERAGED": averaged,
        "GROUPS": groups,
    }
    return tuple(constants.items())


class _Part(ctypes.Structure):
    _fields_ = [*((name, c_void_p) for name in _POINTERS), ("count", c_int64), ("group", c_int64)]


@lru_cache
def _arguments(parts: int) -> type[ctypes.Structure]:
    pointers = ("rates", "step", "share", "squares", "left_out")
    fields = [
        ("parts", _Part * parts),
        *((name, c_void_p) for name in pointers),
        *((name, c_double) for name in ("beta1", "beta2")),
        *((name, c_float) for name in ("penalty", "clip", "epsilon", "weight_decay")),
        *((name, c_int) for name in ("blocks", "measured", "counting")),
    ]
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


def _packed(part: Part) -> _Part:
    tensors = [getattr(part, name) for name in _POINTERS]
    for name, each in zip(_POINTERS, tensors, strict=True):
        if each is None:
            continue
        dtype = torch.bfloat16 if name in ("low", "low_gradient") else torch.float32
        if each.dtype != dtype or each.numel() != part.value.numel() or not each.is_contiguous():
            raise ValueError(
                f"{name} must be {dtype}, contiguous and of {part.value.numel()} numbers, got {each.dtype} "
                f"of shape {tuple(each.shape)} and strides {each.stride()}"
            )
        if each.data_ptr() % 16:
            raise ValueError(f"{name} must begin at a multiple of 16 bytes, got {each.data_ptr()}")
    return _Part(*map(_address, tensors), part.value.numel(), part.group)


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


@lru_cache(maxsize=64)
def _kernel(machine: Machine, name: str, parts: int, constants: tuple[tuple[str, int | bool], ...]) -> Kernel:
    # PATIENCE is of waits, which hardware.cu has, and these kernels have none.
    given = {"THREADS": machine.threads, "PATIENCE": 0, "PARTS": parts, **dict(constants)}
    source = "\n".join([declared(given), machine.hardware, text("update")])
    return machine.build(source, name, machine.threads * 8)
