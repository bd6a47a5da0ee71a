"""A cell over a whole sequence on the CPU as one node of the autograd graph, with its input projection.

A small network takes less time than the dozen torch operators around its recurrence, and the threads these leave
spinning keep the kernels from a core. So kernels compute `W_x x`, `W_ax x + b_a`, `α`, `β` and `z¹` too, and their
gradients by hand:

    u = [x W_xᵀ | x W_axᵀ + b_a]      δW_x = δu_xᵀ x,  δW_ax = δu_aᵀ x,  δb_a = Σ δu_a,  δx = δu_x W_x + δu_a W_ax
    α = softplus(α̂), β = sigm(β̂)     δα̂ = δα sigm(α̂),  δβ̂ = δβ β (1 − β)
    z¹ = tanh(ζ), ζ = W_zh s⁰ + W_zg ĝ⁰ + W_z z⁰ + b_z
                                      δζ = δz¹ (1 − z¹²);  δW_zh += δζ s⁰ᵀ,  δs⁰ = W_zhᵀ δζ, and so on
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import _add_batch_dim, _unwrap_batched, is_legacy_batchedtensor
from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

from ...cells import EIREHNCell, RecurrentCell
from ..backend import as_array
from . import memory
from .alone import alone
from .kernels import kernels
from .recurrence import Array, Parameters, Recurrence, check_dtype, check_shape, flat

Arrays = dict[str, Array]


def run(call: Call, *tensors: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """`out` (N, H), `depth` (N,) and `cost` (N,), from x (N, X), h0, the mask and the cell's parameters."""
    if torch._C._functorch.maybe_current_level() is not None:
        return _over_members(call, tensors)
    if torch.is_grad_enabled():
        out, depth, cost = CellRecurrence.apply(call, *tensors)  # type: ignore[no-untyped-call]  # torch's own
    else:
        (out, depth, cost), _ = call.forward(tensors, backward_follows=False)
    return out, depth, cost


def _over_members(call: Call, tensors: Sequence[Tensor | None]) -> tuple[Tensor, Tensor, Tensor]:
    """`run` under vmap: all members of an ensemble in one call, outside of it.

    By hand what a rule for vmap of an autograd function does, whose machinery takes 0.4 ms.
    """
    interpreter: Any = retrieve_current_functorch_interpreter()
    level, members = interpreter.level(), interpreter.batch_size()
    pairs = [(None, None) if each is None else _unwrap_batched(each, level) for each in tensors]
    with interpreter.lower():
        if all(dim is None for _, dim in pairs):
            return run(call, *tensors)
        stacked = [_stacked(each, dim, members) for each, dim in pairs]
        if call.members is None:
            results = run(call.of(members), *stacked)
        else:  # one vmap inside another: both axes become one
            folded = (None if each is None else each.flatten(0, 1) for each in stacked)
            whole = run(call.of(members * call.members), *folded)
            results = tuple(each.unflatten(0, (members, call.members)) for each in whole)
    out, depth, cost = (_add_batch_dim(each, 0, level) for each in results)
    return out, depth, cost


def _stacked(tensor: Tensor | None, dim: int | None, members: int) -> Tensor | None:
    """With the members' axis in front."""
    if tensor is None or dim == 0:
        return tensor
    return tensor.expand(members, *tensor.shape) if dim is None else tensor.movedim(dim, 0)


class CellRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: Any) -> tuple[Tensor, Tensor, Tensor]:
        (out, depth, cost), ctx.kept = call.forward(tensors, backward_follows=any(ctx.needs_input_grad))
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(depth)
        ctx.save_for_backward(*tensors, out)
        ctx.call = call
        return out, depth, cost

    @staticmethod
    def backward(ctx: Any, d_out: Tensor | None, _: None, d_cost: Tensor | None) -> tuple[Tensor | None, ...]:
        *tensors, out = ctx.saved_tensors
        if d_out is None:
            d_out = torch.zeros_like(out)
        if any(each is not None and is_legacy_batchedtensor(each) for each in (d_out, d_cost)):
            raise RuntimeError(
                "the fused recurrences take one gradient at a time, not is_grads_batched=True (nor "
                'vectorize=True): use torch.func.jacrev, or eirehn.use_backend("reference")'
            )
        if torch.is_grad_enabled():  # somebody wants the gradient's own gradient
            return None, *ctx.call.differentiable(tensors, d_out, d_cost)
        return None, *ctx.call.backward(ctx.kept, out, d_out, d_cost, with_x=ctx.needs_input_grad[1])


class Call:
    """What a call is besides its tensors. With `members` every tensor has an axis for them in front."""

    def __init__(self, cell: RecurrentCell, batch_sizes: list[int], max_depth: int, reverse: bool) -> None:
        self.cell = cell
        self.names = cell.parameter_names
        self.kind = cell.weight_update if isinstance(cell, EIREHNCell) else "none"
        self.sizes = np.array(batch_sizes, np.int64)
        self.options: dict[str, Any] = {"max_depth": max_depth, "reverse": reverse}
        self.members: int | None = None

    def of(self, members: int) -> Call:
        call = copy.copy(self)
        call.members = members
        return call

    def forward(self, tensors: Sequence[Tensor | None], *, backward_follows: bool) -> tuple[list[Tensor], Any]:
        """The results, and what `backward` needs of the way to them."""
        if not backward_follows and self.members is None and self.sizes[0] == 1:
            found = alone(self.kind, self.names, tensors, **self.options)
            if found is not None:
                return found, None
        x, h0, mask, *values = self._arrays(tensors)
        p = dict(zip(self.names, values, strict=True))
        parameters = prepared(p)
        recurrence = Recurrence(self.kind, parameters, x, h0, mask, self.sizes, **self.options)
        results = recurrence.forward(backward_follows=backward_follows)
        return self._tensors(results), (p, parameters, recurrence)

    def backward(
        self, kept: Any, out: Tensor, d_out: Tensor, d_cost: Tensor | None, *, with_x: bool
    ) -> list[Tensor | None]:
        p, parameters, recurrence = kept
        found = recurrence.backward(*self._arrays((out, d_out, d_cost)), with_inputs=with_x)
        gradients = gradients_of(p, parameters, found.parameters)
        return self._tensors([found.inputs, found.h0, None, *(gradients[name] for name in self.names)])

    def _arrays(self, tensors: Iterable[Tensor | None]) -> list[Any]:
        """With an axis for the members, whether there are any or not."""
        if self.members is not None:
            return [None if each is None else as_array(each) for each in tensors]
        return [None if each is None else as_array(each)[None] for each in tensors]

    def _tensors(self, arrays: Iterable[Array | None]) -> list[Any]:
        if self.members is not None:
            return [None if each is None else torch.from_numpy(each) for each in arrays]
        return [None if each is None else torch.from_numpy(each[0]) for each in arrays]

    def differentiable(self, tensors: list[Tensor], d_out: Tensor, d_cost: Tensor | None) -> list[Tensor | None]:
        """The gradients as differentiable functions of everything: through the plain path."""
        if self.members is None:
            runs = [self._plain(tensors)]
            tops = [(runs[0][0], d_out), (runs[0][1], d_cost)]
        else:
            own = ([None if each is None else each[e] for each in tensors] for e in range(self.members))
            out, cost = map(torch.stack, zip(*(self._plain(each) for each in own), strict=True))
            tops = [(out, d_out), (cost, d_cost)]
        above = [(y, d) for y, d in tops if d is not None and y.requires_grad]
        x, h0, _, *values = tensors
        below = [each for each in (x, h0, *values) if each.requires_grad]
        gradients = iter(
            torch.autograd.grad(
                [y for y, _ in above], below, [d for _, d in above], create_graph=True, materialize_grads=True
            )
        )
        found = [next(gradients) if each.requires_grad else None for each in (x, h0, *values)]
        return [*found[:2], None, *found[2:]]

    def _plain(self, tensors: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
        """`out` (N, H) and `cost` (N,) of one member."""
        from ..reference import scan
        from ..unfused import Frame

        x, h0, mask, *values = tensors
        given: dict[str, Any] = {f"cell.{name}": value for name, value in zip(self.names, values, strict=True)}
        options = {**self.options, "h_mask": mask, "with_cost": True}
        run = torch.func.functional_call(Frame(self.cell), given, (scan, x, self.sizes.tolist(), h0), options)
        steps = [t for t, size in enumerate(self.sizes) for _ in range(size)]
        samples = [i for size in self.sizes for i in range(size)]
        return run.out, run.cost[steps, samples]


def prepared(p: Arrays) -> Parameters:
    """What the kernels take, from the cell's own parameters, each with an axis for the members in front."""
    if "W_ah" not in p:
        return Parameters(p["W_h"], p["b"], W_x=p["W_x"])
    alpha, beta = memory.empty(p["alpha_hat"].shape, p["b"].dtype), memory.empty(p["beta_hat"].shape, p["b"].dtype)
    W_x = np.concatenate([p["W_x"], p["W_ax"]], 1)
    first = Parameters(p["W_h"], p["b"], p["W_ah"], alpha, beta, W_x=W_x, b_a=p["b_a"])
    z1 = memory.empty(p["b_z"].shape if "b_z" in p else 0, p["b"].dtype)
    hats, hyper = _sources(p)
    kernels().constants(*_sizes(p), *hats, *hyper, flat(alpha), flat(beta), flat(z1))
    if "W_z" not in p:
        return first
    return first._replace(
        z1=z1,
        W_zs=np.concatenate([p["W_zh"], p["W_zg"]], 2),
        W_z=p["W_z"],
        b_z=p["b_z"],
        P=p["P"],
        P_bar=p.get("P_bar"),
        b_bar=p.get("b_bar"),
    )


HYPER = ("W_zh", "W_zg", "W_z", "b_z", "s_0", "g_0", "z_0")


def _sizes(p: Arrays) -> tuple[int, int]:
    return p["alpha_hat"].shape[1], p["b_z"].shape[1] if "b_z" in p else 0


def _sources(p: Arrays) -> tuple[list[Array], list[Array]]:
    """α̂ and β̂, and what z¹ comes from, checked, since the kernels read through bare pointers."""
    E, (H, Z) = len(p["b"]), _sizes(p)
    expected: dict[str, tuple[int, ...]] = {"alpha_hat": (H,), "beta_hat": (H,)}
    if Z:
        expected |= {"W_zh": (Z, H), "W_zg": (Z, H), "W_z": (Z, Z), "b_z": (Z,)}
        expected |= {"s_0": (H,), "g_0": (H,), "z_0": (Z,)}
    for name, shape in expected.items():
        check_shape(name, p[name].shape, (E, *shape))
        check_dtype(name, p[name], p["b"].dtype)
    none = np.empty(0, p["b"].dtype)
    return [flat(p["alpha_hat"]), flat(p["beta_hat"])], [flat(p[name]) if Z else none for name in HYPER]


def gradients_of(p: Arrays, q: Parameters, d: Parameters) -> Arrays:
    """From the gradients of the recurrence, which are overwritten, to those of the cell's own parameters."""
    assert d.W_x is not None
    rows = p["W_x"].shape[1]
    found = {"W_h": d.W_h, "b": d.b, "W_x": d.W_x[:, :rows]}
    if "W_ah" not in p:
        return found
    names = {"W_ah": d.W_ah, "alpha_hat": d.alpha, "beta_hat": d.beta, "b_a": d.b_a, "W_z": d.W_z, "b_z": d.b_z}
    names |= {"P": d.P, "P_bar": d.P_bar, "b_bar": d.b_bar}
    found |= {name: each for name, each in names.items() if each is not None} | {"W_ax": d.W_x[:, rows:]}
    parts = ("W_zh", "W_zg", "s_0", "g_0", "z_0")
    if q.z1 is not None:
        found |= {name: memory.empty(p[name].shape, d.W_h.dtype) for name in parts}
    none = np.empty(0, d.W_h.dtype)
    given = (q.beta, q.z1, d.alpha, d.beta, d.z1, d.W_zs, d.W_z, d.b_z, *(found.get(name) for name in parts))
    beta, z1, *gradients = (none if each is None else flat(each) for each in given)
    (alpha_hat, _), (W_zh, W_zg, W_z, _, *starts) = _sources(p)
    kernels().constants_back(*_sizes(p), alpha_hat, beta, z1, W_zh, W_zg, W_z, *starts, *gradients)
    return found
