"""Whole sequences, forward and backward, on NumPy arrays: the entry points of this package."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ...cells.gate import ALPHA_LIMIT
from ..weights import Weights
from . import compiling, runtime
from .layout import (
    KINDS,
    Backward,
    Forward,
    Packed,
    Shape,
    Sums,
    backward_of,
    forward_of,
    lanes_of,
    packed_of,
    parameter_shapes,
    shape_of,
    sums_of,
)

Array = npt.NDArray[Any]

LIMIT = {dtype.itemsize: limit for dtype, limit in ALPHA_LIMIT.items()}
_PATIENCE = 50_000  # polls of the other workers before sleeping: some 50 µs
_SUMS = 1 << 20  # elements: above, workers take several tiles at a time, to keep fewer sums
_ALONE_NS = 60_000.0  # less work than this ends before a second thread would start


class Projection(NamedTuple):
    """The weights of the input projection, or their gradients, with a leading axis for the members of an
    ensemble."""

    W_x: Array  # (E, 3H, X): W_x over W_ax, or (E, 2H, X) at fixed depth
    b_a: Array | None = None  # (E, H)


class Result(NamedTuple):
    out: Array  # (E, N, H)
    depth: Array  # (E, N) int64


class Gradients(NamedTuple):
    inputs: Array | None  # of x or u
    h0: Array
    weights: Weights[Array]  # None where the weight is
    projection: Projection | None


class Plan(NamedTuple):
    """Everything that depends on shapes alone."""

    shape: Shape
    packed: Packed
    forward: tuple[Forward, Forward]  # scratch memory of a tile with all lanes, and with half
    backward: tuple[Backward, Backward]
    sums: Sums
    members: int
    sizes: npt.NDArray[np.int64]  # (T,)
    starts: npt.NDArray[np.int64]  # (T + 1,): the row where each time step begins
    expected_ns: float  # of a forward pass by one worker


@lru_cache(maxsize=64)
def _plan(
    kind: int,
    H: int,
    Z: int,
    X: int,
    R: int,
    sets: int,
    elastic: bool,
    lanes: int,
    members: int,
    batch_sizes: bytes,
) -> Plan:
    sizes = np.frombuffer(batch_sizes, np.int64).copy()
    if sizes.size == 0 or sizes[-1] < 1 or (np.diff(sizes) > 0).any():
        raise ValueError(f"batch_sizes must be positive and must not increase, got {sizes.tolist()}")
    if 1 < sets < R:
        raise ValueError(f"max_depth must not exceed the {sets} weight sets, got {R}")
    s, half = (shape_of(kind, H, Z, R, sets, elastic, each, X) for each in (lanes, lanes // 2))
    tiles = -(-int(sizes[0]) // lanes)
    per_step = 2 * H * H + Z * (2 * H + Z) + s.G * Z + 20 * (4 * H + s.G)
    return Plan(
        s,
        packed_of(s),
        (forward_of(s), forward_of(half)),
        (backward_of(s), backward_of(half)),
        sums_of(s),
        members,
        sizes,
        np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
        0.4 * members * tiles * sizes.size * R * per_step,
    )


class Recurrence:
    """Whole sequences, to be run forward and then, if wanted, backward.

    Args:
        kind: the weight update, a key of `layout.KINDS`; "none" without a hypernetwork.
        weights: all float32 or all float64.
        inputs: u (E, N, 3H), what the input contributes: `W_x x`, then `W_ax x + b_a`; (E, N, 2H) at fixed depth.
            With a `projection`, x (E, N, X). Rows lie as in a `PackedSequence`.
        h0: (E, B, H).
        mask: (E, B, H), factors on what the products `W_h h` and `W_ah h` read, or None.
        batch_sizes: (T,) int64, samples still running at each step; not increasing.
        max_depth: inner steps at most (exactly so many at fixed depth).
        reverse: from the last time step to the first.
    """

    def __init__(
        self,
        kind: str,
        weights: Weights[Array],
        inputs: Array,
        h0: Array,
        mask: Array | None,
        batch_sizes: Array,
        *,
        max_depth: int,
        reverse: bool = False,
        projection: Projection | None = None,
    ) -> None:
        self.dtype, self.reverse = inputs.dtype, reverse
        members, rows, width = inputs.shape
        Z = 0 if weights.z1 is None else weights.z1.shape[-1]
        X = 0 if projection is None else width
        sets = weights.W_h.shape[1] if weights.W_h.ndim == 4 else 1
        self.lanes = lanes_of(self.dtype.itemsize)
        self.batch_sizes = batch_sizes.astype(np.int64, copy=False).tobytes()
        self.plan = plan = _plan(
            KINDS[kind], h0.shape[-1], Z, X, max_depth, sets, weights.W_ah is not None, self.lanes, members,
            self.batch_sizes,
        )  # fmt: skip
        self.rows = rows
        self._check(weights, projection, inputs, h0, mask)
        given = (*weights, *(projection or (None, None)))
        self.shapes = inputs.shape, h0.shape, [None if p is None else p.shape for p in given]
        self.none = np.empty(0, self.dtype)
        masks = self.none if mask is None else flat(mask)
        self.data = flat(inputs), flat(h0), masks, mask is not None, plan.sizes, plan.starts, reverse
        self.flat = [self.none if p is None else flat(p) for p in given]
        self.limit = self.dtype.type(LIMIT[self.dtype.itemsize])
        self.kept: tuple[runtime.Bytes, Array] | None = None

    def _check(
        self,
        weights: Weights[Array],
        projection: Projection | None,
        inputs: Array,
        h0: Array,
        mask: Array | None,
    ) -> None:
        """Checks shapes and types, since the kernels read through raw pointers."""
        s, E = self.plan.shape, self.plan.members
        name = "x" if s.X else "u"
        check_shape(name, inputs.shape[1:], (int(self.plan.starts[-1]), s.X or s.U))
        for name, state in (("h0", h0), ("mask", mask)):
            if state is not None:
                check_shape(name, state.shape, (E, int(self.plan.sizes[0]), s.H))
                check_dtype(name, state, self.dtype)
        for name, shape in parameter_shapes(s).items():
            parameter = getattr(projection if name in Projection._fields else weights, name)
            if parameter is None:
                raise ValueError(f"{name} must be given for this kind of network, got None")
            check_dtype(name, parameter, self.dtype)
            if parameter.size != E * math.prod(shape):
                check_shape(name, parameter.shape, (E, *shape))

    def _packed(self, with_backward: bool) -> tuple[runtime.Bytes, Array]:
        plan = self.plan
        size = plan.packed.size if with_backward else plan.packed.forward_size
        taken = runtime.take(plan.members * size, self.dtype)
        runtime.kernels().pack(plan.shape, plan.packed, with_backward, *self.flat, self.limit, taken[1], size)
        return taken

    def _shared_out(self, passes: float) -> tuple[int, int, int]:
        """Workers, the samples of a tile, and the tiles of a member."""
        plan = self.plan
        threads = 1 if passes * plan.expected_ns < _ALONE_NS else torch.get_num_threads()
        span = self._span(threads)
        tiles = -(-int(plan.sizes[0]) // span)
        return min(threads, plan.members * tiles), span, tiles

    def _span(self, threads: int) -> int:
        """Samples of a tile: all lanes, or half of them if then each tile has a thread of its own. Not of small
        networks, whose gradients are to have the same bits with any number of threads."""
        plan, samples = self.plan, int(self.plan.sizes[0])
        if -(-samples // self.lanes) <= _SUMS // (plan.members * plan.sums.size):
            return self.lanes
        half = self.lanes // 2
        return half if plan.members * -(-samples // half) <= threads else self.lanes

    def _run(self, workers: int, parts: int, scratch: int, kernel: Callable[..., None]) -> None:
        """`kernel(members, parts, progress, patience, scratch)` by every worker."""
        total, progress = self.plan.members * parts, np.zeros(2, np.int64)
        taken = [runtime.take(scratch, self.dtype) for _ in range(workers)]

        def own() -> None:
            kernel(self.plan.members, parts, progress, _PATIENCE if workers > 1 else 0, taken[0][1])

        def help_with(number: int) -> None:
            if progress[0] < total:
                kernel(self.plan.members, parts, progress, 0, taken[number][1])

        runtime.run_shared(
            own, [partial(help_with, each) for each in range(1, workers)], lambda: bool(progress[1] >= total)
        )
        for raw, _ in taken:
            runtime.give(raw)

    def forward(self, *, backward_follows: bool = False) -> Result:
        plan = self.plan
        compiling.backward_follows = self.dtype.name if backward_follows else None
        s, f = plan.shape, plan.forward
        rows = plan.members, self.rows
        out = runtime.empty((*rows, s.H), self.dtype)
        depth = runtime.empty(rows, np.int64)
        results = out.reshape(-1), depth.reshape(-1)
        raw, packed = self._packed(backward_follows)
        kernel, size, data = runtime.kernels().forward, packed.size // plan.members, self.data
        workers, span, tiles = self._shared_out(1.0)

        def take_part(*work: Any) -> None:
            kernel(s, plan.packed, *f, packed, size, *data, span, *work, *results)

        self._run(workers, tiles, f[0].size, take_part)
        if backward_follows:
            self.kept = raw, packed
        else:
            runtime.give(raw)
        return Result(out, depth)

    def backward(self, out: Array, d_out: Array, *, with_inputs: bool = True) -> Gradients:
        """The gradients, from the `out` of `forward` and its gradient."""
        plan = self.plan
        s, f, g = plan.shape, plan.backward, plan.sums
        for name, given in (("out", out), ("d_out", d_out)):
            check_shape(name, given.shape, (plan.members, self.rows, s.H))
            check_dtype(name, given, self.dtype)
        d_inputs = runtime.empty(self.shapes[0], self.dtype) if with_inputs or s.X == 0 else None
        d_h0 = runtime.empty(self.shapes[1], self.dtype)
        workers, span, tiles = self._shared_out(4.0)
        parts = min(tiles, max(-(-workers // plan.members), _SUMS // (plan.members * g.size)))
        sums_raw, sums = runtime.take(plan.members * parts * g.size, self.dtype)
        kept, self.kept = self.kept, None  # there is none when backward runs a second time
        raw, packed = kept or self._packed(True)
        kernel, size, data = runtime.kernels().backward, packed.size // plan.members, self.data
        more = (
            flat(out),
            flat(d_out),
            self.none if d_inputs is None else d_inputs.reshape(-1),
            d_inputs is not None,
            d_h0.reshape(-1),
            sums,
        )

        gradients = [None if shape is None else runtime.empty(shape, self.dtype) for shape in self.shapes[2]]
        targets = [self.none if gradient is None else gradient.reshape(-1) for gradient in gradients]
        _, _, _, alpha, _, z1, _, _, _, P, P_bar, *_ = self.flat
        collected = s, g, sums.reshape(plan.members, parts, g.size), alpha, z1, P, P_bar, self.limit, *targets
        collect = runtime.kernels().collect
        if compiling.has_companion(self.dtype.name):
            collect.compile(*collected)  # while the other process compiles `backward`
            compiling.wait_for_companion(self.dtype.name)

        def take_part(*work: Any) -> None:
            kernel(s, plan.packed, g, *f, packed, size, *data, span, *work, *more)

        self._run(workers, parts, f[0].size, take_part)
        collect(*collected)
        runtime.give(raw)
        runtime.give(sums_raw)
        *own, d_W_x, d_b_a = gradients
        d_weights: Weights[Any] = Weights(*own)
        return Gradients(d_inputs, d_h0, d_weights, None if d_W_x is None else Projection(d_W_x, d_b_a))


def check_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise ValueError(f"{name} must have the shape {list(expected)}, got {list(shape)}")


def check_dtype(name: str, array: Array, dtype: np.dtype[Any]) -> None:
    if array.dtype != dtype:
        raise ValueError(f"{name} must be of {dtype}, as u is, got {array.dtype}")


def flat(array: Array) -> Array:
    """A contiguous and writable array: numba would compile everything again for one that is not."""
    flat = array.ravel()
    return flat if flat.flags.writeable else flat.copy()
