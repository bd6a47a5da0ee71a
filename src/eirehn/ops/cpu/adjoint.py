"""The stages of `steps`, walked back. README.md derives them; a leading d stands for a gradient."""

# numba types these functions from their arguments, and `intrinsic` hides those of the vector operations.
# mypy: ignore-errors

from __future__ import annotations

from .layout import ADDITIVE, BOUNDED, GATED, NONE, PAPER, RECURSIVE, SCALING
from .products import product
from .vectors import get, inner, lane_count, load, put, spread, store, vtanh, where


@inner
def add_cost(s, f, tile, d_out, d_cost, with_cost, row, count):
    """The gradients that enter at this time step: of the output, and of the mean gate (to row `f.size + 2`)."""
    lanes = lane_count(tile)
    for lane in range(count):
        for i in range(s.H):
            at = f.dh + i * lanes + lane
            put(tile, at, get(tile, at) + get(d_out, (row + lane) * s.H + i))
    for lane in range(lanes):
        share = get(d_cost, row + lane) / s.H if with_cost and lane < count else 0.0
        put(tile, f.size + 2 * lanes + lane, share)


@inner
def update_back(s, w, f, packed, o, tile, r, d, h, sgz, acc_b):
    """Through `h^r = g s + (1−g) h`, `g = d ĝ`, the gate d and the two activations, to `f.dpre`.

    `f.dh` becomes the carried part `(1−g) dh`; `f.dsgz` holds what comes from the hypernetwork's next step.
    """
    H, lanes = s.H, lane_count(tile)
    half = H * lanes
    share = load(tile, f.size + 2 * lanes)
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
            dd = where(allowed != 0.0, dg * opening + share, 0.0)
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
def gate_back(s, w, f, packed, o, tile, masked, dat):
    """Through `α_t = sigm(W_ah h + u_a)`: its gradient before the sigmoid to `dat`, and on to the state."""
    lanes = lane_count(tile)
    for i in range(0, s.H * lanes, lanes):
        value = load(tile, f.alpha_t + i)
        store(tile, dat + i, load(tile, f.dalpha_t + i) * (value * (1.0 - value)))
    if not masked:
        product(packed, o + w.W_ah_T, tile, dat, f.dh, s.H, s.H, True)
        return
    product(packed, o + w.W_ah_T, tile, dat, f.dhm, s.H, s.H, False)
    for i in range(0, s.H * lanes, lanes):
        store(tile, f.dh + i, load(tile, f.dh + i) + load(tile, f.dhm + i) * load(tile, f.mask + i))
