"""exp, expm1, tanh and sigmoid as LLVM vector code, to about one unit in the last place.

All four rest on `e^x = 2^n (1 + p)`: n is the integer nearest to x / ln 2, and p = e^r − 1 a polynomial of
the remainder, |r| ≤ ln 2 / 2. Both the rounding to n and the power of two add a large number and read the bits,
which is defined for NaN, too. All functions propagate NaN, and saturate at ±inf.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs


class Emit:
    """LLVM vector instructions for one vector type."""

    def __init__(self, builder: Any, vector: Any) -> None:
        self.builder, self.vector = builder, vector
        self.lanes, self.element = vector.count, vector.element
        self.single = isinstance(vector.element, ir.FloatType)

    def const(self, value: float) -> Any:
        return ir.Constant(self.vector, [value] * self.lanes)

    def splat(self, scalar: Any) -> Any:
        undefined = ir.Constant(self.vector, ir.Undefined)
        index = ir.IntType(32)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(index, 0))
        zeros = ir.Constant(ir.VectorType(index, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, undefined, zeros)

    def call(self, name: str, *args: Any) -> Any:
        suffix = f"v{self.lanes}{'f32' if self.single else 'f64'}"
        kind = ir.FunctionType(self.vector, [self.vector] * len(args))
        full = f"llvm.{name}.{suffix}"
        function = self.builder.module.globals.get(full)
        if function is None:
            function = ir.Function(self.builder.module, kind, full)
        return self.builder.call(function, args)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.call("fma", a, b, c)

    def replace(self, x: Any, relation: str, limit: float, value: float) -> Any:
        """`value` where x is beyond `limit`. NaN stays NaN, since it compares false."""
        beyond = self.builder.fcmp_ordered(relation, x, self.const(limit))
        return self.builder.select(beyond, self.const(value), x)

    def lane_sum(self, x: Any) -> Any:
        """Halves are added onto each other: a fixed order, and log2(lanes) steps."""
        builder, width = self.builder, self.lanes
        while width > 1:
            width //= 2
            other = [*range(width, 2 * width), *range(self.lanes - width)]
            mask = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), other)
            x = builder.fadd(x, builder.shuffle_vector(x, x, mask))
        return builder.extract_element(x, ir.Constant(ir.IntType(32), 0))


def _round(x: float, single: bool) -> float:
    return float(np.float32(x)) if single else x


# ln 2 in two parts, the first short enough that n times it is exact.
_LN2 = {True: (0.693359375, -2.12194440e-4), False: (6.93147180369123816490e-01, 1.90821492927058770002e-10)}
_FORMAT = {True: (23, 127, 7), False: (52, 1023, 13)}  # mantissa bits, exponent bias, terms of the polynomial
# Beyond the first number of each pair exp takes the second in place of its argument: there 2^n is inf, or 0.
_HIGH = {True: (88.3, 88.9), False: (709.0, 710.0)}
_LOW = {True: (-87.2, -88.1), False: (-708.3, -709.1)}


def _split(emit: Emit, x: Any) -> tuple[Any, Any]:
    """p = e^r − 1 and 2^n, for x in the range where n is an exponent (255 or 2047 gives inf, 0 gives 0)."""
    builder, single = emit.builder, emit.single
    mantissa, bias, terms = _FORMAT[single]
    # Added to a small number, `magic` leaves its nearest whole number, plus the bias, in the lowest bits.
    magic = emit.const(1.5 * 2.0**mantissa + bias)
    shifted = emit.fma(x, emit.const(_round(1 / math.log(2), single)), magic)
    n = builder.fsub(shifted, magic)
    high, low = (emit.const(_round(-part, single)) for part in _LN2[single])
    r = emit.fma(n, low, emit.fma(n, high, x))
    p = emit.const(_round(1 / math.factorial(terms), single))
    for term in range(terms - 1, 1, -1):
        p = emit.fma(p, r, emit.const(_round(1 / math.factorial(term), single)))
    p = emit.fma(builder.fmul(r, r), p, r)
    integer = ir.IntType(32 if single else 64)
    integers = ir.VectorType(integer, emit.lanes)
    bits = builder.shl(builder.bitcast(shifted, integers), ir.Constant(integers, [mantissa] * emit.lanes))
    return p, builder.bitcast(bits, emit.vector)


def exp(emit: Emit, x: Any) -> Any:
    x = emit.replace(x, ">", *_HIGH[emit.single])
    p, power = _split(emit, emit.replace(x, "<", *_LOW[emit.single]))
    return emit.fma(power, p, power)


def expm1(emit: Emit, x: Any) -> Any:
    """`e^x − 1` for x ≤ 80, where 2^n is finite; exact to the last place near 0."""
    builder = emit.builder
    x = emit.replace(x, ">", 80.0, 80.0)
    p, power = _split(emit, emit.replace(x, "<", -80.0, -80.0))
    return emit.fma(power, p, builder.fsub(power, emit.const(1.0)))


def sigmoid(emit: Emit, x: Any) -> Any:
    builder, one = emit.builder, emit.const(1.0)
    return builder.fdiv(one, builder.fadd(one, exp(emit, builder.fneg(x))))


def tanh(emit: Emit, x: Any) -> Any:
    """`q / (q + 2)` with `q = e^{2|x|} − 1`, which is exact near 0; the sign is restored last."""
    builder = emit.builder
    enough = 10.0 if emit.single else 20.0
    size = emit.replace(emit.call("fabs", x), ">", enough, enough)
    p, power = _split(emit, builder.fadd(size, size))
    q = emit.fma(power, p, builder.fsub(power, emit.const(1.0)))
    return emit.call("copysign", builder.fdiv(q, builder.fadd(q, emit.const(2.0))), x)
