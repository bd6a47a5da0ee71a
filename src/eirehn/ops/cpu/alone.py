"""One sample without a gradient, as in streams and in generated text: the cell's parameters go to the kernel as the
addresses where they lie. To make arrays of them would take longer than a small network."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..backend import as_array, is_bare
from . import memory
from .kernels import kernels
from .layout import KINDS, Shape, Single, shape_of, single_of
from .recurrence import LIMIT, flat

# The order of a cell's parameters, and of their addresses; a system has all up to one of them.
NAMES = (
    "W_h", "W_x", "b", "W_ah", "W_ax", "b_a", "alpha_hat", "beta_hat", "W_zh", "W_zg", "W_z", "b_z", "s_0", "g_0",
    "z_0", "P", "P_bar", "b_bar",
)  # fmt: skip


class Plan(NamedTuple):
    """What follows from shapes alone."""

    shape: Shape
    units: Shape  # with H and Z counted in registers
    places: Single


@lru_cache(maxsize=64)
def _plan(
    kind: str,
    names: tuple[str, ...],
    X: int,
    state: tuple[int, ...],
    shapes: tuple[tuple[int, ...], ...],
    max_depth: int,
    itemsize: int,
) -> Plan | None:
    """None where the parameters do not go together; `Recurrence` tells what is wrong with them. The kernel reads
    through bare addresses: what does not fit must not reach it."""
    from .vectors import register_lanes

    given = dict(zip(names, shapes, strict=True))
    H, Z = state[-1], given["b_z"][0] if "b_z" in given else 0
    sets = given["W_h"][0] if len(given["W_h"]) == 3 else 1
    own = (sets,) if len(given["W_h"]) == 3 else ()
    expected = {
        "W_h": (*own, 2 * H, H), "W_x": (2 * H, X), "b": (*own, 2 * H), "W_ah": (H, H), "W_ax": (H, X), "b_a": (H,),
        "alpha_hat": (H,), "beta_hat": (H,), "W_zh": (Z, H), "W_zg": (Z, H), "W_z": (Z, Z), "b_z": (Z,),
        "s_0": (H,), "g_0": (H,), "z_0": (Z,), "P": (2 * H, Z), "P_bar": (2 * H, Z), "b_bar": (2 * H,),
    }  # fmt: skip
    s = shape_of(KINDS[kind], H, Z, max_depth, sets, "W_ah" in given, register_lanes(itemsize), X)
    last = "b_bar" if s.G > 2 * H else "P" if s.G else "beta_hat" if s.elastic else "b"
    fits = names == NAMES[: NAMES.index(last) + 1] and all(given[name] == expected[name] for name in names)
    if not fits or state != (1, H) or min(H, X) < 1 or sets < 1 or 1 < sets < max_depth:
        return None
    rows = s._replace(H=-(-H // s.lanes), Z=-(-Z // s.lanes))
    return Plan(s, rows, single_of(s))


def alone(
    kind: str, names: tuple[str, ...], tensors: Sequence[Tensor | None], *, max_depth: int, reverse: bool
) -> list[Tensor] | None:
    """`out` (N, H), `depth` (N,) and `cost` (N,), from x (N, X), h0 (1, H) and the cell's parameters; None where
    the kernel cannot serve."""
    x, h0, mask, *values = tensors
    assert x is not None
    assert h0 is not None
    dtype = x.dtype
    if mask is not None:
        return None
    shapes, memories, addresses = [], [], []
    for each in values:
        if each is None or not is_bare(each, dtype):
            return None
        shapes.append(each.shape)
        memories.append(each.untyped_storage())  # to stay while the kernel reads it, whatever other threads do
        addresses.append(each.data_ptr())
    if 0 in addresses:  # a tensor without numbers, or one whose memory was given back
        return None
    plan = _plan(kind, names, x.size(1), h0.shape, tuple(shapes), max_depth, dtype.itemsize)
    if plan is None:
        return None
    inputs, state = as_array(x), as_array(h0)
    out = memory.empty((len(inputs), plan.shape.H), inputs.dtype)
    depth, cost = memory.empty(len(inputs), np.int64), memory.empty(len(inputs), inputs.dtype)
    raw, scratch = memory.take(plan.places.size, inputs.dtype)
    kernels().one_sample(
        *plan, scratch, np.array(addresses, np.int64), inputs.dtype.type(LIMIT[inputs.dtype.itemsize]),
        *(flat(inputs), flat(state), reverse, out.reshape(-1), depth, cost),
    )  # fmt: skip
    memory.give(raw)
    return [torch.from_numpy(each) for each in (out, depth, cost)]
