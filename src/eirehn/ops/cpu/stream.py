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

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .forward import copy_rows, fill, gate, mix, open_gate, update
from .layout import NONE
from .pack import copy, sigm, softplus
from .products import Loop, add_neighbours
from .simd import (
    element_pointer,
    emit,
    first_lanes,
    get,
    inner,
    intp,
    itemsize,
    lane_count,
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

# Where their addresses stand, in the order of `call.NAMES`.
W_H, W_X, B, W_AH, W_AX, B_A, ALPHA, BETA, W_ZH, W_ZG, W_Z, B_Z, S_0, G_0, Z_0, P, P_BAR, B_BAR = range(18)


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
def _left_over(tile, weights, rows, columns, place):
    """What of each row stands behind the last whole register."""
    lanes = lane_count(tile)
    whole = columns // lanes * lanes
    if whole < columns:
        for row in range(rows):
            copy(weights, row * columns + whole, columns - whole, tile, place + row * lanes)


@inner
def _copied(tile, addresses, number, rows, count, place, width):
    """Parameter `number`: `rows` rows of `count` numbers, each to the start of a vector of `width`."""
    for row in range(rows):
        copy(tile_at(tile, addresses[number]), row * count, count, tile, place + row * width)


@inner
def _change(s, f, tile, addresses, z, wg, width):
    """`w = P z` and `ḡ = sigm(P̄ z + b̄)`."""
    H, Z, lanes = s.H, s.Z, lane_count(tile)
    for half in range(2):
        w, left, at = half * H * Z, half * H * lanes, wg + half * width
        _product(tile, tile_at(tile, addresses[P]), w, f.P + left, H, Z, z, at, False)
        if s.G > 2 * H:
            at += 2 * width
            _product(tile, tile_at(tile, addresses[P_BAR]), w, f.P_bar + left, H, Z, z, at, False)
    if s.G > 2 * H:
        for i in range(0, 2 * width, lanes):
            at = wg + 2 * width + i
            store(tile, at, vsigmoid(load(tile, at) + load(tile, f.b_bar + i)))


@inner
def _hyper(s, f, tile, addresses, z, width):
    """`z` of the next inner step, from `[s; ĝ]` and z of the last."""
    H, Z, lanes = s.H, s.Z, lane_count(tile)
    _product(tile, tile_at(tile, addresses[W_ZH]), 0, f.W_zh, Z, H, f.sg, f.tmp, False)
    _product(tile, tile_at(tile, addresses[W_ZG]), 0, f.W_zg, Z, H, f.sg + width, f.tmp, True)
    _product(tile, tile_at(tile, addresses[W_Z]), 0, f.W_z, Z, Z, f.z, f.tmp, True)
    for i in range(0, Z, lanes):
        store(tile, z + i, vtanh(load(tile, f.tmp + i) + load(tile, f.b_z + i)))


@inner
def _gates(s, f, tile, addresses, limit):
    """`α = softplus(α̂)`, `e^α` and `β = sigm(β̂)`."""
    alpha_hat, beta_hat = tile_at(tile, addresses[ALPHA]), tile_at(tile, addresses[BETA])
    for i in range(s.H):
        put(tile, f.alpha + i, softplus(get(alpha_hat, i)))
        alpha = get(tile, f.alpha + i)
        alpha = limit if alpha > limit else alpha
        put(tile, f.alpha + i, alpha)
        put(tile, f.e_alpha + i, math.exp(alpha))
        put(tile, f.beta + i, sigm(get(beta_hat, i)))


@inner
def _before(s, units, f, tile, addresses, limit):
    """What is the same at all time steps."""
    H, Z, X, lanes = s.H, s.Z, s.X, lane_count(tile)
    width = units.H * lanes
    _left_over(tile, tile_at(tile, addresses[W_H]), s.sets * 2 * H, H, f.W_h)
    _left_over(tile, tile_at(tile, addresses[W_X]), 2 * H, X, f.W_x)
    _copied(tile, addresses, B, 2 * s.sets, H, f.b, width)
    if s.elastic:
        _left_over(tile, tile_at(tile, addresses[W_AH]), H, H, f.W_ah)
        _left_over(tile, tile_at(tile, addresses[W_AX]), H, X, f.W_ax)
        _copied(tile, addresses, B_A, 1, H, f.b_a, width)
        _gates(s, f, tile, addresses, limit)
    else:
        open_gate(units, tile, f.d, lanes)
    if s.kind == NONE:
        return
    _left_over(tile, tile_at(tile, addresses[W_ZH]), Z, H, f.W_zh)
    _left_over(tile, tile_at(tile, addresses[W_ZG]), Z, H, f.W_zg)
    _left_over(tile, tile_at(tile, addresses[W_Z]), Z, Z, f.W_z)
    _left_over(tile, tile_at(tile, addresses[P]), 2 * H, Z, f.P)
    if s.G > 2 * H:
        _left_over(tile, tile_at(tile, addresses[P_BAR]), 2 * H, Z, f.P_bar)
        _copied(tile, addresses, B_BAR, 2, H, f.b_bar, width)
    _copied(tile, addresses, B_Z, 1, Z, f.b_z, width)
    _copied(tile, addresses, S_0, 1, H, f.sg, width)
    _copied(tile, addresses, G_0, 1, H, f.sg + width, width)
    _copied(tile, addresses, Z_0, 1, Z, f.z, width)
    _hyper(s, f, tile, addresses, f.z1, width)
    _change(s, f, tile, addresses, f.z1, f.wg1, width)


@inner
def _input(s, f, tile, addresses, width):
    """What x and the state contribute to all inner steps: `W_x x` and `α_t`."""
    H, X, lanes = s.H, s.X, lane_count(tile)
    W_x = tile_at(tile, addresses[W_X])
    for half in range(2):
        _product(tile, W_x, half * H * X, f.W_x + half * H * lanes, H, X, f.x, f.u + half * width, False)
    if s.elastic:
        u_a = f.u + 2 * width
        _product(tile, tile_at(tile, addresses[W_AX]), 0, f.W_ax, H, X, f.x, u_a, False)
        _product(tile, tile_at(tile, addresses[W_AH]), 0, f.W_ah, H, H, f.h, f.alpha_t, False)
        for i in range(0, width, lanes):
            pre = load(tile, f.alpha_t + i) + (load(tile, u_a + i) + load(tile, f.b_a + i))
            store(tile, f.alpha_t + i, vsigmoid(pre))


@inner
def _time_step(s, units, f, tile, addresses):
    """All inner steps of one time step, on the state at `f.h`; how many they were."""
    H, lanes = s.H, lane_count(tile)
    width = units.H * lanes
    _input(s, f, tile, addresses, width)
    if s.kind != NONE:
        copy_rows(tile, f.z1, f.z, units.Z)
        fill(tile, f.c, 2 * width, 0.0)
        fill(tile, f.a, 2 * width, 1.0)
    for r in range(1, s.R + 1):
        if s.elastic and not gate(units, f, tile, 0, tile, f.alpha_t, f.d, f.d, f.fall, r, lanes, f.depth):
            return r - 1
        wg = f.wg1
        if r > 1 and s.kind != NONE:
            wg = f.wg
            _hyper(s, f, tile, addresses, f.z, width)
            _change(s, f, tile, addresses, f.z, wg, width)
        own = r - 1 if s.sets > 1 else 0
        for half in range(2):
            row, at = (2 * own + half) * H, f.wh + half * width
            _product(tile, tile_at(tile, addresses[W_H]), row * H, f.W_h + row * lanes, H, H, f.h, at, False)
        mix(s.kind, units.H, tile, f.wh, wg, f.h, f.c, f.c, f.a, f.a, f.sg)
        update(units.H, tile, f.b + 2 * own * width, tile, f.sg, f.u, r == 1, f.d, f.h, f.h)
    return s.R


def one_sample(s, units, f, scratch, addresses, limit, inputs, h0, reverse, out, depth):
    """All time steps of one sample.

    `units`: as `s`, with H and Z the rows of a vector of so many units. `addresses`: of the parameters, in the
    order of `call.NAMES`. `scratch` lies as `f` says.
    """
    tile, T = register_tile(scratch), depth.size
    fill(tile, 0, f.size, 0.0)
    _before(s, units, f, tile, addresses, limit)
    copy(h0, 0, s.H, tile, f.h)
    for step in range(T):
        t = T - 1 - step if reverse else step
        copy(inputs, t * s.X, s.X, tile, f.x)
        depth[t] = _time_step(s, units, f, tile, addresses)
        copy(tile, f.h, s.H, out, t * s.H)
