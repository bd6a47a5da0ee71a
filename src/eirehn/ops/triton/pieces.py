"""Device functions that the forward and the backward kernel share.

A state tile is (BB, HP): BB samples, and H padded to the power of two that Triton asks for. The padding holds
zeros. With one sample a program (BB = 1) a product is a broadcast multiplication and a reduction on the plain
float32 units; with sixteen or more it is `tl.dot`.
"""

# mypy: ignore-errors
# A jitted function is Triton's language in Python's syntax: its values have no Python types to check.
# ruff: noqa: SIM108
# An `if` on a constexpr is decided by the compiler: it stands alone, so that it is not mixed with one on data.

import triton
import triton.language as tl

NONE = tl.constexpr(0)
PAPER = tl.constexpr(1)
RECURSIVE = tl.constexpr(2)
ADDITIVE = tl.constexpr(3)
SCALING = tl.constexpr(4)
BOUNDED = tl.constexpr(5)


@triton.jit
def tanh(x):
    e = tl.exp(-2.0 * tl.abs(x))
    y = (1.0 - e) / (1.0 + e)
    return tl.where(x < 0, -y, y)


@triton.jit
def expm1(v):
    """`e^v − 1` for v in [0, 1], the only range the gate needs: eleven Taylor terms leave less than 3e-9."""
    y = 1.0 + v * (1.0 / 11)
    y = 1.0 + v * (1.0 / 10) * y
    y = 1.0 + v * (1.0 / 9) * y
    y = 1.0 + v * (1.0 / 8) * y
    y = 1.0 + v * (1.0 / 7) * y
    y = 1.0 + v * (1.0 / 6) * y
    y = 1.0 + v * (1.0 / 5) * y
    y = 1.0 + v * (1.0 / 4) * y
    y = 1.0 + v * (1.0 / 3) * y
    y = 1.0 + v * (1.0 / 2) * y
    return v * y


@triton.jit
def gate_growth(alpha, alpha_t, r):
    """`e^v − 1` with `v = α (r−1) + α_t r`, clamped at 1, where every gate is closed. NaN stays NaN."""
    depth = r.to(tl.float32)
    v = (depth - 1.0) * alpha + depth * alpha_t
    return expm1(tl.where(v > 1.0, 1.0, v))


@triton.jit
def open_steps(alpha, e_alpha, beta, alpha_t, keep, R):
    """For how many inner steps each unit is open: known before the first of them.

    A NaN gate counts as open at r = 1, so that the NaN reaches the state, and as closed after.
    """
    d = beta - e_alpha * gate_growth(alpha, alpha_t, tl.full((), 1, tl.int32))
    is_open = keep & ~(d <= 0.0)
    count = is_open.to(tl.int32)
    for r in range(2, R + 1):
        d = beta - e_alpha * gate_growth(alpha, alpha_t, tl.full((), 0, tl.int32) + r)
        is_open = is_open & (d > 0.0)
        count += is_open.to(tl.int32)
    return count


@triton.jit
def matrix(
    ptr,
    stride,
    rows: tl.constexpr,
    columns: tl.constexpr,
    RP: tl.constexpr,
    CP: tl.constexpr,
    BB: tl.constexpr,
):
    """A weight of `rows` × `columns`, padded with zeros to RP × CP."""
    i = tl.arange(0, RP)[:, None]
    j = tl.arange(0, CP)[None, :]
    w = tl.load(ptr + i * stride + j, mask=(i < rows) & (j < columns), other=0.0)
    if BB == 1:
        w = w.to(tl.float32)
    return w


@triton.jit
def halves(
    ptr,
    stride,
    rows: tl.constexpr,
    columns: tl.constexpr,
    RP: tl.constexpr,
    CP: tl.constexpr,
    BB: tl.constexpr,
):
    """The residual's and the gate's weight, one below the other in memory."""
    w_s = matrix(ptr, stride, rows, columns, RP, CP, BB)
    w_g = matrix(ptr + rows * stride, stride, rows, columns, RP, CP, BB)
    return w_s, w_g


@triton.jit
def vector(ptr, size: tl.constexpr, SP: tl.constexpr):
    """A bias of `size` values as a row (1, SP)."""
    j = tl.arange(0, SP)
    return tl.load(ptr + j, mask=j < size, other=0.0).to(tl.float32)[None, :]


@triton.jit
def steps_of(batch_sizes, first, T):
    """For how many time steps the tile whose first sample is `first` runs: batch_sizes does not increase."""
    steps = tl.full((), 0, tl.int32)
    index = tl.arange(0, 256)
    for start in range(0, T, 256):
        size = tl.load(batch_sizes + start + index, mask=start + index < T, other=0)
        steps += tl.sum((size > first).to(tl.int32))
    return steps


@triton.jit
def column(y):
    """A row (1, N) as a column (N, 1). `tl.trans` would hand its own layout on to the weights it meets, and they
    would be held twice."""
    return tl.reshape(y, (y.shape[1],))[:, None]


@triton.jit
def times_t(x, w, BB: tl.constexpr, PRECISION: tl.constexpr):
    """`x Wᵀ`: (BB, K), (N, K) → (BB, N)."""
    if BB == 1:
        y = tl.sum(w * x, axis=1)[None, :]
    else:
        y = tl.dot(x.to(w.dtype), tl.trans(w), input_precision=PRECISION)
    return y


@triton.jit
def two_times_t(x, w, x2, w2, BB: tl.constexpr, PRECISION: tl.constexpr):
    """`x Wᵀ + x₂ W₂ᵀ` with one reduction."""
    if BB == 1:
        y = tl.sum(w * x + w2 * x2, axis=1)[None, :]
    else:
        y = tl.dot(x.to(w.dtype), tl.trans(w), input_precision=PRECISION)
        y = tl.dot(x2.to(w.dtype), tl.trans(w2), acc=y, input_precision=PRECISION)
    return y


@triton.jit
def times(y, w, BB: tl.constexpr, PRECISION: tl.constexpr):
    """`y W`: (BB, N), (N, K) → (BB, K)."""
    if BB == 1:
        x = tl.sum(w * column(y), axis=0)[None, :]
    else:
        x = tl.dot(y.to(w.dtype), w, input_precision=PRECISION)
    return x


@triton.jit
def two_times(y, w, y2, w2, BB: tl.constexpr, PRECISION: tl.constexpr):
    """`y W + y₂ W₂` with one reduction."""
    if BB == 1:
        x = tl.sum(w * column(y) + w2 * column(y2), axis=0)[None, :]
    else:
        x = tl.dot(y.to(w.dtype), w, input_precision=PRECISION)
        x = tl.dot(y2.to(w.dtype), w2, acc=x, input_precision=PRECISION)
    return x


@triton.jit
def change(Wh, h, w, g_bar, a, c, KIND: tl.constexpr):
    """`W^r h` of one half, and what the weight update carries to the next inner step, `a` and `c`."""
    CARRIED: tl.constexpr = (KIND == RECURSIVE) or (KIND == BOUNDED)
    if KIND == PAPER:
        y = g_bar * (Wh + c * h) + (1.0 - g_bar) * w * h
        c = c + w
    elif CARRIED:
        if KIND == BOUNDED:
            w = tanh(w)
        a = g_bar * a
        c = g_bar * c + (1.0 - g_bar) * w
        y = a * Wh + c * h
    elif KIND == ADDITIVE:
        c = c + w
        y = Wh + c * h
    elif KIND == SCALING:
        y = (1.0 + w) * Wh
    else:
        y = Wh
    return y, a, c


@triton.jit
def change_back(dy, Wh, h, w, g_bar, a, c, da, dc, KIND: tl.constexpr):
    """The gradients of `change` at its inputs `Wh, h, w, ḡ, a, c`, given those at its results `dy, da, dc`."""
    CARRIED: tl.constexpr = (KIND == RECURSIVE) or (KIND == BOUNDED)
    dg = tl.zeros_like(dy)
    dw = tl.zeros_like(dy)
    dh = tl.zeros_like(dy)
    dWh = dy
    if KIND == PAPER:
        dg = dy * (Wh + (c - w) * h)
        dw = dy * (1.0 - g_bar) * h + dc
        dh = dy * (g_bar * c + (1.0 - g_bar) * w)
        dWh = dy * g_bar
        dc = dc + dWh * h
    elif CARRIED:
        if KIND == BOUNDED:
            w = tanh(w)
        da = da + dy * Wh
        dc = dc + dy * h
        dg = da * a + dc * (c - w)
        dw = dc * (1.0 - g_bar)
        if KIND == BOUNDED:
            dw = dw * (1.0 - w * w)
        dh = dy * (g_bar * c + (1.0 - g_bar) * w)
        dWh = dy * g_bar * a
        da = da * g_bar
        dc = dc * g_bar
    elif KIND == ADDITIVE:
        dc = dc + dy * h
        dw = dc
        dh = dy * (c + w)
    elif KIND == SCALING:
        dw = dy * Wh
        dWh = dy * (1.0 + w)
    return dWh, dh, dw, dg, da, dc
