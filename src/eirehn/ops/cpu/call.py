"""A cell over a whole sequence on the CPU, with its input projection.

The recurrence of a small network takes less time than the dozen torch operators around it, and their spinning
threads occupy cores that the kernels need. So kernels compute `W_x x`, `W_ax x + b_a`, `α`, `β` and `z¹` too, and
their gradients by hand:

    u = [x W_xᵀ | x W_axᵀ + b_a]      δW_x = δu_xᵀ x,  δW_ax = δu_aᵀ x,  δb_a = Σ δu_a,  δx = δu_x W_x + δu_a W_ax
    α = softplus(α̂), β = sigm(β̂)     δα̂ = δα sigm(α̂),  δβ̂ = δβ β (1 − β)
    z¹ = tanh(ζ), ζ = W_zh s⁰ + W_zg ĝ⁰ + W_z z⁰ + b_z
                                      δζ = δz¹ (1 − z¹²);  δW_zh += δζ s⁰ᵀ,  δs⁰ = W_zhᵀ δζ, and so on

One sample without a gradient, as in streams and in generated text, has a kernel of its own: the cell's parameters
go to it as the addresses where they lie. To make arrays of them would take longer than a small network.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...cells import EIREHNCell, RecurrentCell
from ..dispatch import as_array, is_bare
from ..reference import Frame, Scan, scan
from ..weights import Weights
from . import runtime
from .layout import KINDS, Shape, Single, shape_of, single_of
from .recurrence import LIMIT, Array, Gradients, Projection, Recurrence, check_dtype, check_shape, flat

Arrays = dict[str, Array]


class CellCall:
    """A call without its tensors. With `members` every tensor has a leading axis for them."""

    def __init__(self, cell: RecurrentCell, batch_sizes: list[int], max_depth: int, reverse: bool) -> None:
        self.cell = cell
        self.names = cell.parameter_names
        self.kind = cell.weight_update if isinstance(cell, EIREHNCell) else "none"
        self.sizes = np.array(batch_sizes, np.int64)
        self.options: dict[str, Any] = {"max_depth": max_depth, "reverse": reverse}
        self.members: int | None = None

    def of(self, members: int) -> CellCall:
        call = copy.copy(self)
        call.members = members
        return call

    def forward(self, tensors: Sequence[Tensor | None], *, backward_follows: bool) -> tuple[list[Tensor], Any]:
        """The results, and what `backward` needs to keep."""
        if not backward_follows and self.members is None and self.sizes[0] == 1:
            found = stream(self.kind, self.names, tensors, **self.options)
            if found is not None:
                return found, None
        x, h0, mask, *values = self._arrays(tensors)
        p = dict(zip(self.names, values, strict=True))
        weights, projection = prepared(p)
        recurrence = Recurrence(self.kind, weights, x, h0, mask, self.sizes, projection=projection, **self.options)
        results = recurrence.forward(backward_follows=backward_follows)
        return self._tensors(results), (p, weights, recurrence)

    def backward(
        self, kept: Any, tensors: Sequence[Tensor | None], out: Tensor, d_out: Tensor, *, with_x: bool
    ) -> list[Tensor | None]:
        p, weights, recurrence = kept
        found = recurrence.backward(*self._arrays((out, d_out)), with_inputs=with_x)
        gradients = gradients_of(p, weights, found)
        return self._tensors([found.inputs, found.h0, None, *(gradients[name] for name in self.names)])

    def _arrays(self, tensors: Iterable[Tensor | None]) -> list[Any]:
        """The arrays with an axis for the members, also for one model."""
        if self.members is not None:
            return [None if each is None else as_array(each) for each in tensors]
        return [None if each is None else as_array(each)[None] for each in tensors]

    def _tensors(self, arrays: Iterable[Array | None]) -> list[Any]:
        if self.members is not None:
            return [None if each is None else torch.from_numpy(each) for each in arrays]
        return [None if each is None else torch.from_numpy(each[0]) for each in arrays]

    def differentiable(self, tensors: Sequence[Any], out: Tensor, d_out: Tensor) -> list[Tensor | None]:
        """As `backward`, by the plain path."""
        if self.members is None:
            out = self._plain(tensors)
        else:
            own = ([None if each is None else each[e] for each in tensors] for e in range(self.members))
            out = torch.stack([self._plain(each) for each in own])
        x, h0, _, *values = tensors
        below = [each for each in (x, h0, *values) if each.requires_grad]
        rest = iter(torch.autograd.grad(out, below, d_out, create_graph=True, materialize_grads=True))
        found = [next(rest) if each.requires_grad else None for each in (x, h0, *values)]
        return [*found[:2], None, *found[2:]]

    def _plain(self, tensors: Sequence[Tensor | None]) -> Tensor:
        """`out` (N, H) of one member."""
        x, h0, mask, *values = tensors
        given: dict[str, Any] = {f"cell.{name}": value for name, value in zip(self.names, values, strict=True)}
        options = {**self.options, "h_mask": mask}
        whole = (scan, x, self.sizes.tolist(), h0)
        found: Scan = torch.func.functional_call(Frame(self.cell), given, whole, options)
        return found.out


def prepared(p: Arrays) -> tuple[Weights[Array], Projection]:
    """The arrays that the kernels take, from the parameters of the cell, each with a leading axis for the
    members."""
    if "W_ah" not in p:
        return Weights(p["W_h"], p["b"]), Projection(p["W_x"])
    alpha, beta = (runtime.empty(p[name].shape, p["b"].dtype) for name in ("alpha_hat", "beta_hat"))
    projection = Projection(np.concatenate([p["W_x"], p["W_ax"]], 1), p["b_a"])
    weights: Weights[Array] = Weights(p["W_h"], p["b"], p["W_ah"], alpha, beta)
    z1 = runtime.empty(p["b_z"].shape if "b_z" in p else 0, p["b"].dtype)
    hats, hyper = _sources(p)
    runtime.kernels().constants(*_sizes(p), *hats, *hyper, flat(alpha), flat(beta), flat(z1))
    if "W_z" not in p:
        return weights, projection
    hyper_weights = weights._replace(
        z1=z1,
        W_zs=np.concatenate([p["W_zh"], p["W_zg"]], 2),
        W_z=p["W_z"],
        b_z=p["b_z"],
        P=p["P"],
        P_bar=p.get("P_bar"),
        b_bar=p.get("b_bar"),
    )
    return hyper_weights, projection


HYPER = ("W_zh", "W_zg", "W_z", "b_z", "s_0", "g_0", "z_0")


def _sizes(p: Arrays) -> tuple[int, int]:
    return p["alpha_hat"].shape[1], p["b_z"].shape[1] if "b_z" in p else 0


def _sources(p: Arrays) -> tuple[list[Array], list[Array]]:
    """α̂, β̂ and the parameters of z¹, checked, since the kernels read through raw pointers."""
    E, (H, Z) = len(p["b"]), _sizes(p)
    expected = _cell_shapes(H, Z)
    for name in ("alpha_hat", "beta_hat", *(HYPER if Z else ())):
        check_shape(name, p[name].shape, (E, *expected[name]))
        check_dtype(name, p[name], p["b"].dtype)
    none = np.empty(0, p["b"].dtype)
    return [flat(p["alpha_hat"]), flat(p["beta_hat"])], [flat(p[name]) if Z else none for name in HYPER]


def gradients_of(p: Arrays, q: Weights[Array], gradients: Gradients) -> Arrays:
    """The gradients of the parameters of the cell, from those of the recurrence, which are overwritten."""
    d, projection = gradients.weights, gradients.projection
    assert projection is not None
    rows = p["W_x"].shape[1]
    found = {"W_h": d.W_h, "b": d.b, "W_x": projection.W_x[:, :rows]}
    if "W_ah" not in p:
        return found
    names = {
        "W_ah": d.W_ah,
        "alpha_hat": d.alpha,
        "beta_hat": d.beta,
        "b_a": projection.b_a,
        "W_z": d.W_z,
        "b_z": d.b_z,
    }
    names |= {"P": d.P, "P_bar": d.P_bar, "b_bar": d.b_bar}
    found |= {name: each for name, each in names.items() if each is not None} | {"W_ax": projection.W_x[:, rows:]}
    parts = ("W_zh", "W_zg", "s_0", "g_0", "z_0")
    if q.z1 is not None:
        found |= {name: runtime.empty(p[name].shape, d.W_h.dtype) for name in parts}
    none = np.empty(0, d.W_h.dtype)
    given = (q.beta, q.z1, d.alpha, d.beta, d.z1, d.W_zs, d.W_z, d.b_z, *(found.get(name) for name in parts))
    beta, z1, *sums = (none if each is None else flat(each) for each in given)
    (alpha_hat, _), (W_zh, W_zg, W_z, _, *starts) = _sources(p)
    runtime.kernels().constants_back(*_sizes(p), alpha_hat, beta, z1, W_zh, W_zg, W_z, *starts, *sums)
    return found


def _cell_shapes(H: int, Z: int, X: int = 1, sets: tuple[int, ...] = ()) -> dict[str, tuple[int, ...]]:
    """The shapes of the parameters of a cell, in order."""
    return {
        "W_h": (*sets, 2 * H, H), "W_x": (2 * H, X), "b": (*sets, 2 * H), "W_ah": (H, H), "W_ax": (H, X),
        "b_a": (H,), "alpha_hat": (H,), "beta_hat": (H,), "W_zh": (Z, H), "W_zg": (Z, H), "W_z": (Z, Z),
        "b_z": (Z,), "s_0": (H,), "g_0": (H,), "z_0": (Z,), "P": (2 * H, Z), "P_bar": (2 * H, Z), "b_bar": (2 * H,),
    }  # fmt: skip


NAMES = tuple(_cell_shapes(1, 1))
"""The order of the parameters' addresses, too; a system has all up to one of them."""


class StreamPlan(NamedTuple):
    """What follows from shapes alone."""

    shape: Shape
    units: Shape  # with H and Z counted in registers
    places: Single


@lru_cache(maxsize=64)
def _stream_plan(
    kind: str,
    names: tuple[str, ...],
    X: int,
    state: tuple[int, ...],
    shapes: tuple[tuple[int, ...], ...],
    max_depth: int,
    itemsize: int,
) -> StreamPlan | None:
    """None if the shapes of the parameters do not fit; `Recurrence` then raises an error that says why. The kernel
    reads through raw addresses, so that it must not get them."""
    from .simd import register_lanes

    given = dict(zip(names, shapes, strict=True))
    H, Z = state[-1], given["b_z"][0] if "b_z" in given else 0
    sets = given["W_h"][0] if len(given["W_h"]) == 3 else 1
    own = (sets,) if len(given["W_h"]) == 3 else ()
    expected = _cell_shapes(H, Z, X, own)
    s = shape_of(KINDS[kind], H, Z, max_depth, sets, "W_ah" in given, register_lanes(itemsize), X)
    last = "b_bar" if s.G > 2 * H else "P" if s.G else "beta_hat" if s.elastic else "b"
    fits = names == NAMES[: NAMES.index(last) + 1] and all(given[name] == expected[name] for name in names)
    if not fits or state != (1, H) or min(H, X) < 1 or sets < 1 or 1 < sets < max_depth:
        return None
    rows = s._replace(H=-(-H // s.lanes), Z=-(-Z // s.lanes))
    return StreamPlan(s, rows, single_of(s))


def stream(
    kind: str, names: tuple[str, ...], tensors: Sequence[Tensor | None], *, max_depth: int, reverse: bool
) -> list[Tensor] | None:
    """`out` (N, H) and `depth` (N,), from x (N, X), h0 (1, H) and the parameters of the cell; None if the kernel
    cannot run."""
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
        memories.append(each.untyped_storage())  # keeps it alive while the kernel reads it
        addresses.append(each.data_ptr())
    if 0 in addresses:  # an empty tensor, or one whose memory was freed
        return None
    plan = _stream_plan(kind, names, x.size(1), h0.shape, tuple(shapes), max_depth, dtype.itemsize)
    if plan is None:
        return None
    inputs, state = as_array(x), as_array(h0)
    out = runtime.empty((len(inputs), plan.shape.H), inputs.dtype)
    depth = runtime.empty(len(inputs), np.int64)
    raw, scratch = runtime.take(plan.places.size, inputs.dtype)
    runtime.kernels().one_sample(
        *plan, scratch, np.array(addresses, np.int64), inputs.dtype.type(LIMIT[inputs.dtype.itemsize]),
        *(flat(inputs), flat(state), reverse, out.reshape(-1), depth),
    )  # fmt: skip
    runtime.give(raw)
    return [torch.from_numpy(each) for each in (out, depth)]
