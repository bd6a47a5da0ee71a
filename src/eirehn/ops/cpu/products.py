"""Matrix products on tiles, with samples in the lanes: a row is one unit of all samples.

`product` multiplies weights by a tile; `outer_sums` sums the gradient of weights. Both keep their sums in registers
over the whole inner loop, which is why they are emitted as LLVM code.
"""

# numba and llvmlite say little about their types, and a type checker cannot follow what `intrinsic` makes.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .layout import BLOCK
from .simd import (
    REGISTERS,
    Vec,
    element_pointer,
    emit,
    inner,
    intp,
    itemsize,
    lane_count,
    registers_of,
    vector_ir,
    vector_pointer,
)


class Loop:
    """`for k in range(count)` around vector sums that stay in registers."""

    def __init__(self, builder: Any, count: Any, starts: list[Any]) -> None:
        self.builder = builder
        before = builder.block
        self.body = builder.append_basic_block("k.body")
        self.done = builder.append_basic_block("k.done")
        zero = ir.Constant(intp, 0)
        some = builder.icmp_signed(">", count, zero)
        builder.cbranch(some, self.body, self.done)
        builder.position_at_end(self.body)
        self.k = builder.phi(intp)
        self.k.add_incoming(zero, before)
        self.sums = [builder.phi(start.type) for start in starts]
        for phi, start in zip(self.sums, starts, strict=True):
            phi.add_incoming(start, before)
        self.count, self.before, self.starts = count, before, starts

    def close(self, values: list[Any]) -> list[Any]:
        builder = self.builder
        after = builder.block
        following = builder.add(self.k, ir.Constant(intp, 1))
        self.k.add_incoming(following, after)
        for phi, value in zip(self.sums, values, strict=True):
            phi.add_incoming(value, after)
        builder.cbranch(builder.icmp_signed("<", following, self.count), self.body, self.done)
        builder.position_at_end(self.done)
        results = []
        for start, value in zip(self.starts, values, strict=True):
            result = builder.phi(start.type)
            result.add_incoming(start, self.before)
            result.add_incoming(value, after)
            results.append(result)
        return results


def _panels_at_once(vec: Vec) -> int:
    """At least eight sums, as two multiply-adders want, and no more than have a register beside a row of X and a
    weight. With AVX-512, which has twice as many, eight do."""
    if registers_of(vec) > 1:
        return 1
    return 3 if REGISTERS == 16 else 2


def _panel_codegen(panels: int) -> Any:
    """`Y[rows] (+)= W[rows, :] X` for the rows of so many panels."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        weights_type, tile_type = sig.args[0], sig.args[2]
        weights, w, tile, x, y, depth, accumulate = args
        vec = tile_type.vec
        lanes, out, align = ir.Constant(intp, vec.lanes), emit(builder, vec), itemsize(vec)
        block = ir.Constant(intp, BLOCK)
        targets = [
            vector_pointer(
                context, builder, tile_type, tile, builder.add(y, ir.Constant(intp, row * vec.lanes)), vec
            )
            for row in range(panels * BLOCK)
        ]
        panel_size = builder.mul(depth, block)
        bases = [
            element_pointer(
                context, builder, weights_type, weights,
                builder.add(w, builder.mul(panel_size, ir.Constant(intp, panel))),
            )
            for panel in range(panels)
        ]  # fmt: skip
        x_base = element_pointer(context, builder, tile_type, tile, x)
        loop = Loop(builder, depth, [out.const(0.0)] * (panels * BLOCK))
        x_pointer = builder.gep(x_base, [builder.mul(loop.k, lanes)], inbounds=True)
        x_k = builder.load(builder.bitcast(x_pointer, vector_ir(vec).as_pointer()), align=align)
        column = builder.mul(loop.k, block)
        sums = []
        for row, total in enumerate(loop.sums):
            place = builder.add(column, ir.Constant(intp, row % BLOCK))
            weight = builder.load(builder.gep(bases[row // BLOCK], [place], inbounds=True))
            sums.append(out.fma(out.splat(weight), x_k, total))
        totals = loop.close(sums)
        # Y is added last: beginning with it would round every term to the size of Y.
        with builder.if_else(accumulate) as (then, otherwise):
            with then:
                for target, total in zip(targets, totals, strict=True):
                    builder.store(builder.fadd(builder.load(target, align=align), total), target, align=align)
            with otherwise:
                for target, total in zip(targets, totals, strict=True):
                    builder.store(total, target, align=align)
        return context.get_dummy_value()

    return codegen


@intrinsic
def _one_panel(typingctx: Any, weights: Any, w: Any, tile: Any, x: Any, y: Any, depth: Any, accumulate: Any) -> Any:
    n = types.intp
    return types.void(weights, n, tile, n, n, n, types.boolean), _panel_codegen(1)


@intrinsic
def _panels(typingctx: Any, weights: Any, w: Any, tile: Any, x: Any, y: Any, depth: Any, accumulate: Any) -> Any:
    n = types.intp
    return types.void(weights, n, tile, n, n, n, types.boolean), _panel_codegen(_panels_at_once(tile.vec))


@intrinsic
def _at_once(typingctx: Any, tile: Any) -> Any:
    number = _panels_at_once(tile.vec)
    return types.intp(tile), lambda context, builder, sig, args: context.get_constant(types.intp, number)


@inner
def product(weights, w, tile, x, y, rows, depth, accumulate):
    """`Y = W X`, or `Y += W X`: X is `depth` rows at `tile[x]`, Y `rows` rows at `tile[y]`, rounded up to panels.

    W lies in panels of BLOCK rows, [panel][column][row], the last filled up with zeros (`pack.pack`).
    """
    lanes, some = lane_count(tile), _at_once(tile)
    panels = (rows + BLOCK - 1) // BLOCK
    for _ in range(panels // some):
        _panels(weights, w, tile, x, y, depth, accumulate)
        w += some * BLOCK * depth
        y += some * BLOCK * lanes
    for _ in range(panels % some):
        _one_panel(weights, w, tile, x, y, depth, accumulate)
        w += BLOCK * depth
        y += BLOCK * lanes


def add_neighbours(builder: Any, a: Any, b: Any, lanes: int) -> Any:
    """[a0+a1, a2+a3, …, b0+b1, …]: log2(lanes) rounds of it turn registers into their sums, side by side."""
    index = ir.VectorType(ir.IntType(32), lanes)
    even = builder.shuffle_vector(a, b, ir.Constant(index, list(range(0, 2 * lanes, 2))))
    odd = builder.shuffle_vector(a, b, ir.Constant(index, list(range(1, 2 * lanes, 2))))
    return builder.fadd(even, odd)


@intrinsic
def _outer_block(
    typingctx: Any, tile: Any, a: Any, a_step: Any, b: Any, b_step: Any, count: Any, sums: Any, target: Any
) -> Any:
    """`sums[i, k] += Σ_entry Σ_lane A[i] B[k]` for BLOCK × BLOCK rows i and k, `count` entries."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        tile_type, sums_type = sig.args[0], sig.args[6]
        tile, a, a_step, b, b_step, count, sums, target = args
        pieces = registers_of(tile_type.vec)
        vec = Vec(tile_type.dtype, tile_type.lanes // pieces)
        out, align = emit(builder, vec), itemsize(vec)
        pointer = vector_ir(vec).as_pointer()
        a_base = element_pointer(context, builder, tile_type, tile, a)
        b_base = element_pointer(context, builder, tile_type, tile, b)
        at_once = BLOCK // 2 if REGISTERS == 16 else BLOCK  # rows i whose sums all have a register

        def rows(loop: Any, base: Any, step: Any, piece: int, numbers: range) -> list[Any]:
            start = builder.mul(loop.k, step)
            places = [row * tile_type.lanes + piece * vec.lanes for row in numbers]
            addresses = [
                builder.gep(base, [builder.add(start, ir.Constant(intp, at))], inbounds=True) for at in places
            ]
            return [builder.load(builder.bitcast(address, pointer), align=align) for address in addresses]

        totals = []
        for first in range(0, BLOCK, at_once):
            loop = Loop(builder, count, [out.const(0.0)] * (BLOCK * at_once))
            values = loop.sums
            for piece in range(pieces):
                left = rows(loop, a_base, a_step, piece, range(first, first + at_once))
                right = rows(loop, b_base, b_step, piece, range(BLOCK))
                pairs = [(i, k) for i in left for k in right]
                values = [out.fma(i, k, value) for (i, k), value in zip(pairs, values, strict=True)]
            totals += loop.close(values)
        width = vec.lanes
        while width > 1:
            totals = [
                add_neighbours(builder, totals[j], totals[j + 1], vec.lanes) for j in range(0, len(totals), 2)
            ]
            width //= 2
        for j, total in enumerate(totals):
            place = builder.add(target, ir.Constant(intp, j * vec.lanes))
            address = vector_pointer(context, builder, sums_type, sums, place, vec)
            builder.store(builder.fadd(builder.load(address, align=align), total), address, align=align)
        return context.get_dummy_value()

    n = types.intp
    return types.void(tile, n, n, n, n, n, sums, n), codegen


@inner
def outer_sums(tile, a, a_step, a_rows, b, b_step, b_rows, count, sums, target):
    """Adds `Σ A Bᵀ` over lanes and `count` entries, `a_step` and `b_step` apart, to `sums[target]`.

    The sums lie in BLOCK × BLOCK blocks, [i block][k block][i][k]. A last block that is not full also
    reads the values after the rows; these sums are not used.
    """
    if count == 0:
        return
    lanes = lane_count(tile)
    for i in range(0, a_rows, BLOCK):
        for k in range(0, b_rows, BLOCK):
            _outer_block(tile, a + i * lanes, a_step, b + k * lanes, b_step, count, sums, target)
            target += BLOCK * BLOCK
