"""The forward pass of one sample, whose units lie side by side in registers.

In a tile samples do, and one sample would leave most lanes of it empty. Here weights are read as they lie in the
cell's parameters: nothing is packed, which for one word of a text takes longer than the word. A product takes as
many rows at once as a register has lanes.
"""

# numba and llvmlite say little about their types, and a type checker cannot follow what `intrinsic` makes.
# mypy: ignore-errors

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .layout import NONE
from .products import add_neighbours
from .steps import copy_rows, fill, gate, mix, open_gate, update
from .vectors import (
    Loop,
    element_pointer,
    emit,
    first_lanes,
    get,
    inner,
    intp,
    itemsize,
    lane_count,
    lane_sum,
    load,
    put,
    register_tile,
    store,
    tile_at,
    vector_ir,
    vsigmoid,
    vtanh,
    where,
)


@intrinsic
def _dots(
    typingctx: Any, weights: Any, w: Any, columns: Any, last: Any, tile: Any, left: Any, x: Any
) -> Any:  # fmt: skip
    """The products of x with as many rows as there are lanes, side by side: those from `weights[w]` on, `columns`
    long, the `last` of them (counted from 0) in place of those behind it. What `_left_over` made of them is at
    `tile[left]`."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        weights, w, columns, last, tile, left, x = args
        vec = sig.args[4].vec
        out, align, lanes = emit(builder, vec), itemsize(vec), ir.Constant(intp, vec.lanes)
        pointer = vector_ir(vec).as_pointer()

        def rows_from(memory: Any, start: Any, step: Any) -> list[Any]:
            bases = []
            for number in range(vec.lanes):
                row = ir.Constant(intp, number)
                row = builder.select(builder.icmp_signed("<", row, last), row, last)
                bases.append(
                    element_pointer(
                        context, builder, sig.args[4], memory, builder.add(start, builder.mul(row, step))
                    )
                )
            return bases

        def add(loop: Loop, bases: list[Any], x_base: Any) -> list[Any]:
            offset = builder.mul(loop.k, lanes)

            def read(base: Any) -> Any:
                address = builder.gep(base, [offset], inbounds=True)
                return builder.load(builder.bitcast(address, pointer), align=align)

            x_k = read(x_base)
            return [out.fma(read(base), x_k, total) for base, total in zip(bases, loop.sums, strict=True)]

        x_base = element_pointer(context, builder, sig.args[4], tile, x)
        full = builder.udiv(columns, lanes)
        loop = Loop(builder, full, [out.const(0.0)] * vec.lanes)
        totals = loop.close(add(loop, rows_from(weights, w, columns), x_base))
        whole = builder.mul(full, lanes)
        some = builder.zext(builder.icmp_signed("<", whole, columns), intp)
        x_left = builder.gep(x_base, [whole], inbounds=True)
        loop = Loop(builder, some, totals)
        totals = loop.close(add(loop, rows_from(tile, left, lanes), x_left))
        while len(totals) > 1:
            totals = [
                add_neighbours(builder, totals[j], totals[j + 1], vec.lanes) for j in range(0, len(totals), 2)
            ]
        return totals[0]

    n = types.intp
    return tile.vec(weights, n, n, n, tile, n, n), codegen


@inner
def _product(tile, weights, w, left, rows, columns, x, y, more):
    """`y = W x`, or where there is `more` `y += W x`; W is `rows` rows of `weights` from w on."""
    lanes = lane_count(tile)
    for row in range(0, rows, lanes):
        found = _dots(weights, w + row * columns, columns, rows - row - 1, tile, left + row * lanes, x)
        found = where(first_lanes(tile, rows - row), found, 0.0)  # what fills up a vector stays 0
        store(tile, y + row, load(tile, y + row) + found if more else found)


@inner
def _left_over(tile, weights, start, rows, columns, place):
    """What of each row stands behind the last whole register."""
    lanes = lane_count(tile)
    whole = columns // lanes * lanes
    if whole < columns:
        for row in range(rows):
            for k in range(columns - whole):
                put(tile, place + row * lanes + k, get(weights, start + row * columns + whole + k))


@inner
def _vector(tile, source, start, count, place):
    for i in range(count):
        put(tile, place + i, get(source, start + i))


@inner
def _change(s, f, tile, P, P_bar, b_bar, z, wg, width):
    """`w = P z` and `ḡ = sigm(P̄ z + b̄)`."""
    H, Z, lanes = s.H, s.Z, lane_count(tile)
    for half in range(2):
        _product(tile, P, half * H * Z, f.P + half * H * lanes, H, Z, z, wg + half * width, False)
    if s.G > 2 * H:
        for half in range(2):
            at = wg + (2 + half) * width
            _product(tile, P_bar, half * H * Z, f.P_bar + half * H * lanes, H, Z, z, at, False)
        for i in range(0, 2 * width, lanes):
            at = wg + 2 * width + i
            store(tile, at, vsigmoid(load(tile, at) + load(tile, f.b_bar + i)))


@inner
def _hyper(s, f, tile, W_zh, W_zg, W_z, sg, z, target, width):
    """`z` of the next inner step."""
    H, Z, lanes = s.H, s.Z, lane_count(tile)
    _product(tile, W_zh, 0, f.W_zh, Z, H, sg, f.tmp, False)
    _product(tile, W_zg, 0, f.W_zg, Z, H, sg + width, f.tmp, True)
    _product(tile, W_z, 0, f.W_z, Z, Z, z, f.tmp, True)
    for i in range(0, Z, lanes):
        store(tile, target + i, vtanh(load(tile, f.tmp + i) + load(tile, f.b_z + i)))


def one_sample(s, units, f, scratch, addresses, limit, inputs, h0, reverse, out, depth, costs):
    """All time steps of one sample.

    `units`: as `s`, with H and Z the rows of a vector of so many units. `addresses`: of the parameters, in the
    order of `alone.NAMES`. `scratch` lies as `f` says.
    """
    H, Z, X = s.H, s.Z, s.X
    tile = register_tile(scratch)
    lanes = lane_count(tile)
    width = units.H * lanes
    fill(tile, 0, f.size, 0.0)
    W_h, W_x, b = tile_at(tile, addresses[0]), tile_at(tile, addresses[1]), tile_at(tile, addresses[2])
    W_ah = W_ax = W_zh = W_zg = W_z = P = P_bar = b_bar = b
    _left_over(tile, W_h, 0, s.sets * 2 * H, H, f.W_h)
    _left_over(tile, W_x, 0, 2 * H, X, f.W_x)
    for half in range(2 * s.sets):
        _vector(tile, b, half * H, H, f.b + half * width)
    if s.elastic:
        W_ah, W_ax = tile_at(tile, addresses[3]), tile_at(tile, addresses[4])
        alpha_hat, beta_hat = tile_at(tile, addresses[6]), tile_at(tile, addresses[7])
        _left_over(tile, W_ah, 0, H, H, f.W_ah)
        _left_over(tile, W_ax, 0, H, X, f.W_ax)
        _vector(tile, tile_at(tile, addresses[5]), 0, H, f.b_a)
        for i in range(H):
            a = np.float64(get(alpha_hat, i))
            put(tile, f.alpha + i, max(a, 0.0) + math.log1p(math.exp(-abs(a))))
            alpha = get(tile, f.alpha + i)
            alpha = limit if alpha > limit else alpha
            put(tile, f.alpha + i, alpha)
            put(tile, f.e_alpha + i, math.exp(alpha))
            put(tile, f.beta + i, 1.0 / (1.0 + math.exp(-np.float64(get(beta_hat, i)))))
    if s.kind != NONE:
        W_zh, W_zg, W_z = tile_at(tile, addresses[8]), tile_at(tile, addresses[9]), tile_at(tile, addresses[10])
        P = tile_at(tile, addresses[15])
        _left_over(tile, W_zh, 0, Z, H, f.W_zh)
        _left_over(tile, W_zg, 0, Z, H, f.W_zg)
        _left_over(tile, W_z, 0, Z, Z, f.W_z)
        _left_over(tile, P, 0, 2 * H, Z, f.P)
        _vector(tile, tile_at(tile, addresses[11]), 0, Z, f.b_z)
        if s.G > 2 * H:
            P_bar, b_bar = tile_at(tile, addresses[16]), tile_at(tile, addresses[17])
            _left_over(tile, P_bar, 0, 2 * H, Z, f.P_bar)
            for half in range(2):
                _vector(tile, b_bar, half * H, H, f.b_bar + half * width)
        _vector(tile, tile_at(tile, addresses[12]), 0, H, f.sg)
        _vector(tile, tile_at(tile, addresses[13]), 0, H, f.sg + width)
        _vector(tile, tile_at(tile, addresses[14]), 0, Z, f.z)
        _hyper(s, f, tile, W_zh, W_zg, W_z, f.sg, f.z, f.z1, width)
        _change(s, f, tile, P, P_bar, b_bar, f.z1, f.wg1, width)
    if not s.elastic:
        open_gate(units, tile, f.d, lanes)
    _vector(tile, h0, 0, H, f.h)
    T = depth.size
    for step in range(T):
        t = T - 1 - step if reverse else step
        _vector(tile, inputs, t * X, X, f.x)
        for half in range(2):
            _product(tile, W_x, half * H * X, f.W_x + half * H * lanes, H, X, f.x, f.u + half * width, False)
        if s.elastic:
            _product(tile, W_ax, 0, f.W_ax, H, X, f.x, f.u + 2 * width, False)
            _product(tile, W_ah, 0, f.W_ah, H, H, f.h, f.alpha_t, False)
            for i in range(0, width, lanes):
                pre = load(tile, f.alpha_t + i) + (load(tile, f.u + 2 * width + i) + load(tile, f.b_a + i))
                store(tile, f.alpha_t + i, vsigmoid(pre))
        if s.kind != NONE:
            copy_rows(tile, f.z1, f.z, units.Z)
            fill(tile, f.c, 2 * width, 0.0)
            fill(tile, f.a, 2 * width, 1.0)
        fill(tile, f.cost, 2 * lanes, 0.0)
        taken = 0
        for r in range(1, s.R + 1):
            if s.elastic and not gate(units, f, tile, 0, tile, f.alpha_t, f.d, f.d, f.fall, r, lanes, f.cost):
                break
            taken = r
            wg = f.wg1
            if r > 1 and s.kind != NONE:
                wg = f.wg
                _hyper(s, f, tile, W_zh, W_zg, W_z, f.sg, f.z, f.z, width)
                _change(s, f, tile, P, P_bar, b_bar, f.z, wg, width)
            own = r - 1 if s.sets > 1 else 0
            for half in range(2):
                row = (2 * own + half) * H
                _product(tile, W_h, row * H, f.W_h + row * lanes, H, H, f.h, f.wh + half * width, False)
            mix(s.kind, units.H, tile, f.wh, wg, f.h, f.c, f.c, f.a, f.a, f.sg)
            update(units.H, tile, f.b + 2 * own * width, tile, f.sg, f.u, r == 1, f.d, f.h, f.h)
        for i in range(H):
            put(out, t * H + i, get(tile, f.h + i))
        depth[t] = taken
        put(costs, t, lane_sum(load(tile, f.cost)) / H if s.elastic else s.R)
