"""Copies parameters into the order in which the products read them, and sums of gradients back."""

# numba types these functions from their arguments, and `intrinsic` hides those of the vector operations.
# mypy: ignore-errors

from __future__ import annotations

import math

import numpy as np

from .layout import BLOCK, GATED
from .simd import get, inner, panel_rows, put


@inner
def _panel(source, start, row_step, column_step, rows, columns, target, place, width, row, column):
    """A matrix as a part, from (row, column) on, of one that lies in panels of BLOCK rows and `width` columns."""
    for i in range(rows):
        at = row + i
        to = place + (at // BLOCK) * BLOCK * width + at % BLOCK + column * BLOCK
        for k in range(columns):
            put(target, to + k * BLOCK, get(source, start + i * row_step + k * column_step))


@inner
def copy(source, start, count, target, place):
    for i in range(count):
        put(target, place + i, get(source, start + i))


@inner
def _first_step(s, w, e, z1, P, P_bar, b_bar, packed, o):
    """`P z¹` and `sigm(P̄ z¹ + b̄)`, the same for all samples and time steps."""
    H2, Z = 2 * s.H, s.Z
    for i in range(s.G):
        total = 0.0
        gate = i >= H2
        for j in range(Z):
            weight = get(P_bar, (e * H2 + i - H2) * Z + j) if gate else get(P, (e * H2 + i) * Z + j)
            total += weight * get(z1, e * Z + j)
        put(packed, o + w.w1 + i, 1.0 / (1.0 + math.exp(-(total + get(b_bar, e * H2 + i - H2)))) if gate else total)


def pack(
    s, w, backward, W_h, b, W_ah, alpha, beta, z1, W_zs, W_z, b_z, P, P_bar, b_bar, W_x, b_a, limit, packed, size
):
    """Packs the parameters of all members (flat arrays) into `packed`, `size` elements each."""
    H, Z, G = s.H, s.Z, s.G
    H2 = 2 * H
    gated = s.kind in GATED
    for e in range(packed.size // size):
        o = e * size
        for k in range(size):
            put(packed, o + k, 0.0)
        panels, panels_T = panel_rows(H2) * H, panel_rows(H) * H2
        for r in range(s.sets):
            start = (e * s.sets + r) * H2 * H
            _panel(W_h, start, H, 1, H2, H, packed, o + w.W_h + r * panels, H, 0, 0)
            if backward:
                _panel(W_h, start, 1, H, H, H2, packed, o + w.W_h_T + r * panels_T, H2, 0, 0)
        copy(b, e * s.sets * H2, s.sets * H2, packed, o + w.b)
        if s.elastic:
            _panel(W_ah, e * H * H, H, 1, H, H, packed, o + w.W_ah, H, 0, 0)
            if backward:
                _panel(W_ah, e * H * H, 1, H, H, H, packed, o + w.W_ah_T, H, 0, 0)
            copy(beta, e * H, H, packed, o + w.beta)
            for i in range(H):
                a = get(alpha, e * H + i)
                a = limit if a > limit else a
                put(packed, o + w.alpha + i, a)
                put(packed, o + w.e_alpha + i, math.exp(a))
        if s.X > 0:
            U = 3 * H if s.elastic else H2
            _panel(W_x, e * U * s.X, s.X, 1, U, s.X, packed, o + w.W_x, s.X, 0, 0)
            if backward:
                _panel(W_x, e * U * s.X, 1, s.X, s.X, U, packed, o + w.W_x_T, U, 0, 0)
            if s.elastic:
                copy(b_a, e * H, H, packed, o + w.b_a)
        if G == 0:
            continue
        copy(b_z, e * Z, Z, packed, o + w.b_z)
        copy(z1, e * Z, Z, packed, o + w.z1)
        _panel(W_zs, e * Z * H2, H2, 1, Z, H2, packed, o + w.W_z, H2 + Z, 0, 0)
        _panel(W_z, e * Z * Z, Z, 1, Z, Z, packed, o + w.W_z, H2 + Z, 0, H2)
        _panel(P, e * H2 * Z, Z, 1, H2, Z, packed, o + w.P, Z, 0, 0)
        if backward:
            _panel(W_zs, e * Z * H2, 1, H2, H2, Z, packed, o + w.W_z_T, Z, 0, 0)
            _panel(W_z, e * Z * Z, 1, Z, Z, Z, packed, o + w.W_z_T, Z, H2, 0)
            _panel(P, e * H2 * Z, 1, Z, Z, H2, packed, o + w.P_T, G, 0, 0)
        if gated:
            copy(b_bar, e * H2, H2, packed, o + w.b_bar)
            _panel(P_bar, e * H2 * Z, Z, 1, H2, Z, packed, o + w.P, Z, H2, 0)
            if backward:
                _panel(P_bar, e * H2 * Z, 1, Z, Z, H2, packed, o + w.P_T, G, 0, H2)
        _first_step(s, w, e, z1, P, P_bar, b_bar, packed, o)


@inner
def _blocks(sums, start, columns, row, column, rows, width, target, place):
    """A part, from (row, column) on, of a matrix that lies in blocks, as plain rows."""
    across = (columns + BLOCK - 1) // BLOCK
    for i in range(rows):
        for k in range(width):
            at, to = row + i, column + k
            block = (at // BLOCK) * across + to // BLOCK
            value = get(sums, start + (block * BLOCK + at % BLOCK) * BLOCK + to % BLOCK)
            put(target, place + i * width + k, value)


@inner
def _through_first_step(s, g, e, z1, P, P_bar, sums, d_z1, d_P, d_P_bar, d_b_bar):
    """The gradients of `z¹, P, P̄` and `b̄`, from those of `P z¹` and `P̄ z¹ + b̄` summed over samples and steps."""
    H2, Z = 2 * s.H, s.Z
    for i in range(s.G):
        grad = get(sums, g.w1 + i)
        gate = i >= H2
        row = (e * H2 + i - H2) * Z if gate else (e * H2 + i) * Z
        for j in range(Z):
            z = get(z1, e * Z + j)
            if gate:
                put(d_z1, e * Z + j, get(d_z1, e * Z + j) + grad * get(P_bar, row + j))
                put(d_P_bar, row + j, get(d_P_bar, row + j) + grad * z)
            else:
                put(d_z1, e * Z + j, get(d_z1, e * Z + j) + grad * get(P, row + j))
                put(d_P, row + j, get(d_P, row + j) + grad * z)
        if gate:
            to = e * H2 + i - H2
            put(d_b_bar, to, get(d_b_bar, to) + grad)


def collect(
    s, g, sums, alpha, z1, P, P_bar, limit,
    d_W_h, d_b, d_W_ah, d_alpha, d_beta, d_z1, d_W_zs, d_W_z, d_b_z, d_P, d_P_bar, d_b_bar,
    d_W_x, d_b_a,
):  # fmt: skip
    """Adds the parts of each member's `sums` (members, parts, size), in order, and writes its gradients.

    The first part is overwritten.
    """
    H, Z, G = s.H, s.Z, s.G
    H2, size = 2 * H, g.size
    for e in range(sums.shape[0]):
        total = sums[e, 0]
        for number in range(1, sums.shape[1]):
            part = sums[e, number]
            for k in range(size):
                total[k] += part[k]
        block = panel_rows(H2) * panel_rows(H)
        for r in range(s.sets):
            _blocks(total, g.W_h + r * block, H, 0, 0, H2, H, d_W_h, (e * s.sets + r) * H2 * H)
        copy(total, g.b, s.sets * H2, d_b, e * s.sets * H2)
        if s.elastic:
            _blocks(total, g.W_ah, H, 0, 0, H, H, d_W_ah, e * H * H)
            copy(total, g.beta, H, d_beta, e * H)
            for i in range(H):
                cut = get(alpha, e * H + i) > limit
                put(d_alpha, e * H + i, 0.0 if cut else get(total, g.alpha + i))
        if s.X > 0:
            U = 3 * H if s.elastic else H2
            _blocks(total, g.W_x, s.X, 0, 0, U, s.X, d_W_x, e * U * s.X)
            if s.elastic:
                copy(total, g.b_a, H, d_b_a, e * H)
        if G == 0:
            continue
        copy(total, g.z1, Z, d_z1, e * Z)
        copy(total, g.b_z, Z, d_b_z, e * Z)
        _blocks(total, g.W_z, H2 + Z, 0, 0, Z, H2, d_W_zs, e * Z * H2)
        _blocks(total, g.W_z, H2 + Z, 0, H2, Z, Z, d_W_z, e * Z * Z)
        _blocks(total, g.P, Z, 0, 0, H2, Z, d_P, e * H2 * Z)
        if G > H2:
            _blocks(total, g.P, Z, H2, 0, H2, Z, d_P_bar, e * H2 * Z)
            copy(total, g.b_bar, H2, d_b_bar, e * H2)
        _through_first_step(s, g, e, z1, P, P_bar, total, d_z1, d_P, d_P_bar, d_b_bar)


@inner
def sigm(x):
    return 1.0 / (1.0 + math.exp(-np.float64(x)))


@inner
def softplus(x):
    a = np.float64(x)
    return max(a, 0.0) + math.log1p(math.exp(-abs(a)))


@inner
def _row_times(matrix, e, row, rows, columns, vector):
    """`W[row] v` of member e."""
    total = 0.0
    for i in range(columns):
        total += get(matrix, (e * rows + row) * columns + i) * get(vector, e * columns + i)
    return total


def constants(H, Z, alpha_hat, beta_hat, W_zh, W_zg, W_z, b_z, s_0, g_0, z_0, alpha, beta, z1):
    """`α = softplus(α̂)`, `β = sigm(β̂)` and `z¹ = tanh(W_zh s⁰ + W_zg ĝ⁰ + W_z z⁰ + b_z)` of all members."""
    for i in range(alpha.size):
        put(alpha, i, softplus(get(alpha_hat, i)))
        put(beta, i, sigm(get(beta_hat, i)))
    for k in range(z1.size):
        e, j = k // Z, k % Z
        zeta = get(b_z, k) + _row_times(W_zh, e, j, Z, H, s_0) + _row_times(W_zg, e, j, Z, H, g_0)
        put(z1, k, math.tanh(zeta + _row_times(W_z, e, j, Z, Z, z_0)))


def constants_back(
    H, Z, alpha_hat, beta, z1, W_zh, W_zg, W_z, s_0, g_0, z_0, d_alpha, d_beta, d_z1, d_W_zs, d_W_z, d_b_z, d_W_zh,
    d_W_zg, d_s_0, d_g_0, d_z_0,
):  # fmt: skip
    """The gradients of α̂, β̂ (in place) and of the parameters of z¹, from those of α, β and z¹.

    `d_W_z`, `d_b_z` and `d_W_zs`, which is to be split, already have the gradients from later inner steps.
    """
    for i in range(d_alpha.size):
        put(d_alpha, i, get(d_alpha, i) * sigm(get(alpha_hat, i)))
        put(d_beta, i, get(d_beta, i) * get(beta, i) * (1.0 - get(beta, i)))
    for k in range(z1.size):
        e, j = k // Z, k % Z
        zeta = get(d_z1, k) * (1.0 - get(z1, k) * get(z1, k))
        put(d_b_z, k, get(d_b_z, k) + zeta)
        for i in range(H):
            at = k * H + i
            put(d_W_zh, at, get(d_W_zs, 2 * k * H + i) + zeta * get(s_0, e * H + i))
            put(d_W_zg, at, get(d_W_zs, 2 * k * H + H + i) + zeta * get(g_0, e * H + i))
            put(d_s_0, e * H + i, (get(d_s_0, e * H + i) if j > 0 else 0.0) + zeta * get(W_zh, at))
            put(d_g_0, e * H + i, (get(d_g_0, e * H + i) if j > 0 else 0.0) + zeta * get(W_zg, at))
        for i in range(Z):
            at = k * Z + i
            put(d_W_z, at, get(d_W_z, at) + zeta * get(z_0, e * Z + i))
            put(d_z_0, e * Z + i, (get(d_z_0, e * Z + i) if j > 0 else 0.0) + zeta * get(W_z, at))
