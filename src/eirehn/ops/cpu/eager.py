"""A cell over a whole sequence on the CPU as one node of the autograd graph, with its input projection.

A small network takes less time than the dozen torch operators around its recurrence, and the threads these leave
spinning keep the kernels from a core. So `W_x x`, `W_ax x + b_a`, `α`, `β` and `z¹` are computed here, in NumPy,
and their gradients by hand:

    u = [x W_xᵀ | x W_axᵀ + b_a]      δW_x = δu_xᵀ x,  δW_ax = δu_aᵀ x,  δb_a = Σ δu_a,  δx = δu_x W_x + δu_a W_ax
    α = softplus(α̂), β = sigm(β̂)     δα̂ = δα sigm(α̂),  δβ̂ = δβ β (1 − β)
    z¹ = tanh(ζ), ζ = W_zh s⁰ + W_zg ĝ⁰ + W_z z⁰ + b_z
                                      δζ = δz¹ (1 − z¹²);  δW_zh += δζ s⁰ᵀ,  δs⁰ = W_zhᵀ δζ, and so on
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...cells import EIREHNCell, RecurrentCell
from .recurrence import Array, Parameters, backward, forward

Arrays = dict[str, Array]


def run(call: Call, *tensors: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """`out` (N, H), `depth` (N,) and `cost` (N,), from x (N, X), h0, the mask and the cell's parameters."""
    if torch.is_grad_enabled():
        out, depth, cost = CellRecurrence.apply(call, *tensors)  # type: ignore[no-untyped-call]  # torch's own
    else:
        results, _ = call.forward(*_arrays(tensors))
        out, depth, cost = map(torch.from_numpy, results)
    return out, depth, cost


def _arrays(tensors: Iterable[Tensor | None]) -> list[Any]:
    return [None if each is None else each.detach().numpy() for each in tensors]


class CellRecurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: Any) -> tuple[Tensor, Tensor, Tensor]:
        results, ctx.kept = call.forward(*_arrays(tensors))
        out, depth, cost = map(torch.from_numpy, results)
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
        if torch.is_grad_enabled():  # somebody wants the gradient's own gradient
            return None, *ctx.call.differentiable(tensors, d_out, d_cost)
        arrays = _arrays((*tensors, out, d_out, d_cost))
        found = ctx.call.backward(ctx.kept, *arrays, with_x=ctx.needs_input_grad[1])
        return None, *(None if each is None else torch.from_numpy(each) for each in found)


class Call:
    """What a call is besides its tensors."""

    def __init__(self, cell: RecurrentCell, batch_sizes: list[int], max_depth: int, reverse: bool) -> None:
        self.cell = cell
        self.names = cell.parameter_names
        self.kind = cell.weight_update if isinstance(cell, EIREHNCell) else "none"
        self.sizes = np.array(batch_sizes, np.int64)
        self.options: dict[str, Any] = {"max_depth": max_depth, "reverse": reverse}

    def forward(
        self, x: Array, h0: Array, mask: Array | None, *values: Array
    ) -> tuple[tuple[Array, Array, Array], tuple[Array, Parameters]]:
        """The results, and what `backward` needs of the way to them."""
        p = dict(zip(self.names, values, strict=True))
        u, parameters = projected(p, x), prepared(p)
        run = forward(self.kind, parameters, u, h0[None], _member(mask), self.sizes, **self.options)
        return (run.out[0], run.depth[0], run.cost[0]), (u, parameters)

    def backward(
        self,
        kept: tuple[Array, Parameters],
        x: Array,
        h0: Array,
        mask: Array | None,
        *rest: Array,
        with_x: bool,
    ) -> list[Array | None]:
        *values, out, d_out, d_cost = rest
        u, parameters = kept
        found = backward(
            self.kind, parameters, u, h0[None], _member(mask), self.sizes, out[None], d_out[None], _member(d_cost),
            **self.options,
        )  # fmt: skip
        p = dict(zip(self.names, values, strict=True))
        d_u = found.u[0]
        gradients = gradients_of(p, x, d_u, parameters, found.parameters)
        d_x = times(d_u, from_input(p)) if with_x else None
        return [d_x, found.h0[0], None, *(gradients[name] for name in self.names)]

    def differentiable(self, tensors: list[Tensor], d_out: Tensor, d_cost: Tensor | None) -> list[Tensor | None]:
        """The gradients as differentiable functions of everything: through the plain path."""
        from ..reference import scan
        from ..unfused import Frame

        x, h0, mask, *values = tensors
        given = {f"cell.{name}": value for name, value in zip(self.names, values, strict=True)}
        options = {**self.options, "h_mask": mask, "with_cost": True}
        run = torch.func.functional_call(Frame(self.cell), given, (scan, x, self.sizes.tolist(), h0), options)
        steps = [t for t, size in enumerate(self.sizes) for _ in range(size)]
        samples = [i for size in self.sizes for i in range(size)]
        tops = [(run.out, d_out)]
        if d_cost is not None and run.cost.requires_grad:
            tops.append((run.cost[steps, samples], d_cost))
        below = [each for each in (x, h0, *values) if each.requires_grad]
        gradients = iter(
            torch.autograd.grad(
                [y for y, _ in tops], below, [d for _, d in tops], create_graph=True, materialize_grads=True
            )
        )
        found = [next(gradients) if each.requires_grad else None for each in (x, h0, *values)]
        return [*found[:2], None, *found[2:]]


def _member(array: Array | None) -> Array | None:
    return None if array is None else array[None]


def times(a: Array, b: Array) -> Array:
    """`a @ b`, a large one by torch: the threads of NumPy's own library wait for more work for 25 ms after it, each
    keeping a core from the kernels; torch's let go sooner, but cost more to call."""
    if a.shape[0] * a.shape[1] * b.shape[1] < 200_000:
        return a @ b
    product: Array = torch.mm(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    return product


def _sigm(a: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * a))  # overflows nowhere


def projected(p: Arrays, x: Array) -> Array:
    """`W_x x` and `W_ax x + b_a`, side by side, (1, N, 3H)."""
    u = times(x, from_input(p).T)
    if "W_ax" in p:
        u[:, p["W_x"].shape[0] :] += p["b_a"]
    return u[None]


def from_input(p: Arrays) -> Array:
    """`W_x` over `W_ax`: one product of whole arrays, since those with parts of arrays are many times slower."""
    return np.concatenate([p["W_x"], p["W_ax"]]) if "W_ax" in p else p["W_x"]


def prepared(p: Arrays) -> Parameters:
    if "W_ah" not in p:
        return Parameters(p["W_h"][None], p["b"][None])
    alpha_hat, beta_hat = p["alpha_hat"], p["beta_hat"]
    alpha, beta = np.logaddexp(alpha_hat, 0), _sigm(beta_hat)
    first = Parameters(p["W_h"][None], p["b"][None], p["W_ah"][None], alpha[None], beta[None])
    if "W_z" not in p:
        return first
    z = np.tanh(p["W_zh"] @ p["s_0"] + p["W_zg"] @ p["g_0"] + p["W_z"] @ p["z_0"] + p["b_z"])
    return first._replace(
        z1=z[None],
        W_zs=np.concatenate([p["W_zh"], p["W_zg"]], 1)[None],
        W_z=p["W_z"][None],
        b_z=p["b_z"][None],
        P=p["P"][None],
        P_bar=p["P_bar"][None] if "P_bar" in p else None,
        b_bar=p["b_bar"][None] if "b_bar" in p else None,
    )


def gradients_of(p: Arrays, x: Array, d_u: Array, q: Parameters, d: Parameters) -> Arrays:
    """From the gradients of the recurrence to those of the cell's own parameters."""
    rows, d_W = p["W_x"].shape[0], times(d_u.T, x)
    found = {"W_h": d.W_h[0], "b": d.b[0], "W_x": d_W[:rows]}
    if "W_ah" not in p:
        return found
    assert d.W_ah is not None
    assert d.alpha is not None
    assert d.beta is not None
    assert q.beta is not None
    beta = q.beta[0]
    # A product with ones, which adds up in blocks: NumPy's own sum down the rows keeps one running total, and its
    # error over 25,000 rows is forty times as large.
    found |= {"W_ah": d.W_ah[0], "W_ax": d_W[rows:], "b_a": times(np.ones((1, len(x)), x.dtype), d_u)[0, rows:]}
    found |= {"alpha_hat": d.alpha[0] * _sigm(p["alpha_hat"]), "beta_hat": d.beta[0] * beta * (1 - beta)}
    if q.z1 is None:
        return found
    assert d.z1 is not None
    assert d.W_zs is not None
    assert d.W_z is not None
    assert d.b_z is not None
    assert d.P is not None
    H, zeta = p["s_0"].size, d.z1[0] * (1 - q.z1[0] ** 2)
    found |= {
        "W_zh": d.W_zs[0, :, :H] + np.outer(zeta, p["s_0"]),
        "W_zg": d.W_zs[0, :, H:] + np.outer(zeta, p["g_0"]),
        "W_z": d.W_z[0] + np.outer(zeta, p["z_0"]),
        "b_z": d.b_z[0] + zeta,
        "s_0": zeta @ p["W_zh"],
        "g_0": zeta @ p["W_zg"],
        "z_0": zeta @ p["W_z"],
        "P": d.P[0],
    }
    if d.P_bar is not None and d.b_bar is not None:
        found |= {"P_bar": d.P_bar[0], "b_bar": d.b_bar[0]}
    return found
