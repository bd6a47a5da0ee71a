"""The functions and products of the CPU kernels, callable on arrays."""

from __future__ import annotations

from itertools import product as every
from typing import Any

import numpy as np
from numba import njit

from eirehn.ops.cpu.layout import BLOCK, lanes_of, padded
from eirehn.ops.cpu.products import outer_sums, product
from eirehn.ops.cpu.simd import (
    half_tile,
    lane_count,
    load,
    store,
    vexpm1,
    vsigmoid,
    vtanh,
    whole_tile,
)


def in_tiles(tile: Any) -> tuple[Any, Any, Any]:
    """The functions, the product and the sums of outer products, on tiles of all or of half the lanes."""

    @njit
    def functions(x, tanh, sigmoid, expm1):  # type: ignore[no-untyped-def]
        memory, tanhs, sigmoids, expm1s = tile(x), tile(tanh), tile(sigmoid), tile(expm1)
        for i in range(0, x.size, lane_count(memory)):
            value = load(memory, i)
            store(tanhs, i, vtanh(value))
            store(sigmoids, i, vsigmoid(value))
            store(expm1s, i, vexpm1(value))

    @njit
    def times(weights, scratch, y, rows, depth, more):  # type: ignore[no-untyped-def]
        product(weights, 0, tile(scratch), 0, y, rows, depth, more)

    @njit
    def outer(scratch, b, rows, columns, count, sums):  # type: ignore[no-untyped-def]
        outer_sums(tile(scratch), 0, b // count, rows, b, (scratch.size - b) // count, columns, count, sums, 0)

    return functions, times, outer


WAYS = {1: in_tiles(whole_tile), 2: in_tiles(half_tile)}


def apply(x: Any, *, share: int) -> tuple[Any, Any, Any]:
    """tanh, sigmoid and expm1 of `x`, whose size is a multiple of 16, on tiles of a `share`-th of the lanes."""
    results = tuple(np.empty_like(x) for _ in range(3))
    WAYS[share][0](x, *results)
    return results


def error_of_product(draw: Any, dtype: Any, share: int, rows: int, depth: int, more: bool) -> float:
    lanes = lanes_of(np.dtype(dtype).itemsize) // share
    W, X, Y = (
        draw.standard_normal(shape).astype(dtype) for shape in ((rows, depth), (depth, lanes), (rows, lanes))
    )
    filled = np.zeros((padded(rows), depth), dtype)
    filled[:rows] = W
    panels = filled.reshape(-1, BLOCK, depth).transpose(0, 2, 1).ravel().copy()
    below = np.full((padded(rows) - rows, lanes), np.nan, dtype)
    guard = np.full((1, lanes), 7.0, dtype)
    scratch = np.concatenate([X, Y, below, guard]).ravel()
    WAYS[share][1](panels, scratch, X.size, rows, depth, more)
    assert (scratch[-lanes:] == 7.0).all()  # nothing is written behind the panels
    found = scratch[X.size : X.size + Y.size].reshape(Y.shape)
    return float(np.abs(found - (W.astype(np.float64) @ X + (Y if more else 0))).max())


def error_of_outer(draw: Any, dtype: Any, share: int, rows: int, columns: int, count: int) -> float:
    lanes = lanes_of(np.dtype(dtype).itemsize) // share
    slack = BLOCK  # what lies behind the rows is read, and not used
    A, B = (np.full((count, n + slack, lanes), np.nan, dtype) for n in (rows, columns))
    A[:, :rows], B[:, :columns] = (draw.standard_normal((count, n, lanes)) for n in (rows, columns))
    sums = np.zeros(padded(rows) * padded(columns), dtype)
    WAYS[share][2](np.concatenate([A.ravel(), B.ravel()]), A.size, rows, columns, count, sums)
    blocks = sums.reshape(padded(rows) // BLOCK, padded(columns) // BLOCK, BLOCK, BLOCK)
    found = blocks.transpose(0, 2, 1, 3).reshape(padded(rows), padded(columns))[:rows, :columns]
    exact = np.einsum("cil,ckl->ik", A[:, :rows].astype(np.float64), B[:, :columns])
    return float(np.abs(found - exact).max())


def largest_error() -> float:
    """Of values of about one, in sums of up to 48 of them."""
    draw, found = np.random.default_rng(0), []
    for dtype, share in every((np.float32, np.float64), WAYS):
        for rows, depth, more in every((1, 4, 7, 20, 29), (1, 5), (False, True)):
            found.append(error_of_product(draw, dtype, share, rows, depth, more))
        for rows, columns, count in every((1, 4, 7), (1, 6), (1, 3)):
            found.append(error_of_outer(draw, dtype, share, rows, columns, count))
    return max(found)
