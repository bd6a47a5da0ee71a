"""The Triton kernels against the plain path in float64: outputs, depth, cost and every gradient.

On a machine without a GPU the kernels run in Triton's interpreter, on small shapes; it must be switched on before
Triton is imported, so set TRITON_INTERPRET=1 for the whole run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from helpers.quick import quick
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from eirehn.ops.triton import GATED, KINDS, Launch, Weights, available, backward, default_launch, forward
from eirehn.ops.unfused import unfused

CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if CUDA and not INTERPRETED else "cpu"

pytestmark = [
    pytest.mark.skipif(not available(), reason="triton is not installed"),
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
    costed: bool = True
    dtype: torch.dtype = torch.float32
    launch: Launch = field(default=ROW)
    seed: int = 0


@dataclass
class Problem:
    """One case's tensors, in the dtype the kernels read."""

    u: Tensor
    h0: Tensor
    mask: Tensor | None
    weights: Weights
    d_out: Tensor
    d_cost: Tensor | None
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
    weights = Weights(W_h=normal(E, *sets, 2 * H, H, scale=bound), b=normal(E, *sets, 2 * H, scale=0.3))
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
        d_cost=normal(E, N, dtype=torch.float32) if case.costed else None,
        batch_sizes=batch_sizes,
        offsets=batch_sizes.cumsum(0) - batch_sizes,
    )
    return Problem(*(moved(value, device) for value in vars(problem).values()))


def moved(value: Tensor | Weights | None, device: str) -> Tensor | Weights | None:
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
    out, depth, cost = unfused(leaves["u"], leaves["h0"], mask, weights, case.sizes, kind, case.R, case.reverse)
    loss = (out * problem.d_out.cpu().double()).sum()
    if problem.d_cost is not None:
        loss = loss + (cost * problem.d_cost.cpu().double()).sum()
    gradients = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    found = {"out": out.detach(), "depth": depth, "cost": cost.detach()}
    return found | {"d_" + name: gradient for name, gradient in zip(leaves, gradients, strict=True)}


def found(case: Case, problem: Problem) -> dict[str, Tensor]:
    arguments = (problem.u, problem.h0, problem.weights, problem.batch_sizes, problem.offsets)
    options = {
        "kind": case.kind,
        "max_depth": case.R,
        "mask": problem.mask,
        "reverse": case.reverse,
        "launch": case.launch,
    }
    with Poisoned():
        out, depth, cost = forward(*arguments, **options)
        d_u, d_h0, grads = backward(*arguments, out, problem.d_out, problem.d_cost, **options)
    results = {"out": out, "depth": depth, "cost": cost, "d_u": d_u, "d_h0": d_h0}
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
    """Largest error of each tensor over its largest value; of the depth, the share that differs."""
    problem = make(case, device)
    want, have = expected(case, problem), found(case, problem)
    assert want.keys() == have.keys()
    table = {}
    for name, value in want.items():
        assert value.shape == have[name].shape, name
        if name == "depth":
            table[name] = (value != have[name]).double().mean().item()
            continue
        scale = value.abs().max().item()
        error = (have[name].double() - value).abs().max().item()
        table[name] = error / scale if scale > 0 else (0.0 if error == 0 else float("inf"))
    return table


def check(case: Case, device: str = DEVICE) -> float:
    table = errors(case, device)
    depth = table.pop("depth")
    assert depth == 0 or case.dtype != torch.float32, f"depth differs in {depth:.0%} of the rows"
    tolerance = TOLERANCE[case.dtype]
    wrong = {name: f"{error:.1e}" for name, error in table.items() if not error <= tolerance}
    assert not wrong, f"{case}: {wrong}"
    return max(table.values())


@pytest.mark.parametrize("launch", quick(TILE, of=[ROW, TILE]), ids=["row", "tile"])
@pytest.mark.parametrize("kind", quick("paper", of=KINDS))
def test_every_kind(kind: str, launch: Launch) -> None:
    check(Case(kind=kind, launch=launch, masked=True, E=2, sizes=(3, 3, 2, 1)))


@pytest.mark.parametrize("launch", [ROW, TILE], ids=["row", "tile"])
@pytest.mark.parametrize("kind", quick("RHN", of=["paper", "RHN"]))
def test_reverse(kind: str, launch: Launch) -> None:
    check(Case(kind=kind, launch=launch, reverse=True, masked=True, sizes=(3, 2, 2, 1)))


@pytest.mark.parametrize("gates", quick("shut", of=["never", "shut"]))
@pytest.mark.parametrize("launch", [ROW, TILE], ids=["row", "tile"])
def test_gates(gates: str, launch: Launch) -> None:
    check(Case(gates=gates, launch=launch, sizes=(2, 2)))


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "R"), [((1,), 1), ((1, 1, 1, 1), 3), ((17, 17), 1)])
def test_shapes(sizes: tuple[int, ...], R: int) -> None:
    check(Case(sizes=sizes, R=R, launch=TILE))
    check(Case(sizes=sizes[:1] if sizes[0] > 1 else sizes, R=R, launch=ROW))


@pytest.mark.slow
@pytest.mark.parametrize("launch", [ROW, TILE], ids=["row", "tile"])
def test_wider(launch: Launch) -> None:
    check(Case(H=20, Z=10, sizes=(2, 2, 1), R=3, launch=launch))


@pytest.mark.slow
def test_weights_read_at_each_step() -> None:
    check(Case(launch=TILE._replace(resident=False)))
    check(Case(launch=ROW._replace(resident=False)))


@pytest.mark.slow
def test_time_in_chunks() -> None:
    for reverse in (False, True):
        check(Case(launch=TILE._replace(workspace=2 * 4 * 3 * 3 * 40), reverse=reverse))


def test_no_gradient_of_cost() -> None:
    check(Case(costed=False, launch=TILE))


def test_no_samples() -> None:
    problem = make(Case(sizes=(1,)), DEVICE)
    arguments = (problem.u[:, :0], problem.h0[:, :0], problem.weights, problem.batch_sizes * 0, problem.offsets)
    out, depth, cost = forward(*arguments, kind="paper", max_depth=3)
    d_u, d_h0, grads = backward(*arguments, out, out, cost, kind="paper", max_depth=3)
    assert (out.shape, depth.shape, d_u.shape, d_h0.shape) == ((1, 0, 3), (1, 0), (1, 0, 9), (1, 0, 3))
    assert not any(grad.any() for grad in grads if grad is not None)


def test_bfloat16() -> None:
    # The interpreter cannot multiply tiles of bfloat16.
    check(Case(dtype=torch.bfloat16, H=20, Z=10, sizes=(2, 2), launch=ROW))


def test_nan_stays_in_its_sample() -> None:
    case = Case(sizes=(3, 3), launch=TILE, gates="never")
    problem = make(case, DEVICE)
    clean = found(case, problem)
    problem.u[0, 1, 0] = float("nan")
    dirty = found(case, problem)
    others = [0, 2, 3, 5]
    for name in ("out", "depth", "cost", "d_u"):
        assert torch.equal(clean[name][0, others], dirty[name][0, others])
    assert dirty["out"][0, 1].isnan().any()


@on_gpu
@pytest.mark.parametrize(
    ("block", "dtype"),
    # Tiles round the state to bfloat16 for every product, which at H = 20 is 2.1e-2 off; no default takes them.
    [(1, torch.float32), (16, torch.float32), (1, torch.bfloat16)],
    ids=["row", "tile", "row-bfloat16"],
)
@pytest.mark.parametrize("H", [1, 3, 20, 33, 48, 100, 128])
def test_real_sizes(H: int, block: int, dtype: torch.dtype) -> None:
    warps = 4 if H <= 32 else 8 if H <= 64 or block > 1 else 16
    launch = Launch(block=block, num_warps=warps, precision="tf32x3", resident=H <= 32)
    case = Case(H=H, Z=(H + 1) // 2, sizes=(40, 40, 37, 20, 3), R=4, E=2, masked=True, dtype=dtype, launch=launch)
    if dtype == torch.bfloat16:
        case = replace(case, gates="never")  # a gate that shuts a step early or late has another gradient
    check(case)
    check(replace(case, kind="RHN", reverse=True))


@on_gpu
def test_default_launch() -> None:
    for H in (20, 48, 128):
        case = Case(H=H, Z=(H + 1) // 2, sizes=(50,) * 8, R=4)
        for members in (1, 8, 20):  # the launches for so many, on fewer
            check(replace(case, launch=default_launch(members, 50, H)))
            check(replace(case, launch=default_launch(members, 50, H, backward=True)))


@on_gpu
@pytest.mark.parametrize("precision", ["ieee", "tf32x3"])
@pytest.mark.parametrize("kind", KINDS)
def test_real_kinds(kind: str, precision: str) -> None:
    launch = Launch(block=16, precision=precision, resident=False)
    check(Case(kind=kind, H=48, Z=24, sizes=(50,) * 20, R=4, launch=launch))
    check(Case(kind=kind, H=20, Z=10, sizes=(20,) * 20, R=6, E=3, launch=Launch(block=1)))


@on_gpu
def test_same_bits_twice() -> None:
    case = Case(H=48, Z=24, sizes=(50,) * 20, R=4)
    problem = make(case, DEVICE)
    one, two = found(case, problem), found(case, problem)
    assert all(torch.equal(one[name], two[name]) for name in one)
