"""SIMD registers as values in numba code: one holds one number of each sample of a tile, or units of one sample.

Plain loops leave the choice of vectors to LLVM, which does not keep a block of sums in registers. Here a
`Vec` is a numba type lowered to an LLVM vector; `+ - * /`, comparisons and the functions below become single
instructions, or two or four where the processor's registers are narrower. A `Tile` is scratch memory that knows how
wide its rows are, so that the same functions are compiled for several widths. Memory is read and written through
bare pointers, at an offset in elements, unchecked.
"""

# numba and llvmlite say little about their types, and a type checker cannot follow what `intrinsic` makes.
# mypy: ignore-errors

from __future__ import annotations

import operator
import platform
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.core.compiler import Compiler
from numba.core.typing import templates
from numba.extending import intrinsic, lower_builtin, models, register_model

from .compiler import InnerCompiler
from .functions import Emit, expm1, sigmoid, tanh
from .layout import lanes_of, padded

# For functions that only other compiled ones call: those that Python could call too take longer to compile.
inner = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, pipeline_class=InnerCompiler or Compiler)
panel_rows = inner(padded)


def _machine() -> tuple[int, int]:
    """Bytes of one of the processor's registers, and how many it has of them."""
    features = llvm.get_host_cpu_features()
    if features.get("avx512f", False):
        return 64, 32
    if features.get("avx", False):
        return 32, 16
    return 16, 32 if platform.machine().lower() in ("arm64", "aarch64") else 16


REGISTER_BYTES, REGISTERS = _machine()
intp = ir.IntType(types.intp.bitwidth)


class Vec(types.Type):
    def __init__(self, dtype: Any, lanes: int) -> None:
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"Vec({dtype}, {lanes})")


class Tile(types.Type):
    def __init__(self, dtype: Any, lanes: int) -> None:
        self.dtype, self.lanes = dtype, lanes
        self.vec = Vec(dtype, lanes)
        super().__init__(name=f"Tile({dtype}, {lanes})")


class Mask(types.Type):
    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        super().__init__(name=f"Mask({lanes})")


def _scalar_ir(dtype: Any) -> Any:
    return ir.FloatType() if dtype == types.float32 else ir.DoubleType()


def vector_ir(vec: Vec) -> Any:
    return ir.VectorType(_scalar_ir(vec.dtype), vec.lanes)


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, vector_ir(fe_type))


@register_model(Tile)
class _TileModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, _scalar_ir(fe_type.dtype).as_pointer())


@register_model(Mask)
class _MaskModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any) -> None:
        super().__init__(dmm, fe_type, ir.VectorType(ir.IntType(1), fe_type.lanes))


def registers_of(vec: Vec) -> int:
    """How many of the processor's registers it takes."""
    return max(1, vec.lanes * itemsize(vec) // REGISTER_BYTES)


def emit(builder: Any, vec: Vec) -> Emit:
    return Emit(builder, vector_ir(vec))


def _as_vector(context: Any, builder: Any, value: Any, given: Any, vec: Vec) -> Any:
    if isinstance(given, Vec):
        return value
    return emit(builder, vec).splat(context.cast(builder, value, given, vec.dtype))


def _common(a: Any, b: Any) -> Vec | None:
    """The vector type of an operation between vectors, or a vector and a number."""
    if isinstance(a, Vec):
        return a if a == b or isinstance(b, types.Number) else None
    return b if isinstance(b, Vec) and isinstance(a, types.Number) else None


def _binary(op: Any, result_is_mask: bool, build: Any) -> None:
    @templates.infer_global(op)
    class Typing(templates.AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            vec = _common(*args) if len(args) == 2 else None
            if vec is None:
                return None
            return templates.signature(Mask(vec.lanes) if result_is_mask else vec, *args)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vec = _common(*sig.args)
        assert vec is not None
        a, b = (_as_vector(context, builder, v, t, vec) for v, t in zip(args, sig.args, strict=True))
        return build(builder, a, b)

    for left, right in ((Vec, Vec), (Vec, types.Number), (types.Number, Vec)):
        lower_builtin(op, left, right)(lower)


_binary(operator.add, False, ir.IRBuilder.fadd)
_binary(operator.sub, False, ir.IRBuilder.fsub)
_binary(operator.mul, False, ir.IRBuilder.fmul)
_binary(operator.truediv, False, ir.IRBuilder.fdiv)
_binary(operator.gt, True, lambda builder, a, b: builder.fcmp_ordered(">", a, b))
# True for a NaN, as for every other number that is not b.
_binary(operator.ne, True, lambda builder, a, b: builder.fcmp_unordered("!=", a, b))


def _on_masks(op: Any, build: Any) -> None:
    @templates.infer_global(op)
    class Typing(templates.AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) == 2 and isinstance(args[0], Mask) and args[0] == args[1]:
                return templates.signature(args[0], *args)
            return None

    lower_builtin(op, Mask, Mask)(lambda context, builder, sig, args: build(builder, *args))


_on_masks(operator.and_, ir.IRBuilder.and_)
_on_masks(operator.or_, ir.IRBuilder.or_)


def _data(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return value if isinstance(kind, Tile) else context.make_array(kind)(context, builder, value).data


def element_pointer(context: Any, builder: Any, kind: Any, memory: Any, offset: Any) -> Any:
    """Of an array or a tile (`kind` says which)."""
    return builder.gep(_data(context, builder, kind, memory), [offset], inbounds=True)


def vector_pointer(context: Any, builder: Any, kind: Any, memory: Any, offset: Any, vec: Vec) -> Any:
    return builder.bitcast(element_pointer(context, builder, kind, memory, offset), vector_ir(vec).as_pointer())


def itemsize(vec: Vec | Tile) -> int:
    """Bytes of a number, to which memory is aligned at least."""
    return 4 if vec.dtype == types.float32 else 8


def register_lanes(itemsize: int) -> int:
    """Numbers of so many bytes in one of the processor's registers."""
    return REGISTER_BYTES // itemsize


def _tile_of(lanes: Any) -> Any:
    """Makes a tile of an array; `lanes` says how many it has, by the bytes of a number."""

    def tile(typingctx: Any, array: Any) -> Any:
        kind = Tile(array.dtype, lanes(array.dtype.bitwidth // 8))
        return kind(array), lambda context, builder, sig, args: _data(context, builder, sig.args[0], args[0])

    return intrinsic(tile)


whole_tile = _tile_of(lanes_of)
half_tile = _tile_of(lambda itemsize: lanes_of(itemsize) // 2)  # for a few samples: two thirds of the time
register_tile = _tile_of(register_lanes)  # units of one sample, not samples, lie side by side


@intrinsic
def tile_at(typingctx: Any, like: Any, address: Any) -> Any:
    """Memory at an address, in rows as those of the tile `like`."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[1], _scalar_ir(like.dtype).as_pointer())

    return like(like, types.int64), codegen


@intrinsic
def load(typingctx: Any, tile: Any, offset: Any) -> Any:
    """The row at `tile[offset : offset + lanes]`."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = vector_pointer(context, builder, sig.args[0], *args, tile.vec)
        return builder.load(pointer, align=itemsize(tile.vec))

    return tile.vec(tile, types.intp), codegen


@intrinsic
def store(typingctx: Any, tile: Any, offset: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = vector_pointer(context, builder, sig.args[0], *args[:2], tile.vec)
        value_ir = _as_vector(context, builder, args[2], sig.args[2], tile.vec)
        builder.store(value_ir, pointer, align=itemsize(tile.vec))
        return context.get_dummy_value()

    return types.void(tile, types.intp, value), codegen


@intrinsic
def get(typingctx: Any, array: Any, offset: Any) -> Any:
    """`array.flat[offset]` without wrap-around."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(element_pointer(context, builder, sig.args[0], *args))

    return array.dtype(array, types.intp), codegen


@intrinsic
def put(typingctx: Any, array: Any, offset: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        number = context.cast(builder, args[2], sig.args[2], sig.args[0].dtype)
        builder.store(number, element_pointer(context, builder, sig.args[0], *args[:2]))
        return context.get_dummy_value()

    return types.void(array, types.intp, value), codegen


@intrinsic
def fetch_add(typingctx: Any, array: Any, offset: Any) -> Any:
    """Adds 1 to `array[offset]` at once for all threads, and says what it was before."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = element_pointer(context, builder, sig.args[0], *args)
        return builder.atomic_rmw("add", pointer, ir.Constant(pointer.type.pointee, 1), "acq_rel")

    return array.dtype(array, types.intp), codegen


@intrinsic
def fetch(typingctx: Any, array: Any, offset: Any) -> Any:
    """`array[offset]` as other threads have left it."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load_atomic(element_pointer(context, builder, sig.args[0], *args), "acquire", 8)

    return array.dtype(array, types.intp), codegen


@intrinsic
def spread(typingctx: Any, tile: Any, array: Any, offset: Any) -> Any:
    """One number of `array` in all lanes of a row of `tile`."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer = element_pointer(context, builder, sig.args[1], *args[1:])
        return emit(builder, tile.vec).splat(builder.load(pointer))

    return tile.vec(tile, array, types.intp), codegen


@intrinsic
def of_unit(typingctx: Any, tile: Any, source: Any, start: Any, unit: Any) -> Any:
    """What all samples of a tile have in common: the number of a `unit`, in all lanes. Where `source` is a tile,
    too, units lie side by side, and it is row `unit` of it."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        _, memory, begin, number = args
        if isinstance(source, Tile):
            place = builder.add(begin, builder.mul(number, ir.Constant(intp, tile.lanes)))
            pointer = vector_pointer(context, builder, source, memory, place, tile.vec)
            return builder.load(pointer, align=itemsize(tile.vec))
        pointer = element_pointer(context, builder, source, memory, builder.add(begin, number))
        return emit(builder, tile.vec).splat(builder.load(pointer))

    return tile.vec(tile, source, types.intp, types.intp), codegen


@intrinsic
def zeros(typingctx: Any, tile: Any) -> Any:
    """A row of zeros."""
    return tile.vec(tile), lambda context, builder, sig, args: emit(builder, tile.vec).const(0.0)


@intrinsic
def lane_count(typingctx: Any, tile: Any) -> Any:
    return types.intp(tile), lambda context, builder, sig, args: context.get_constant(types.intp, tile.lanes)


@intrinsic
def first_lanes(typingctx: Any, tile: Any, count: Any) -> Any:
    """The mask of lanes 0 … count−1."""
    lanes = tile.lanes

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        integers = ir.VectorType(ir.IntType(32), lanes)
        count_ir = Emit(builder, integers).splat(builder.trunc(args[1], ir.IntType(32)))
        return builder.icmp_signed("<", ir.Constant(integers, list(range(lanes))), count_ir)

    return Mask(lanes)(tile, types.intp), codegen


@intrinsic
def where(typingctx: Any, mask: Any, a: Any, b: Any) -> Any:
    vec = _common(a, b)
    if vec is None or not isinstance(mask, Mask):
        return None

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        yes, no = (_as_vector(context, builder, args[k], sig.args[k], vec) for k in (1, 2))
        return builder.select(args[0], yes, no)

    return vec(mask, a, b), codegen


@intrinsic
def any_lane(typingctx: Any, mask: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.bitcast(args[0], ir.IntType(sig.args[0].lanes))
        return builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))

    return types.boolean(mask), codegen


@intrinsic
def lane_sum(typingctx: Any, a: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit(builder, sig.args[0]).lane_sum(args[0])

    return a.dtype(a), codegen


def _unary(name: str, build: Any) -> Any:
    def typing(typingctx: Any, a: Any) -> Any:
        if not isinstance(a, Vec):
            return None
        return a(a), lambda context, builder, sig, args: build(emit(builder, sig.args[0]), args[0])

    typing.__name__ = name
    return intrinsic(typing)


vtanh = _unary("vtanh", tanh)
vsigmoid = _unary("vsigmoid", sigmoid)
vexpm1 = _unary("vexpm1", expm1)
