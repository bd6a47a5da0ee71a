"""Recurrences for the kernels of a GPU, and what the plain path makes of them in float64, with every gradient.

On a machine without a GPU the kernels run in Triton's interpreter, on small shapes; it must be switched on before
Triton is imported, so set TRITON_INTERPRET=1 for the whole run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from eirehn.ops.dispatch import HAS_TRITON
from eirehn.ops.reference import unfused
from eirehn.ops.triton import GATED, KINDS, Launch, backward, forward, large
from eirehn.ops.weights import Arguments, Weights
from helpers.systems import largest_error

CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if CUDA and not INTERPRETED else "cpu"

GPU_TESTS = [
    pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed"),
    pytest.mark.skipif(not CUDA and not INTERPRETED, reason="no GPU, and TRITON_INTERPRET=1 is not set"),
    pytest.mark.skipif(
        INTERPRETED and np.lib.NumpyVersion(np.__version__) >= "2.4.0",
        reason="Triton's interpreter takes arrays of one element for numbers, which NumPy 2.4 no longer does",
    ),
    # The interpreter computes exp and 1/(1+exp) with NumPy, which warns where a GPU is silent.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
on_gpu = pytest.mark.skipif(DEVICE != "cuda", reason="takes too long in the interpreter")

ELASTIC = [kind for kind, (_, elastic, _) in KINDS.items() if elastic]
ROW = Launch(block=1)
TILE = Launch(block=16)
PHASES = large.LargeLaunch(programs=3, persistent=False, num_stages=1, step=16)
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}


@dataclass(frozen=True)
class Case:
    kind: str = "paper"
    H: int = 3
    Z: int = 2
    sizes: tuple[int, ...] = (3, 3, 3, 3)  # samples running at each time step
    R: int = 3
    E: int = 1
    gates: str = "mixed"
    masked: bool = False
    reverse: bool = False
    dtype: torch.dtype = torch.float32
    launch: Launch | large.LargeLaunch = ROW
    kept: bool = False  # what the forward pass of a large network found
    cuda: bool = False
    seed: int = 0


@dataclass
class Problem:
    """One case's tensors, in the dtype the kernels read."""

    u: Tensor
    h0: Tensor
    mask: Tensor | None
    weights: Weights[Tensor]
    d_out: Tensor
    batch_sizes: Tensor
    offsets: Tensor


def make(case: Case, device: str) -> Problem:
    generator = torch.Generator().manual_seed(case.seed)
    E, H, Z, R = case.E, case.H, case.Z, case.R
    B, N = case.sizes[0], sum(case.sizes)
    update, elastic, own = KINDS[case.kind]

    def normal(*shape: int, scale: float = 1.0, dtype: torch.dtype = case.dtype) -> Tensor:
        return (torch.randn(*shape, generator=generator) * scale).to(dtype)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    sets = (R,) if own else ()
    bound = H**-0.5
    weights: Weights[Tensor] = Weights(
        W_h=normal(E, *sets, 2 * H, H, scale=bound), b=normal(E, *sets, 2 * H, scale=0.3)
    )
    u = normal(E, N, 2 * H)
    if elastic:
        # α_t of a row is near sigm(shift): 0.02 leaves every gate open, 0.98 shuts them all, and between the
        # two the rows stop at different depths.
        shift = {"never": -5.0, "shut": 5.0, "mixed": 0.0}[case.gates] + torch.zeros(E, N, 1)
        if case.gates == "mixed":
            shift = 5.0 * uniform(E, N, 1) - 4.5
        u = torch.cat([u, (normal(E, N, H, scale=0.3, dtype=torch.float32) + shift).to(case.dtype)], -1)
        weights = weights._replace(
            W_ah=normal(E, H, H, scale=0.3 * bound),
            alpha=0.01 + 0.1 * uniform(E, H),
            beta=0.85 + 0.1 * uniform(E, H),
        )
    if update:
        weights = weights._replace(
            z1=normal(E, Z, scale=0.5),
            W_zs=normal(E, Z, 2 * H, scale=bound),
            W_z=normal(E, Z, Z, scale=Z**-0.5),
            b_z=normal(E, Z, scale=0.3),
            P=normal(E, 2 * H, Z, scale=Z**-0.5),
        )
    if update in GATED:
        weights = weights._replace(P_bar=normal(E, 2 * H, Z, scale=Z**-0.5), b_bar=normal(E, 2 * H))
    batch_sizes = torch.tensor(case.sizes)
    problem = Problem(
        u=u,
        h0=normal(E, B, H, scale=0.5),
        mask=(uniform(E, B, H) > 0.3).to(case.dtype) / 0.7 if case.masked else None,
        weights=weights,
        d_out=normal(E, N, H),
        batch_sizes=batch_sizes,
        offsets=batch_sizes.cumsum(0) - batch_sizes,
    )
    return Problem(*(moved(value, device) for value in vars(problem).values()))


def moved(value: Any, device: str) -> Any:
    if isinstance(value, Weights):
        return Weights(*(moved(each, device) for each in value))
    return None if value is None else value.to(device).contiguous()


def expected(case: Case, problem: Problem) -> dict[str, Tensor]:
    """Outputs and gradients of the plain path, in float64 on the CPU."""

    def leaf(tensor: Tensor) -> Tensor:
        return tensor.detach().cpu().double().requires_grad_()

    leaves = {"u": leaf(problem.u), "h0": leaf(problem.h0)}
    leaves |= {name: leaf(each) for name, each in problem.weights._asdict().items() if each is not None}
    mask = None if problem.mask is None else problem.mask.cpu().double()
    weights = Weights(**{name: leaves.get(name) for name in Weights._fields})
    kind = "none" if case.kind in ("RHN", "SRHN") else case.kind
    given = Arguments(leaves["u"], leaves["h0"], mask, weights, case.sizes, kind, case.R, case.reverse)
    out, depth = unfused(given)
    d_out = problem.d_out.cpu().double()
    gradients = torch.autograd.grad(out, list(leaves.values()), d_out, materialize_grads=True)
    found = {"out": out.detach(), "depth": depth}
    return found | {"d_" + name: gradient for name, gradient in zip(leaves, gradients, strict=True)}


def found(case: Case, problem: Problem) -> dict[str, Tensor]:
    """Of the kernels for small networks, or with a `LargeLaunch` of those for large ones."""
    arguments = (problem.u, problem.h0, problem.weights, problem.batch_sizes, problem.offsets)
    options: dict[str, Any] = {
        "kind": case.kind,
        "max_depth": case.R,
        "mask": problem.mask,
        "reverse": case.reverse,
        "launch": case.launch,
    }
    with Poisoned():
        if isinstance(case.launch, large.LargeLaunch):
            options["cuda"] = case.cuda
            out, depth, *saved = large.forward(*arguments, **options, keep=case.kept, out_dtype=torch.float32)
            kept = saved[0] if saved else None
            d_u, d_h0, grads = large.backward(*arguments, out, problem.d_out, **options, saved=kept)
        else:
            out, depth = forward(*arguments, **options)
            d_u, d_h0, grads = backward(*arguments, out, problem.d_out, **options)
    results = {"out": out, "depth": depth, "d_u": d_u, "d_h0": d_h0}
    results |= {"d_" + name: each for name, each in grads._asdict().items() if each is not None}
    return {name: each.detach().cpu() for name, each in results.items()}


class Poisoned(TorchDispatchMode):
    """Fresh memory holds NaN, so that what a kernel does not write cannot pass."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket in (torch.ops.aten.empty, torch.ops.aten.new_empty, torch.ops.aten.empty_like):
            result.fill_(float("nan") if result.is_floating_point() else -7)
        return result


def errors(case: Case, device: str = DEVICE) -> dict[str, float]:
    """Of each tensor; of the depth 0 where it is the same."""
    problem = make(case, device)
    want, have = expected(case, problem), found(case, problem)
    assert want.keys() == have.keys()
    return {name: largest_error([have[name]], [value]) for name, value in want.items()}


def check(case: Case) -> None:
    table = errors(case)
    depth = table.pop("depth")
    assert depth == 0 or case.dtype != torch.float32, case
    wrong = {name: f"{error:.1e}" for name, error in table.items() if not error <= TOLERANCE[case.dtype]}
    assert not wrong, f"{case}: {wrong}"


def nan_stays_in_its_sample(case: Case) -> None:
    problem = make(case, DEVICE)
    clean = found(case, problem)
    problem.u[0, 1, 0] = float("nan")
    dirty = found(case, problem)
    samples = [sample for size in case.sizes for sample in range(size)]
    others = [row for row, sample in enumerate(samples) if sample != 1]
    for name in ("out", "depth", "d_u"):
        assert torch.equal(clean[name][0, others], dirty[name][0, others])
    assert dirty["out"][0, 1].isnan().any()


def same_bits_twice(case: Case) -> None:
    problem = make(case, DEVICE)
    one, two = found(case, problem), found(case, problem)
    assert all(torch.equal(one[name], two[name]) for name in one)
