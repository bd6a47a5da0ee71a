"""Whole sequences, forward and backward, on NumPy arrays: the entry points of this package."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from . import memory, pool
from .kernels import kernels, lanes_of
from .layout import KINDS, backward_of, forward_of, parameter_shapes, shape_of, sums_of, weights_of

Array = npt.NDArray[Any]

_LIMIT = {4: 87.0, 8: 708.0}  # of α, as in `cells.gate`
_ALONE_NS = 60_000.0  # less work than this is done before a second thread would have begun


class Parameters(NamedTuple):
    """What the recurrence depends on, with a leading axis for the members of an ensemble (E = 1 for one model).

    Without `W_ah` the depth is fixed. `alpha` and `beta` are those after softplus and sigmoid. `z1` and what
    follows belong to the hypernetwork; `P_bar` and `b_bar` to a gated update. All are float32 or all float64.
    """

    W_h: Array  # (E, 2H, H), or (E, depth, 2H, H) for own weights at every inner step
    b: Array  # (E, 2H), or (E, depth, 2H)
    W_ah: Array | None = None  # (E, H, H)
    alpha: Array | None = None  # (E, H)
    beta: Array | None = None  # (E, H)
    z1: Array | None = None  # (E, Z)
    W_zs: Array | None = None  # (E, Z, 2H)
    W_z: Array | None = None  # (E, Z, Z)
    b_z: Array | None = None  # (E, Z)
    P: Array | None = None  # (E, 2H, Z)
    P_bar: Array | None = None  # (E, 2H, Z)
    b_bar: Array | None = None  # (E, 2H)


class Result(NamedTuple):
    out: Array  # (E, N, H)
    depth: Array  # (E, N) int64
    cost: Array  # (E, N): the mean over units of Σ_r d^r


class Gradients(NamedTuple):
    u: Array
    h0: Array
    parameters: Parameters  # None where the parameter is


class _Call:
    """What both passes need to know of their arguments."""

    def __init__(
        self,
        kind: str,
        parameters: Parameters,
        u: Array,
        h0: Array,
        mask: Array | None,
        batch_sizes: Array,
        max_depth: int,
        with_backward: bool,
    ) -> None:
        self.dtype = u.dtype
        self.members, self.rows, self.width = u.shape
        H = h0.shape[-1]
        Z = 0 if parameters.z1 is None else parameters.z1.shape[-1]
        sets = parameters.W_h.shape[1] if parameters.W_h.ndim == 4 else 1
        self.lanes = lanes_of(self.dtype.itemsize)
        self.shape = shape_of(KINDS[kind], H, Z, max_depth, sets, parameters.W_ah is not None, self.lanes)
        self.none = np.empty(0, self.dtype)
        self.sizes, self.starts = _time_steps(batch_sizes.astype(np.int64, copy=False).tobytes())
        self._check(parameters, h0, mask)
        self.u, self.h0 = _flat(u), _flat(h0)
        self.mask = self.none if mask is None else _flat(mask)
        self.masked = mask is not None
        self.flat = [self.none if p is None else _flat(p) for p in parameters]
        self.limit = self.dtype.type(_LIMIT[self.dtype.itemsize])
        self.weights = weights_of(self.shape)
        self.size = self.weights.size if with_backward else self.weights.forward_size
        self.kept, self.packed = memory.take(self.members * self.size, self.dtype)
        kernels().pack(
            self.shape, self.weights, with_backward, *self.flat, self.limit, self.packed, self.size
        )  # fmt: skip
        self.tiles = -(-int(batch_sizes[0]) // self.lanes)
        self.tasks: int = self.members * self.tiles

    def _check(self, parameters: Parameters, h0: Array, mask: Array | None) -> None:
        """The kernels read through bare pointers: what does not fit must not reach them."""
        s, E = self.shape, self.members
        check_shape("u", (self.rows, self.width), (int(self.starts[-1]), (3 if s.elastic else 2) * s.H))
        for name, state in (("h0", h0), ("mask", mask)):
            if state is not None:
                check_shape(name, state.shape, (E, int(self.sizes[0]), s.H))
                check_dtype(name, state, self.dtype)
        if 1 < s.sets < s.R:
            raise ValueError(f"max_depth must not exceed the {s.sets} weight sets, got {s.R}")
        needed = parameter_shapes(s)
        for name, parameter in zip(Parameters._fields, parameters, strict=True):
            if name not in needed:
                continue
            if parameter is None:
                raise ValueError(f"{name} must be given for this kind of network, got None")
            check_dtype(name, parameter, self.dtype)
            if parameter.size != E * math.prod(needed[name]):
                check_shape(name, parameter.shape, (E, *needed[name]))

    def workers(self, passes: float) -> int:
        s = self.shape
        per_step = 2 * s.H * s.H + s.Z * (2 * s.H + s.Z) + s.G * s.Z + 20 * (4 * s.H + s.G)
        expected_ns = 0.4 * passes * self.tasks * self.sizes.size * s.R * per_step
        if expected_ns < _ALONE_NS:
            return 1
        return min(torch.get_num_threads(), self.tasks)

    def bounds(self, workers: int) -> list[int]:
        """Where each worker's run of tasks begins, and the number of tasks. The first worker starts soonest."""
        if self.sizes[0] == self.sizes[-1] or workers == 1:
            return [-(-self.tasks * k // workers) for k in range(workers + 1)]
        # Samples of a packed sequence are sorted: the first tiles have the most time steps.
        begins = self.sizes[0] * np.arange(self.tiles) // self.tiles
        steps = (self.sizes[:, None] > begins).sum(0)  # (tiles,)
        done = np.cumsum(np.tile(steps, self.members))  # (tasks,)
        inner = np.searchsorted(done, done[-1] * np.arange(1, workers) / workers) + 1
        return [0, *inner.tolist(), self.tasks]

    def run(self, bounds: list[int], scratch: int, job: Callable[[int, int, int, Array], None]) -> None:
        """`job(worker, first task, last task, scratch)` for every worker."""
        workers = len(bounds) - 1
        taken = [memory.take(scratch, self.dtype) for _ in range(workers)]
        try:
            pool.run([partial(job, k, bounds[k], bounds[k + 1], taken[k][1]) for k in range(workers)])
        finally:
            for raw, _ in taken:
                memory.give(raw)
            memory.give(self.kept)


def check_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise ValueError(f"{name} must have the shape {list(expected)}, got {list(shape)}")


def check_dtype(name: str, array: Array, dtype: np.dtype[Any]) -> None:
    if array.dtype != dtype:
        raise ValueError(f"{name} must be of {dtype}, as u is, got {array.dtype}")


def _flat(array: Array) -> Array:
    """In order, in one piece, and writable: numba would compile everything once more for an array that is not."""
    flat = array.ravel()
    return flat if flat.flags.writeable else flat.copy()


@lru_cache(maxsize=32)
def _time_steps(batch_sizes: bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The samples of each time step (T,), and the row where it begins, with the number of rows last (T + 1,)."""
    sizes = np.frombuffer(batch_sizes, np.int64).copy()
    if sizes.size == 0 or sizes[-1] < 1 or (np.diff(sizes) > 0).any():
        raise ValueError(f"batch_sizes must be positive and must not increase, got {sizes.tolist()}")
    return sizes, np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def forward(
    kind: str,
    parameters: Parameters,
    u: Array,
    h0: Array,
    mask: Array | None,
    batch_sizes: Array,
    *,
    max_depth: int,
    reverse: bool = False,
) -> Result:
    """Runs whole sequences.

    Args:
        kind: the weight update, a key of `layout.KINDS`; "none" without a hypernetwork.
        parameters: see `Parameters`.
        u: (E, N, 3H), what the input contributes: `W_x x`, then `W_ax x + b_a`; (E, N, 2H) at fixed depth. Rows
            lie as in a `PackedSequence`.
        h0: (E, B, H).
        mask: (E, B, H), factors on what the products `W_h h` and `W_ah h` read, or None.
        batch_sizes: (T,) int64, samples still running at each step; not increasing.
        max_depth: inner steps at most (exactly so many at fixed depth).
        reverse: from the last time step to the first.
    """
    call = _Call(kind, parameters, u, h0, mask, batch_sizes, max_depth, with_backward=False)
    s, f = call.shape, forward_of(call.shape)
    out = memory.empty((call.members, call.rows, s.H), call.dtype)
    depth = memory.empty((call.members, call.rows), np.int64)
    cost = memory.empty((call.members, call.rows), call.dtype)
    kernel = kernels().forward
    results = out.reshape(-1), depth.reshape(-1), cost.reshape(-1)

    def job(worker: int, first: int, last: int, scratch: Array) -> None:
        kernel(
            s, call.weights, f, call.packed, call.size, call.u, call.width, call.h0, call.mask, call.masked,
            call.sizes, call.starts, reverse, first, last, call.tiles, scratch, *results,
        )  # fmt: skip

    call.run(call.bounds(call.workers(1.0)), f.size + 2 * s.lanes, job)
    return Result(out, depth, cost)


def backward(
    kind: str,
    parameters: Parameters,
    u: Array,
    h0: Array,
    mask: Array | None,
    batch_sizes: Array,
    out: Array,
    d_out: Array,
    d_cost: Array | None,
    *,
    max_depth: int,
    reverse: bool = False,
) -> Gradients:
    """Gradients, given `forward`'s arguments, its `out`, and the gradients of `out` (E, N, H) and `cost` (E, N)."""
    call = _Call(kind, parameters, u, h0, mask, batch_sizes, max_depth, with_backward=True)
    s, f, g = call.shape, backward_of(call.shape), sums_of(call.shape)
    for name, given in (("out", out), ("d_out", d_out)):
        check_shape(name, given.shape, (call.members, call.rows, s.H))
        check_dtype(name, given, call.dtype)
    if d_cost is not None:
        check_dtype("d_cost", d_cost, call.dtype)
        check_shape("d_cost", d_cost.shape, (call.members, call.rows))
    d_u = memory.empty(u.shape, call.dtype)
    d_h0 = memory.empty(h0.shape, call.dtype)
    bounds = call.bounds(call.workers(4.0))
    slots, firsts = _slots(bounds, call.tiles, call.members)
    kept, sums = memory.take(int(firsts[-1]) * g.size, call.dtype)
    kernel = kernels().backward
    states, d_states = _flat(out), _flat(d_out)
    d_costs = call.none if d_cost is None else _flat(d_cost)
    results = d_u.reshape(-1), d_h0.reshape(-1), sums

    def job(worker: int, first: int, last: int, scratch: Array) -> None:
        kernel(
            s, call.weights, g, f, call.packed, call.size, call.u, call.width, call.h0, call.mask, call.masked,
            call.sizes, call.starts, reverse, first, last, call.tiles, scratch, states, d_states, d_costs,
            d_cost is not None, *results, slots[worker],
        )  # fmt: skip

    call.run(bounds, f.size + 3 * s.lanes, job)
    gradients = [None if p is None else memory.empty(p.shape, call.dtype) for p in parameters]
    flat = [call.none if gradient is None else gradient.reshape(-1) for gradient in gradients]
    _, _, _, alpha, _, z1, _, _, _, P, P_bar, _ = call.flat
    kernels().collect(s, g, firsts, sums.reshape(-1, g.size), alpha, z1, P, P_bar, call.limit, *flat)
    memory.give(kept)
    return Gradients(d_u, d_h0, Parameters(*gradients))  # type: ignore[arg-type]  # W_h and b are never None


def _slots(bounds: list[int], tiles: int, members: int) -> tuple[list[int], npt.NDArray[np.int64]]:
    """Each worker's first slot of the sums, and each member's (members + 1,): who adds up what is fixed."""
    slots, firsts, slot, known = [], np.zeros(members + 1, np.int64), 0, 0
    for first, last in pairwise(bounds):
        slots.append(slot)
        for member in range(first // tiles, (last - 1) // tiles + 1) if last > first else ():
            if member == known:
                firsts[member] = slot
                known += 1
            slot += 1
    firsts[members] = slot
    return slots, firsts
