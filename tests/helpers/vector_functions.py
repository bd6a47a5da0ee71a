"""The kernels' element-wise functions, made callable on arrays."""

from typing import Any

import numpy as np
from numba import njit

from eirehn.ops.cpu.simd import half_tile, lane_count, load, store, vexpm1, vsigmoid, vtanh, whole_tile


@njit
def _whole(x, tanh, sigmoid, expm1):  # type: ignore[no-untyped-def]
    _apply(x.size, whole_tile(x), whole_tile(tanh), whole_tile(sigmoid), whole_tile(expm1))


@njit
def _half(x, tanh, sigmoid, expm1):  # type: ignore[no-untyped-def]
    _apply(x.size, half_tile(x), half_tile(tanh), half_tile(sigmoid), half_tile(expm1))


@njit
def _apply(size, x, tanh, sigmoid, expm1):  # type: ignore[no-untyped-def]
    for i in range(0, size, lane_count(x)):
        value = load(x, i)
        store(tanh, i, vtanh(value))
        store(sigmoid, i, vsigmoid(value))
        store(expm1, i, vexpm1(value))


def apply(x: Any, *, half: bool = False) -> tuple[Any, Any, Any]:
    """tanh, sigmoid and expm1 of `x`, whose size is a multiple of 16, in registers of all or half the lanes."""
    results = tuple(np.empty_like(x) for _ in range(3))
    (_half if half else _whole)(x, *results)
    return results
