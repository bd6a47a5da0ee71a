"""The forward pass of whole sequences, tile by tile; `tile` is a worker's scratch memory.

The backward pass, which computes each time step again, and `stream` use the stages of an inner step, too. Stages
without a matrix product work the same on vectors of samples and of units: for `stream` `H` is the number of rows,
and `packed` is scratch memory, too.
"""

# numba types these functions from their arguments, and `intrinsic` hides those of the vector operations.
# mypy: ignore-errors

from __future__ import annotations

from numba import njit

from .layout import ADDITIVE, BOUNDED, NO_STEPS, NONE, PAPER, RECURSIVE, SCALING
from .products import product
from .simd import (
    any_lane,
    fetch,
    fetch_add,
    first_lanes,
    get,
    half_tile,
    inner,
    lane_count,
    load,
    of_unit,
    panel_rows,
    put,
    spread,
    store,
    vexpm1,
    vsigmoid,
    vtanh,
    where,
    whole_tile,
    zeros,
)


@inner
def rest(progress, parts, patience):
    """Waits briefly for other workers to end: waking up takes longer than most of them still need."""
    while patience > 0 and fetch(progress, 1) < parts:
        patience -= 1


@inner
def rows_in(tile, place, source, start, width, count, rows):
    """Copies the vectors of samples (`count` rows of `width` in `source`) into lanes; `rows` values of each."""
    lanes = lane_count(tile)
    for lane in range(count):
        for i in range(rows):
            put(tile, place + i * lanes + lane, get(source, start + lane * width + i))


@inner
def rows_out(tile, place, target, start, width, count, rows):
    lanes = lane_count(tile)
    for lane in range(count):
        for i in range(rows):
            put(target, start + lane * width + i, get(tile, place + i * lanes + lane))


@inner
def fill(tile, place, count, value):
    for k in range(place, place + count):
        put(tile, k, value)


@inner
def spread_rows(source, start, rows, tile, place):
    """Copies one value of `source` to all lanes of each row."""
    lanes = lane_count(tile)
    for i in range(rows):
        store(tile, place + i * lanes, spread(tile, source, start + i))


@inner
def masked_rows(tile, h, mask, target, rows):
    lanes = lane_count(tile)
    for i in range(0, rows * lanes, lanes):
        store(tile, target + i, load(tile, h + i) * load(tile, mask + i))


@inner
def copy_rows(tile, source, target, rows):
    lanes = lane_count(tile)
    for i in range(0, rows * lanes, lanes):
        store(tile, target + i, load(tile, source + i))


@inner
def project(s, w, packed, o, tile, source, row, count, x, u):
    """Writes the projected input of the time step to `u`: as given, or computed from the inputs (kept at `x`)."""
    lanes = lane_count(tile)
    U = 3 * s.H if s.elastic else 2 * s.H
    if s.X == 0:
        rows_in(tile, u, source, row * U, U, count, U)
        return
    rows_in(tile, x, source, row * s.X, s.X, count, s.X)
    product(packed, o + w.W_x, tile, x, u, U, s.X, False)
    if s.elastic:
        for i in range(s.H):
            at = u + (2 * s.H + i) * lanes
            store(tile, at, load(tile, at) + spread(tile, packed, o + w.b_a + i))


@inner
def local_decay(s, w, packed, o, tile, hm, u_a, alpha_t):
    """`α_t = sigm(W_ah h + u_a)`."""
    product(packed, o + w.W_ah, tile, hm, alpha_t, s.H, s.H, False)
    lanes = lane_count(tile)
    for i in range(0, s.H * lanes, lanes):
        store(tile, alpha_t + i, vsigmoid(load(tile, alpha_t + i) + load(tile, u_a + i)))


@inner
def gate(s, w, packed, o, tile, alpha_t, d_before, d, fall, r, count, depth):
    """`d^r = max(β − fall, 0)`. Adds 1 to the `depth` of samples with an open unit; returns whether there are any.

    At r > 1 a unit is open if it was at r−1 (`d_before`) and `d > 0`; at r = 1 also where d is NaN. So
    `d ≠ 0` means open at every r. Lanes without a sample are closed.
    """
    lanes = lane_count(tile)
    running = first_lanes(tile, count)
    reached, one = zeros(tile), zeros(tile) + 1.0
    for i in range(s.H):
        at = i * lanes
        v = of_unit(tile, packed, o + w.alpha, i) * (r - 1) + load(tile, alpha_t + at) * r
        v = where(v > 1.0, one, v)
        fallen = of_unit(tile, packed, o + w.e_alpha, i) * vexpm1(v)
        gap = of_unit(tile, packed, o + w.beta, i) - fallen
        if r == 1:
            is_open = running & ((gap > 0.0) | (gap != gap))
        else:
            is_open = running & ((gap > 0.0) & (load(tile, d_before + at) != 0.0))
        gap = where(is_open, gap, 0.0)
        reached = where(is_open, one, reached)
        store(tile, d + at, gap)
        store(tile, fall + at, fallen)
    store(tile, depth, load(tile, depth) + reached)
    return any_lane(reached > 0.0)


@inner
def open_gate(s, tile, d, count):
    """`d = 1` for every sample of the tile: networks of fixed depth."""
    lanes = lane_count(tile)
    value = where(first_lanes(tile, count), zeros(tile) + 1.0, 0.0)
    for i in range(0, s.H * lanes, lanes):
        store(tile, d + i, value)


@inner
def hyper(s, w, packed, o, tile, sgz, z, z_copy, wg, tmp):
    """`z^r` from `[s; ĝ; z]^{r-1}`, to two places, then `w = P z` and `ḡ = sigm(P̄ z + b̄)`. For r > 1."""
    lanes = lane_count(tile)
    H2 = 2 * s.H
    product(packed, o + w.W_z, tile, sgz, tmp, s.Z, H2 + s.Z, False)
    for i in range(s.Z):
        value = vtanh(load(tile, tmp + i * lanes) + spread(tile, packed, o + w.b_z + i))
        store(tile, z + i * lanes, value)
        store(tile, z_copy + i * lanes, value)
    product(packed, o + w.P, tile, z, wg, s.G, s.Z, False)
    for i in range(s.G - H2):
        at = wg + (H2 + i) * lanes
        store(tile, at, vsigmoid(load(tile, at) + spread(tile, packed, o + w.b_bar + i)))


@inner
def mix(kind, H, tile, wh, wg, h, c, c_new, a, a_new, pre):
    """`W^r h`, from the shared product `wh`, the change `wg = [w; ḡ]` and what is carried from step to step."""
    lanes = lane_count(tile)
    half = H * lanes
    gates = wg + 2 * half
    for i in range(0, 2 * half, lanes):
        Wh = load(tile, wh + i)
        if kind == NONE:
            store(tile, pre + i, Wh)
            continue
        hh = load(tile, h + (i if i < half else i - half))
        change = load(tile, wg + i)
        if kind == PAPER:
            g_bar = load(tile, gates + i)
            before = load(tile, c + i)
            store(tile, pre + i, g_bar * (Wh + before * hh) + (1.0 - g_bar) * change * hh)
            store(tile, c_new + i, before + change)
        elif kind in (RECURSIVE, BOUNDED):
            if kind == BOUNDED:
                change = vtanh(change)
            g_bar = load(tile, gates + i)
            scale = g_bar * load(tile, a + i)
            shift = g_bar * load(tile, c + i) + (1.0 - g_bar) * change
            store(tile, pre + i, scale * Wh + shift * hh)
            store(tile, a_new + i, scale)
            store(tile, c_new + i, shift)
        elif kind == ADDITIVE:
            shift = load(tile, c + i) + change
            store(tile, pre + i, Wh + shift * hh)
            store(tile, c_new + i, shift)
        elif kind == SCALING:
            store(tile, pre + i, (1.0 + change) * Wh)


@inner
def update(H, packed, b, tile, pre, u, first, d, h, h_new):
    """`pre` becomes `[s; ĝ]`; then `h ← g s + (1 − g) h` with `g = d ĝ`. A closed unit keeps its bits."""
    lanes = lane_count(tile)
    half = H * lanes
    for i in range(H):
        at = i * lanes
        residual = load(tile, pre + at) + of_unit(tile, packed, b, i)
        opening = load(tile, pre + half + at) + of_unit(tile, packed, b, H + i)
        if first:
            residual = residual + load(tile, u + at)
            opening = opening + load(tile, u + half + at)
        residual, opening = vtanh(residual), vsigmoid(opening)
        store(tile, pre + at, residual)
        store(tile, pre + half + at, opening)
        allowed = load(tile, d + at)
        g = allowed * opening
        old = load(tile, h + at)
        store(tile, h_new + at, where(allowed != 0.0, g * residual + (1.0 - g) * old, old))


@inner
def read_state(s, f, steps, tile, masked, h, hm):
    """The place of the state that the products read: `hm` after dropout, or where it is kept, else h itself."""
    if masked:
        masked_rows(tile, h, f.mask, hm, s.H)
    elif steps.H_step > 0:
        copy_rows(tile, h, hm, s.H)
    else:
        return h
    return hm


@njit(inline="always")  # so that the forward pass, whose steps are the constant 0, is not slower
def time_step(s, w, f, steps, packed, o, tile, masked, count, at, at_z, r_step):
    """Computes all inner steps of one time step, from the state at `f.h`, and returns their number.

    `steps` are the distances between the values of one inner step and the next: 0 in the forward pass, which keeps
    none. The backward pass keeps all, and writes what the weight gradients need to the stash, from entry `at` on,
    `r_step` entries apart, and that of the hypernetwork from entry `at_z` on.
    """
    H, H2, lanes = s.H, 2 * s.H, lane_count(tile)
    hm = read_state(s, f, steps, tile, masked, f.h, f.hm + at * steps.H_step)
    if s.elastic:
        local_decay(s, w, packed, o, tile, hm, f.u + H2 * lanes, f.alpha_t)
    else:
        open_gate(s, tile, f.d, count)
    if s.kind != NONE:
        spread_rows(packed, o + w.z1, s.Z, tile, f.sgz + at_z * steps.sgz_step + H2 * lanes)
        fill(tile, f.c, H2 * lanes, 0.0)
        fill(tile, f.a, H2 * lanes, 1.0)
    panels = panel_rows(H2) * H
    for k in range(s.R):
        d, h = f.d + k * steps.d_step, f.h + k * steps.H_step
        if s.elastic:
            fall = f.fall + k * steps.H_step
            if not gate(s, w, packed, o, tile, f.alpha_t, d - steps.d_step, d, fall, k + 1, count, f.depth):
                return k
        if k > 0:
            hm = read_state(s, f, steps, tile, masked, h, f.hm + (at + k * r_step) * steps.H_step)
        wg, wh, c, a = f.wg1, f.wh + k * steps.H2_step, f.c + k * steps.H2_step, f.a + k * steps.H2_step
        sgz = f.sgz + (at_z + k) * steps.sgz_step
        if k > 0 and s.kind != NONE:
            wg, z = f.wg + (k - 1) * steps.G_step, f.z + (at_z + k - 1) * steps.z_step
            hyper(s, w, packed, o, tile, sgz - steps.sgz_step, z, sgz + H2 * lanes, wg, f.tmp)
        own = k if s.sets > 1 else 0
        product(packed, o + w.W_h + own * panels, tile, hm, wh, H2, H, False)
        mix(s.kind, H, tile, wh, wg, h, c, c + steps.H2_step, a, a + steps.H2_step, sgz)
        update(H, packed, o + w.b + own * H2, tile, sgz, f.u, k == 0, d, h, h + steps.H_step)
    return s.R


@inner
def _write(s, tile, f, row, count, out, depth):
    rows_out(tile, f.h, out, row * s.H, s.H, count, s.H)
    for lane in range(count):
        put(depth, row + lane, int(get(tile, f.depth + lane)) if s.elastic else s.R)


@inner
def _sequence(
    s, w, f, packed, o, tile, e, begin, end, inputs, h0, mask, masked, sizes, starts, reverse, out, depth
):  # fmt: skip
    """Samples `begin` … `end − 1` of member e."""
    T, B, N = sizes.size, sizes[0], starts[sizes.size]
    fill(tile, 0, f.size, 0.0)
    rows_in(tile, f.h, h0, (e * B + begin) * s.H, s.H, end - begin, s.H)
    if masked:
        rows_in(tile, f.mask, mask, (e * B + begin) * s.H, s.H, end - begin, s.H)
    if s.kind != NONE:
        spread_rows(packed, o + w.w1, s.G, tile, f.wg1)
    for step in range(T):
        t = T - 1 - step if reverse else step
        count = min(sizes[t], end) - begin
        if count <= 0:
            continue
        row = e * N + starts[t] + begin
        project(s, w, packed, o, tile, inputs, row, count, f.x, f.u)
        fill(tile, f.depth, lane_count(tile), 0.0)
        time_step(s, w, f, NO_STEPS, packed, o, tile, masked, count, 0, 0, 0)
        _write(s, tile, f, row, count, out, depth)


def forward(
    s, w, f, half_f, packed, size, inputs, h0, mask, masked, sizes, starts, reverse, span, members, parts, progress,
    patience, scratch, out, depth,
):  # fmt: skip
    """Takes parts of the work until none is left; all workers run this at the same time.

    Part k is part `k // members` of `parts` of the tiles of member `k % members`: the longest samples come first,
    and what is left over last. A tile is `span` samples, all lanes or half of them. `progress` counts parts begun
    and parts done; see `rest`. `starts` (T + 1,): the row where each time step begins. `scratch`: one worker's
    memory, which lies as `f` says, or `half_f` for a tile of half the lanes.
    """
    B, whole = sizes[0], whole_tile(scratch)
    lanes = lane_count(whole)
    tiles = (B + span - 1) // span
    while True:
        part = fetch_add(progress, 0)
        if part >= members * parts:
            break
        e, part = part % members, part // members
        o = e * size
        for k in range(tiles * part // parts, tiles * (part + 1) // parts):
            begin, end = k * span, min(B, (k + 1) * span)
            if 2 * (end - begin) > lanes:
                _sequence(
                    s, w, f, packed, o, whole, e, begin, end, inputs, h0, mask, masked, sizes, starts, reverse, out,
                    depth,
                )  # fmt: skip
            else:
                _sequence(
                    s, w, half_f, packed, o, half_tile(scratch), e, begin, end, inputs, h0, mask, masked, sizes,
                    starts, reverse, out, depth,
                )  # fmt: skip
        fetch_add(progress, 1)
    rest(progress, members * parts, patience)
