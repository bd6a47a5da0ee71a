"""The forward pass of whole sequences, tile by tile."""

# numba types these functions from their arguments, and `intrinsic` hides those of the vector operations.
# mypy: ignore-errors

from __future__ import annotations

from .layout import BLOCK, NONE
from .products import product
from .steps import (
    fill,
    gate,
    hyper,
    local_decay,
    masked_rows,
    mix,
    open_gate,
    project,
    rest,
    rows_in,
    rows_out,
    spread_rows,
    update,
)
from .vectors import fetch_add, get, half_tile, inner, lane_count, put, whole_tile


@inner
def time_step(s, w, f, packed, o, tile, masked, count, cost):
    """All inner steps of one time step, on the state at `f.h`."""
    H, H2, lanes = s.H, 2 * s.H, lane_count(tile)
    hm = f.hm if masked else f.h
    if masked:
        masked_rows(tile, f.h, f.mask, f.hm, H)
    if s.elastic:
        local_decay(s, w, packed, o, tile, hm, f.u + H2 * lanes, f.alpha_t)
    else:
        open_gate(s, tile, f.d, count)
    if s.kind != NONE:
        spread_rows(packed, o + w.z1, s.Z, tile, f.sgz + H2 * lanes)
        fill(tile, f.c, H2 * lanes, 0.0)
        fill(tile, f.a, H2 * lanes, 1.0)
    panels = (H2 + BLOCK - 1) // BLOCK * BLOCK * H
    for r in range(1, s.R + 1):
        if s.elastic and not gate(s, w, packed, o, tile, f.alpha_t, f.d, f.d, f.fall, r, count, cost):
            return
        if masked and r > 1:
            masked_rows(tile, f.h, f.mask, f.hm, H)
        own = r - 1 if s.sets > 1 else 0
        wg = f.wg1
        if r > 1 and s.kind != NONE:
            wg, z = f.wg, f.sgz + H2 * lanes
            hyper(s, w, packed, o, tile, f.sgz, z, z, wg, f.tmp)
        product(packed, o + w.W_h + own * panels, tile, hm, f.wh, H2, H, False)
        mix(s.kind, H, tile, f.wh, wg, f.h, f.c, f.c, f.a, f.a, f.sgz)
        update(H, packed, o + w.b + own * H2, tile, f.sgz, f.u, r == 1, f.d, f.h, f.h)


@inner
def _write(s, tile, f, cost, row, count, out, depth, costs):
    lanes = lane_count(tile)
    rows_out(tile, f.h, out, row * s.H, s.H, count, s.H)
    for lane in range(count):
        if s.elastic:
            put(depth, row + lane, int(get(tile, cost + lanes + lane)))
            put(costs, row + lane, get(tile, cost + lane) / s.H)
        else:
            put(depth, row + lane, s.R)
            put(costs, row + lane, s.R)


@inner
def _sequence(
    s, w, f, packed, o, tile, e, begin, end, inputs, h0, mask, masked, sizes, starts, reverse, out, depth, costs
):  # fmt: skip
    """Samples `begin` … `end − 1` of member e."""
    T, B, N = sizes.size, sizes[0], starts[sizes.size]
    lanes = lane_count(tile)
    cost = f.size  # two rows behind the others: cost and depth
    fill(tile, 0, f.size + 2 * lanes, 0.0)
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
        fill(tile, cost, 2 * lanes, 0.0)
        time_step(s, w, f, packed, o, tile, masked, count, cost)
        _write(s, tile, f, cost, row, count, out, depth, costs)


def forward(
    s, w, f, half_f, packed, size, inputs, h0, mask, masked, sizes, starts, reverse, span, members, parts,
    progress, patience, scratch, out, depth, costs,
):  # fmt: skip
    """Takes part after part of the work until there is none left; all workers do so at the same time.

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
                    depth, costs,
                )  # fmt: skip
            else:
                _sequence(
                    s, w, half_f, packed, o, half_tile(scratch), e, begin, end, inputs, h0, mask, masked, sizes,
                    starts, reverse, out, depth, costs,
                )  # fmt: skip
        fetch_add(progress, 1)
    rest(progress, members * parts, patience)
