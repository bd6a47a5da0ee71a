"""Matrix products on tiles: samples lie in the lanes of a register, and a row is one unit of all of them.

`product` multiplies weights with a tile; `outer_sums` adds up the gradient of weights. Both keep their sums
in registers over the whole inner loop, which is why they are emitted as LLVM code.
"""

# numba and llvmlite say little about their types, and a type checker cannot follow what `intrinsic` makes.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .layout import BLOCK
from .vectors import Loop, alignment, element_pointer, emit, inner, intp, lane_count, vector_ir, vector_pointer


def _panel_codegen(panels: int) -> Any:
    """`Y[rows] (+)= W[rows, :] X` for the rows of one or two panels."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        weights_type, tile_type = sig.args[0], sig.args[2]
        weights, w, tile, x, y, depth, accumulate = args
        vec = tile_type.vec
        lanes, out, align = ir.Constant(intp, vec.lanes), emit(builder, vec), alignment(vec)
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


def _panel_intrinsic(panels: int) -> Any:
    def panel(typingctx: Any, weights: Any, w: Any, tile: Any, x: Any, y: Any, depth: Any, accumulate: Any) -> Any:
        n = types.intp
        return types.void(weights, n, tile, n, n, n, types.boolean), _panel_codegen(panels)

    panel.__name__ = f"panel_{panels}"
    return intrinsic(panel)


_one_panel = _panel_intrinsic(1)
_two_panels = _panel_intrinsic(2)


@inner
def product(weights, w, tile, x, y, rows, depth, accumulate):
    """`Y = W X`, or `Y += W X`: X is `depth` rows at `tile[x]`, Y `rows` rows at `tile[y]`, rounded up to panels.

    W lies in panels of BLOCK rows, [panel][column][row], the last filled up with zeros (`layout.pack`).
    """
    lanes = lane_count(tile)
    panels = (rows + BLOCK - 1) // BLOCK
    pairs = panels // 2
    for _ in range(pairs):
        _two_panels(weights, w, tile, x, y, depth, accumulate)
        w += 2 * BLOCK * depth
        y += 2 * BLOCK * lanes
    if panels % 2:
        _one_panel(weights, w, tile, x, y, depth, accumulate)


def _add_neighbours(builder: Any, a: Any, b: Any, lanes: int) -> Any:
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
        vec = tile_type.vec
        out, align = emit(builder, vec), alignment(vec)
        pointer = vector_ir(vec).as_pointer()
        a_base = element_pointer(context, builder, tile_type, tile, a)
        b_base = element_pointer(context, builder, tile_type, tile, b)
        loop = Loop(builder, count, [out.const(0.0)] * BLOCK**2)

        def rows(base: Any, step: Any) -> list[Any]:
            start = builder.mul(loop.k, step)
            places = [builder.add(start, ir.Constant(intp, row * vec.lanes)) for row in range(BLOCK)]
            pointers = [builder.bitcast(builder.gep(base, [place], inbounds=True), pointer) for place in places]
            return [builder.load(address, align=align) for address in pointers]

        left, right = rows(a_base, a_step), rows(b_base, b_step)
        pairs = [(i, k) for i in left for k in right]
        totals = loop.close([out.fma(i, k, s) for (i, k), s in zip(pairs, loop.sums, strict=True)])
        width = vec.lanes
        while width > 1:
            totals = [
                _add_neighbours(builder, totals[j], totals[j + 1], vec.lanes) for j in range(0, len(totals), 2)
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

    The sums lie in BLOCK × BLOCK blocks, [i block][k block][i][k]. A last block that is not full reads what
    lies behind the rows, and its surplus sums are never used.
    """
    if count == 0:
        return
    lanes = lane_count(tile)
    for i in range(0, a_rows, BLOCK):
        for k in range(0, b_rows, BLOCK):
            _outer_block(tile, a + i * lanes, a_step, b + k * lanes, b_step, count, sums, target)
            target += BLOCK * BLOCK
