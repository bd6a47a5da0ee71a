"""The backward pass of whole sequences, tile by tile: each time step is computed again, then differentiated.

README.md derives it; a leading d stands for a gradient.
"""

# numba types these functions from their arguments, and `intrinsic` hides those of the vector operations.
# mypy: ignore-errors

from __future__ import annotations

from .forward import copy_rows, fill, project, rest, rows_in, rows_out, spread_rows, time_step
from .layout import ADDITIVE, BOUNDED, GATED, NONE, PAPER, RECURSIVE, SCALING
from .products import outer_sums, product
from .simd import (
    fetch_add,
    get,
    half_tile,
    inner,
    lane_count,
    lane_sum,
    load,
    panel_rows,
    put,
    spread,
    store,
    vtanh,
    where,
    whole_tile,
    zeros,
)


@inner
def add_gradient(s, f, tile, d_out, row, count):
    """Adds the gradient of the output of this time step."""
    lanes = lane_count(tile)
    for lane in range(count):
        for i in range(s.H):
            at = f.dh + i * lanes + lane
            put(tile, at, get(tile, at) + get(d_out, (row + lane) * s.H + i))


@inner
def update_back(s, w, f, packed, o, tile, r, d, h, sgz, acc_b):
    """Through `h^r = g s + (1−g) h`, `g = d ĝ`, the gate d and the two activations, to `f.dpre`.

    `f.dh` becomes the part `(1−g) dh`; `f.dsgz` has the gradient from the next step of the hypernetwork.
    """
    H, lanes = s.H, lane_count(tile)
    half = H * lanes
    for i in range(H):
        at = i * lanes
        allowed, residual, opening = load(tile, d + at), load(tile, sgz + at), load(tile, sgz + half + at)
        dh = load(tile, f.dh + at)
        g = allowed * opening
        dg = dh * (residual - load(tile, h + at))
        d_pre_s = (load(tile, f.dsgz + at) + dh * g) * (1.0 - residual * residual)
        d_pre_g = (load(tile, f.dsgz + half + at) + dg * allowed) * (opening * (1.0 - opening))
        store(tile, f.dpre + at, d_pre_s)
        store(tile, f.dpre + half + at, d_pre_g)
        store(tile, acc_b + at, load(tile, acc_b + at) + d_pre_s)
        store(tile, acc_b + half + at, load(tile, acc_b + half + at) + d_pre_g)
        store(tile, f.dh + at, dh - g * dh)
        if s.elastic:
            dd = where(allowed != 0.0, dg * opening, 0.0)
            fall = load(tile, f.fall + (r - 1) * f.H_step + at)
            dv = dd * (fall + spread(tile, packed, o + w.e_alpha + i))
            store(tile, f.acc_beta + at, load(tile, f.acc_beta + at) + dd)
            store(tile, f.acc_alpha + at, load(tile, f.acc_alpha + at) - (dd * fall + dv * (r - 1)))
            store(tile, f.dalpha_t + at, load(tile, f.dalpha_t + at) - dv * r)


@inner
def mix_back(kind, H, tile, f, first, wh, wg, h, c, a, dwh, dwg):
    """From `f.dpre` to the shared product (`dwh`), the change `[w; ḡ before its sigmoid]` (`dwg`), h, c and a.

    At r = 1 the change is the same for all samples and steps, so `dwg` adds up.
    """
    lanes = lane_count(tile)
    half = H * lanes
    gates = 2 * half
    c_new, a_new = c + f.H2_step, a + f.H2_step
    for i in range(0, 2 * half, lanes):
        unit = i if i < half else i - half
        dpre, dc_at, da_at = load(tile, f.dpre + i), f.dc + i, f.da + i
        if kind == NONE:
            store(tile, dwh + i, dpre)
            continue
        hh, Wh, w = load(tile, h + unit), load(tile, wh + i), load(tile, wg + i)
        dw = dpre
        dg = dpre
        dhh = dpre
        if kind == PAPER:
            g, before, dc = load(tile, wg + gates + i), load(tile, c + i), load(tile, dc_at)
            new = 1.0 - g
            store(tile, dwh + i, g * dpre)
            dg = dpre * (Wh + (before - w) * hh) * (g * new)
            dw = dc + dpre * new * hh
            dhh = dpre * (g * before + new * w)
            store(tile, dc_at, dc + dpre * g * hh)
        elif kind in (RECURSIVE, BOUNDED):
            if kind == BOUNDED:
                w = vtanh(w)
            g = load(tile, wg + gates + i)
            new = 1.0 - g
            dc = load(tile, dc_at) + dpre * hh
            da = load(tile, da_at) + dpre * Wh
            store(tile, dwh + i, load(tile, a_new + i) * dpre)
            dg = (da * load(tile, a + i) + dc * (load(tile, c + i) - w)) * (g * new)
            dw = dc * new * (1.0 - w * w) if kind == BOUNDED else dc * new
            dhh = load(tile, c_new + i) * dpre
            store(tile, dc_at, dc * g)
            store(tile, da_at, da * g)
        elif kind == ADDITIVE:
            dw = load(tile, dc_at) + dpre * hh
            store(tile, dc_at, dw)
            store(tile, dwh + i, dpre)
            dhh = load(tile, c_new + i) * dpre
        elif kind == SCALING:
            store(tile, dwh + i, (1.0 + w) * dpre)
            dw = dpre * Wh
        if kind != SCALING:
            store(tile, f.dh + unit, load(tile, f.dh + unit) + dhh)
        store(tile, dwg + i, dw + load(tile, dwg + i) if first else dw)
        if kind in GATED:
            store(tile, dwg + gates + i, dg + load(tile, dwg + gates + i) if first else dg)


@inner
def hyper_back(s, w, f, packed, o, tile, z, dwg, dzp):
    """Through `[w; ḡ] = [P; P̄] z` and `z = tanh(…)` to `[s; ĝ; z]^{r-1}`, whose gradient replaces `f.dsgz`."""
    lanes = lane_count(tile)
    H2 = 2 * s.H
    product(packed, o + w.P_T, tile, dwg, f.dz, s.Z, s.G, False)
    for i in range(0, s.Z * lanes, lanes):
        value = load(tile, z + i)
        dz = load(tile, f.dz + i) + load(tile, f.dsgz + H2 * lanes + i)
        store(tile, dzp + i, dz * (1.0 - value * value))
    product(packed, o + w.W_z_T, tile, dzp, f.dsgz, H2 + s.Z, s.Z, False)


@inner
def _to_state(s, f, packed, weights, tile, source, depth, masked):
    """Adds to `f.dh` the gradient of the state through a transposed weight and through dropout."""
    if not masked:
        product(packed, weights, tile, source, f.dh, s.H, depth, True)
        return
    product(packed, weights, tile, source, f.dhm, s.H, depth, False)
    lanes = lane_count(tile)
    for i in range(0, s.H * lanes, lanes):
        store(tile, f.dh + i, load(tile, f.dh + i) + load(tile, f.dhm + i) * load(tile, f.mask + i))


@inner
def gate_back(s, w, f, packed, o, tile, masked, dat):
    """Through `α_t = sigm(W_ah h + u_a)`: its gradient before the sigmoid to `dat`, and on to the state."""
    lanes = lane_count(tile)
    for i in range(0, s.H * lanes, lanes):
        value = load(tile, f.alpha_t + i)
        store(tile, dat + i, load(tile, f.dalpha_t + i) * (value * (1.0 - value)))
    _to_state(s, f, packed, o + w.W_ah_T, tile, dat, s.H, masked)


@inner
def _back(s, w, f, packed, o, tile, masked, depth, bw, bz, r_step):
    """From the gradient at `f.dh` of the state after the time step to that of the state before it."""
    H, H2, lanes = s.H, 2 * s.H, lane_count(tile)
    hypernetwork = s.kind != NONE
    fill(tile, f.dalpha_t, H * lanes, 0.0)
    fill(tile, f.dsgz, (H2 + s.Z) * lanes, 0.0)
    if hypernetwork:
        fill(tile, f.dc, H2 * lanes, 0.0)
        fill(tile, f.da, H2 * lanes, 0.0)
    panels = panel_rows(H) * H2
    for r in range(depth, 0, -1):
        k = r - 1
        d, h = f.d + k * f.d_step, f.h + k * f.H_step
        wg = f.wg1 if r == 1 else f.wg + (k - 1) * f.G_step
        wh, c, a = f.wh + k * f.H2_step, f.c + k * f.H2_step, f.a + k * f.H2_step
        sgz = f.sgz + (bz + k) * f.sgz_step
        own = k if s.sets > 1 else 0
        dwh = f.dwh + (bw + k * r_step) * f.H2_step
        update_back(s, w, f, packed, o, tile, r, d, h, sgz, f.acc_b + own * H2 * lanes)
        dwg = f.acc_w1 if r == 1 else f.dwg + (bz + k - 1) * f.G_step
        mix_back(s.kind, H, tile, f, r == 1, wh, wg, h, c, a, dwh, dwg)
        _to_state(s, f, packed, o + w.W_h_T + own * panels, tile, dwh, H2, masked)
        if hypernetwork:
            if r > 1:
                dzp = f.dzp + (bz + k - 1) * f.z_step
                hyper_back(s, w, f, packed, o, tile, f.z + (bz + k - 1) * f.z_step, dwg, dzp)
            else:
                for i in range(0, s.Z * lanes, lanes):
                    total = load(tile, f.acc_z1 + i) + load(tile, f.dsgz + H2 * lanes + i)
                    store(tile, f.acc_z1 + i, total)


@inner
def _row_sums(tile, source, step, count, rows, target):
    """Adds `count` entries, `step` apart, to the rows at `target`."""
    lanes = lane_count(tile)
    for i in range(0, rows * lanes, lanes):
        total = zeros(tile)
        for k in range(count):
            total = total + load(tile, source + k * step + i)
        store(tile, target + i, load(tile, target + i) + total)


@inner
def _flush(s, g, f, tile, sums, o, n_w, n_z, n_t, r_step):
    """Computes weight gradients from the stash: `n_w` inner steps, `n_z` of them with r > 1, `n_t` time steps."""
    H, H2, Z = s.H, 2 * s.H, s.Z
    if s.X > 0:
        U = 3 * H if s.elastic else H2
        outer_sums(tile, f.du, f.U_step, U, f.x, f.X_step, s.X, n_t, sums, o + g.W_x)
        if s.elastic:
            _row_sums(tile, f.du + H2 * lane_count(tile), f.U_step, n_t, H, f.acc_ba)
    if s.sets > 1:
        block = panel_rows(H2) * panel_rows(H)
        for r in range(s.R):
            a, b = f.dwh + r * r_step * f.H2_step, f.hm + r * r_step * f.H_step
            outer_sums(tile, a, f.H2_step, H2, b, f.H_step, H, n_t, sums, o + g.W_h + r * block)
        return
    outer_sums(tile, f.dwh, f.H2_step, H2, f.hm, f.H_step, H, n_w, sums, o + g.W_h)
    if s.elastic:
        dat = f.du + H2 * lane_count(tile)
        outer_sums(tile, dat, f.U_step, H, f.hp, f.H_step, H, n_t, sums, o + g.W_ah)
    if s.kind != NONE:
        outer_sums(tile, f.dzp, f.z_step, Z, f.sgz, f.sgz_step, H2 + Z, n_z, sums, o + g.W_z)
        outer_sums(tile, f.dwg, f.G_step, s.G, f.z, f.z_step, Z, n_z, sums, o + g.P)
        _row_sums(tile, f.dzp, f.z_step, n_z, Z, f.acc_bz)
        if s.G > H2:
            _row_sums(tile, f.dwg + H2 * lane_count(tile), f.G_step, n_z, H2, f.acc_bbar)


@inner
def _lane_sums(tile, source, rows, sums, target):
    lanes = lane_count(tile)
    for i in range(rows):
        put(sums, target + i, get(sums, target + i) + lane_sum(load(tile, source + i * lanes)))


@inner
def _finish(s, g, f, tile, sums, o):
    _lane_sums(tile, f.acc_b, s.sets * 2 * s.H, sums, o + g.b)
    if s.elastic:
        _lane_sums(tile, f.acc_alpha, s.H, sums, o + g.alpha)
        _lane_sums(tile, f.acc_beta, s.H, sums, o + g.beta)
        if s.X > 0:
            _lane_sums(tile, f.acc_ba, s.H, sums, o + g.b_a)
    if s.kind != NONE:
        _lane_sums(tile, f.acc_w1, s.G, sums, o + g.w1)
        _lane_sums(tile, f.acc_z1, s.Z, sums, o + g.z1)
        _lane_sums(tile, f.acc_bz, s.Z, sums, o + g.b_z)
        _lane_sums(tile, f.acc_bbar, 2 * s.H, sums, o + g.b_bar)


@inner
def _state_before(s, f, tile, e, t, begin, count, known, reverse, sizes, starts, N, h0, out):
    """The states before this time step: those after the step before it, and initial ones (from `known` on)."""
    B, H = sizes[0], s.H
    if known > 0:
        before = t + 1 if reverse else t - 1
        rows_in(tile, f.h, out, (e * N + starts[before] + begin) * H, H, known, H)
    if count > known:
        rows_in(tile, f.h + known, h0, (e * B + begin + known) * H, H, count - known, H)


@inner
def _sequence(
    s, w, g, f, packed, o, tile, mask, masked, reverse, e, begin, end, inputs, h0, sizes, starts, out, d_out,
    d_inputs, with_inputs, d_h0, sums, slot,
):  # fmt: skip
    """Samples `begin` … `end − 1` of member e."""
    T, B, N, H, lanes = sizes.size, sizes[0], starts[sizes.size], s.H, lane_count(tile)
    U = 3 * H if s.elastic else 2 * H
    fill(tile, 0, f.acc_end, 0.0)
    if masked:
        rows_in(tile, f.mask, mask, (e * B + begin) * H, H, end - begin, H)
    if s.kind != NONE:
        spread_rows(packed, o + w.w1, s.G, tile, f.wg1)
    n_w, n_z, n_t = 0, 0, 0
    apart = f.capacity // s.R  # an RHN's stash keeps each r together
    r_step = apart if s.sets > 1 else 1
    for step in range(T):
        t = step if reverse else T - 1 - step
        count = min(sizes[t], end) - begin
        if count <= 0:
            continue
        row = e * N + starts[t] + begin
        x = f.x + n_t * f.X_step
        # Lanes without a sample must have finite values.
        if count < lanes:
            fill(tile, x, s.X * lanes, 0.0)
        if count < end - begin:
            fill(tile, f.u, U * lanes, 0.0)
            fill(tile, f.h, H * lanes, 0.0)
        project(s, w, packed, o, tile, inputs, row, count, x, f.u)
        known = 0 if t == (T - 1 if reverse else 0) else count
        if reverse and t + 1 < T:
            known = max(min(sizes[t + 1], end) - begin, 0)
        _state_before(s, f, tile, e, t, begin, count, known, reverse, sizes, starts, N, h0, out)
        add_gradient(s, f, tile, d_out, row, count)
        bw = n_t if s.sets > 1 else n_w
        depth = time_step(s, w, f, f, packed, o, tile, masked, count, bw, n_z, r_step)
        if s.elastic:
            copy_rows(tile, f.hm + bw * f.H_step, f.hp + n_t * f.H_step, H)
        _back(s, w, f, packed, o, tile, masked, depth, bw, n_z, r_step)
        du = f.du + n_t * f.U_step
        if depth == 0:
            fill(tile, du, 2 * H * lanes, 0.0)
        else:
            copy_rows(tile, f.dpre, du, 2 * H)
        if s.elastic:
            gate_back(s, w, f, packed, o, tile, masked, du + 2 * H * lanes)
        if s.X == 0:
            rows_out(tile, du, d_inputs, row * U, U, count, U)
        elif with_inputs:
            product(packed, o + w.W_x_T, tile, du, f.dx, s.X, U, False)
            rows_out(tile, f.dx, d_inputs, row * s.X, s.X, count, s.X)
        n_w, n_z, n_t = n_w + depth, n_z + max(depth - 1, 0), n_t + 1
        if (n_t == apart) if s.sets > 1 else (n_w + s.R > f.capacity or n_t == f.capacity):
            _flush(s, g, f, tile, sums, slot, n_w, n_z, n_t, r_step)
            n_w, n_z, n_t = 0, 0, 0
    _flush(s, g, f, tile, sums, slot, n_w, n_z, n_t, r_step)
    rows_out(tile, f.dh, d_h0, (e * B + begin) * H, H, end - begin, H)
    _finish(s, g, f, tile, sums, slot)


def backward(
    s, w, g, f, half_f, packed, size, inputs, h0, mask, masked, sizes, starts, reverse, span, members, parts,
    progress, patience, scratch, out, d_out, d_inputs, with_inputs, d_h0, sums,
):  # fmt: skip
    """As `forward.forward`. Part k of member e adds to its own place in `sums` (members, parts, ·)."""
    B, whole = sizes[0], whole_tile(scratch)
    lanes = lane_count(whole)
    tiles = (B + span - 1) // span
    while True:
        part = fetch_add(progress, 0)
        if part >= members * parts:
            break
        e, part = part % members, part // members
        slot, o = (e * parts + part) * g.size, e * size
        fill(sums, slot, g.size, 0.0)
        for k in range(tiles * part // parts, tiles * (part + 1) // parts):
            begin, end = k * span, min(B, (k + 1) * span)
            if 2 * (end - begin) > lanes:
                _sequence(
                    s, w, g, f, packed, o, whole, mask, masked, reverse, e, begin, end, inputs, h0, sizes, starts,
                    out, d_out, d_inputs, with_inputs, d_h0, sums, slot,
                )  # fmt: skip
            else:
                _sequence(
                    s, w, g, half_f, packed, o, half_tile(scratch), mask, masked, reverse, e, begin, end, inputs,
                    h0, sizes, starts, out, d_out, d_inputs, with_inputs, d_h0, sums, slot,
                )  # fmt: skip
        fetch_add(progress, 1)
    rest(progress, members * parts, patience)
