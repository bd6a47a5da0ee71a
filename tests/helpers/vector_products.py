"""The products of the CPU kernels alone, beside NumPy's."""

from __future__ import annotations

from itertools import product as every

import numpy as np
from numba import njit

from eirehn.ops.cpu.layout import BLOCK, lanes_of, padded
from eirehn.ops.cpu.products import outer_sums, product
from eirehn.ops.cpu.simd import REGISTER_BYTES, REGISTERS, half_tile, whole_tile


@njit
def _whole(weights, scratch, x, y, rows, depth, more):
    product(weights, 0, whole_tile(scratch), x, y, rows, depth, more)


@njit
def _half(weights, scratch, x, y, rows, depth, more):
    product(weights, 0, half_tile(scratch), x, y, rows, depth, more)


@njit
def _outer_whole(scratch, a, b, rows, columns, count, sums):
    step_a, step_b = (b - a) // count, (scratch.size - b) // count
    outer_sums(whole_tile(scratch), a, step_a, rows, b, step_b, columns, count, sums, 0)


@njit
def _outer_half(scratch, a, b, rows, columns, count, sums):
    step_a, step_b = (b - a) // count, (scratch.size - b) // count
    outer_sums(half_tile(scratch), a, step_a, rows, b, step_b, columns, count, sums, 0)


def registers() -> tuple[int, int]:
    return REGISTER_BYTES, REGISTERS


def _error_of_product(draw, dtype, half, rows, depth, more) -> float:
    lanes = lanes_of(np.dtype(dtype).itemsize) // (2 if half else 1)
    W, X, Y = (
        draw.standard_normal(shape).astype(dtype) for shape in ((rows, depth), (depth, lanes), (rows, lanes))
    )
    filled = np.zeros((padded(rows), depth), dtype)
    filled[:rows] = W
    panels = filled.reshape(-1, BLOCK, depth).transpose(0, 2, 1).ravel().copy()
    below = np.full((padded(rows) - rows, lanes), np.nan, dtype)
    guard = np.full((1, lanes), 7.0, dtype)
    scratch = np.concatenate([X, Y, below, guard]).ravel()
    (_half if half else _whole)(panels, scratch, 0, X.size, rows, depth, more)
    assert (scratch[-lanes:] == 7.0).all()  # nothing is written behind the panels
    found = scratch[X.size : X.size + Y.size].reshape(Y.shape)
    return float(np.abs(found - (W.astype(np.float64) @ X + (Y if more else 0))).max())


def _error_of_outer(draw, dtype, half, rows, columns, count) -> float:
    lanes = lanes_of(np.dtype(dtype).itemsize) // (2 if half else 1)
    slack = BLOCK  # what lies behind the rows is read, and not used
    A, B = (np.full((count, n + slack, lanes), np.nan, dtype) for n in (rows, columns))
    A[:, :rows], B[:, :columns] = (draw.standard_normal((count, n, lanes)) for n in (rows, columns))
    sums = np.zeros(padded(rows) * padded(columns), dtype)
    scratch = np.concatenate([A.ravel(), B.ravel()])
    (_outer_half if half else _outer_whole)(scratch, 0, A.size, rows, columns, count, sums)
    blocks = sums.reshape(padded(rows) // BLOCK, padded(columns) // BLOCK, BLOCK, BLOCK)
    found = blocks.transpose(0, 2, 1, 3).reshape(padded(rows), padded(columns))[:rows, :columns]
    exact = np.einsum("cil,ckl->ik", A[:, :rows].astype(np.float64), B[:, :columns])
    return float(np.abs(found - exact).max())


def largest_error() -> float:
    """Of values of about one, in sums of up to 48 of them."""
    draw, found = np.random.default_rng(0), []
    for dtype, half in every((np.float32, np.float64), (False, True)):
        for rows, depth, more in every((1, 4, 7, 20, 29), (1, 5), (False, True)):
            found.append(_error_of_product(draw, dtype, half, rows, depth, more))
        for rows, columns, count in every((1, 4, 7), (1, 6), (1, 3)):
            found.append(_error_of_outer(draw, dtype, half, rows, columns, count))
    return max(found)
