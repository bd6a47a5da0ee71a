"""Device functions that the forward and the backward pass of large networks share.

Weights lie with the summed index contiguous, padded with zeros to a multiple of 8, so that 16 bytes are read at
once whatever the hidden size. What one program writes and another reads goes past the first-level caches (".cg").
"""

# mypy: ignore-errors
# A jitted function is Triton's language in Python's syntax: its values have no Python types to check.

import triton
import triton.language as tl

from ..pieces import open_steps


@triton.jit
def grid_barrier(counter, target, SPIN: tl.constexpr):
    """Waits until every program has come here. `counter` only ever grows: `target` is the number of arrivals.

    The first barrier makes all threads' writes precede the release; the acquire, one thread's, precedes the second.
    """
    tl.debug_barrier()
    tl.atomic_add(counter, 1, sem="release", scope="gpu")
    if SPIN == "load":
        while tl.load(counter, volatile=True) < target:
            pass
        # Orders the reads of other programs' writes behind the last look at the counter.
        tl.inline_asm_elementwise(
            "fence.acq_rel.gpu; mov.u32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )
    else:
        while tl.atomic_add(counter, 0, sem="acquire", scope="gpu") < target:
            pass
    tl.debug_barrier()


@triton.jit
def product(
    x,
    x_stride: tl.constexpr,
    w,
    w_stride: tl.constexpr,
    gap: tl.constexpr,
    rows,
    has_row,
    n,
    has_n,
    K: tl.constexpr,
    COUNT: tl.constexpr,
    BB: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
    STAGES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """`x Wᵀ` for `rows` (BB,) of x and rows `n` (BN,) of COUNT ≤ 4 weights, which lie `gap` rows apart.

    With SPLIT > 1 the sum over K is cut into as many parts, one or more to a warp: a chain of dependent products
    over all of K would take longer than the weights take to arrive.
    """
    PART: tl.constexpr = (K + SPLIT * BK - 1) // (SPLIT * BK) * BK
    if SPLIT == 1:
        k = tl.arange(0, BK)
        x_tile = x + rows[:, None] * x_stride + k[None, :]  # (BB, BK)
        w_tile = w + n[None, :] * w_stride + k[:, None]  # (BK, BN)
        x_k, w_k = k[None, :], k[:, None]
        has_row, has_n = has_row[:, None], has_n[None, :]
        acc0 = tl.zeros((BB, BN), tl.float32)
    else:
        k = (tl.arange(0, SPLIT) * PART)[:, None] + tl.arange(0, BK)[None, :]  # (SPLIT, BK)
        x_tile = x + rows[None, :, None] * x_stride + k[:, None, :]  # (SPLIT, BB, BK)
        w_tile = w + n[None, None, :] * w_stride + k[:, :, None]  # (SPLIT, BK, BN)
        x_k, w_k = k[:, None, :], k[:, :, None]
        has_row, has_n = has_row[None, :, None], has_n[None, None, :]
        acc0 = tl.zeros((SPLIT, BB, BN), tl.float32)
    acc1, acc2, acc3 = acc0, acc0, acc0
    for k0 in tl.range(0, PART, BK, num_stages=STAGES):
        at = has_n & (w_k + k0 < K)
        xs = tl.load(x_tile + k0, mask=has_row & (x_k + k0 < K), other=0.0, cache_modifier=".cg")
        w0 = tl.load(w_tile + k0, mask=at, other=0.0)
        acc0 = tl.dot(xs, w0, acc0, input_precision=PRECISION)
        if COUNT >= 2:
            w1 = tl.load(w_tile + (gap * w_stride + k0), mask=at, other=0.0)
            acc1 = tl.dot(xs, w1, acc1, input_precision=PRECISION)
        if COUNT >= 3:
            w2 = tl.load(w_tile + (2 * gap * w_stride + k0), mask=at, other=0.0)
            acc2 = tl.dot(xs, w2, acc2, input_precision=PRECISION)
        if COUNT >= 4:
            w3 = tl.load(w_tile + (3 * gap * w_stride + k0), mask=at, other=0.0)
            acc3 = tl.dot(xs, w3, acc3, input_precision=PRECISION)
    if SPLIT > 1:
        acc0 = tl.sum(acc0, axis=0)
        acc1 = tl.sum(acc1, axis=0) if COUNT >= 2 else acc0
        acc2 = tl.sum(acc2, axis=0) if COUNT >= 3 else acc0
        acc3 = tl.sum(acc3, axis=0) if COUNT >= 4 else acc0
    return acc0, acc1, acc2, acc3


@triton.jit
def fetch(ptr, mask):
    """A tile of state in float32."""
    return tl.load(ptr, mask=mask, other=0.0, cache_modifier=".cg").to(tl.float32)


@triton.jit
def put(ptr, value, mask):
    tl.store(ptr, value.to(ptr.dtype.element_ty), mask=mask, cache_modifier=".cg")


@triton.jit
def add(ptr, tile, stored):
    """Adds the sum over a tile's samples to what only the owner of its units reads and writes."""
    tl.store(ptr, tl.load(ptr, mask=stored, other=0.0) + tl.sum(tile, axis=0), mask=stored)


@triton.jit
def row(ptr, n, inside):
    """A bias as a row (1, BN)."""
    return tl.load(ptr + n, mask=inside, other=0.0).to(tl.float32)[None, :]


@triton.jit(do_not_specialize=["R"])
def depth_kernel(alphas, alpha, beta, depth, R, H: tl.constexpr, BLOCK: tl.constexpr):
    """The depth of one packed row, from its `α_t`."""
    n = tl.program_id(0).to(tl.int64)
    most = tl.full((), 0, tl.int32)
    for start in range(0, H, BLOCK):
        col = start + tl.arange(0, BLOCK)
        inside = col < H
        a_row = tl.load(alpha + col, mask=inside, other=0.0).to(tl.float32)
        a_row = tl.where(a_row > 87.0, 87.0, a_row)
        b_row = tl.load(beta + col, mask=inside, other=0.0).to(tl.float32)
        alpha_t = tl.load(alphas + n * H + col, mask=inside, other=0.0)
        count = open_steps(a_row, tl.exp(a_row), b_row, alpha_t, inside, R)
        most = tl.maximum(most, tl.max(count, axis=0))
    tl.store(depth + n, most.to(tl.int64))
