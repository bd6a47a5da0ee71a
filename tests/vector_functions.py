"""The kernels' element-wise functions, made callable on arrays."""

from typing import Any

import numpy as np
from numba import njit

from eirehn.ops.cpu.vectors import lane_count, load, store, vexpm1, vsigmoid, vtanh


@njit
def _apply(x, tanh, sigmoid, expm1):  # type: ignore[no-untyped-def]
    for i in range(0, x.size, lane_count(x)):
        value = load(x, i)
        store(tanh, i, vtanh(value))
        store(sigmoid, i, vsigmoid(value))
        store(expm1, i, vexpm1(value))


def apply(x: Any) -> tuple[Any, Any, Any]:
    """tanh, sigmoid and expm1 of `x`, whose size is a multiple of 16."""
    results = tuple(np.empty_like(x) for _ in range(3))
    _apply(x, *results)
    return results
