"""Memory for results and for the workers' scratch. Tests set `poison` to find reads of what was never written."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_ALIGNMENT = 64  # bytes: a register read across two cache lines costs two reads
_KEPT_BYTES = 1 << 23  # larger pieces go back to the system after the call
_KEPT = 8  # pieces of each size

poison = False
# Pieces by the power of two they are large. Operations of a deque are atomic: there is no lock a fork could keep.
_kept: dict[int, deque[Bytes]] = {}


def empty(shape: Any, dtype: Any) -> Array:
    array = np.empty(shape, dtype)
    if poison:
        array.fill(np.nan if array.dtype.kind == "f" else -(2**40))
    return array


def take(size: int, dtype: np.dtype[Any]) -> tuple[Bytes, Array]:
    """`size` elements of scratch, and what to hand to `give` when done. New memory costs more than most calls."""
    needed = size * dtype.itemsize
    power = needed.bit_length()
    try:
        raw = _kept[power].pop()
    except LookupError:
        raw = _aligned(1 << power)
    view: Array = raw[:needed].view(dtype)
    if poison:
        view.fill(np.nan)
    return raw, view


def give(raw: Bytes) -> None:
    if raw.size <= _KEPT_BYTES:
        _kept.setdefault(raw.size.bit_length() - 1, deque(maxlen=_KEPT)).append(raw)


def _aligned(size: int) -> Bytes:
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % _ALIGNMENT
    return raw[skip : skip + size]
