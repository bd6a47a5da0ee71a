"""The Triton kernels for large networks against the plain path in float64, as in test_ops_triton.py.

Without a GPU each phase is a launch of its own, in Triton's interpreter; on a GPU both that and the one launch
whose programs wait for each other are tested.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import test_ops_triton as small
import torch
from helpers.quick import quick
from test_ops_triton import DEVICE, KINDS, Case, Poisoned, Problem, expected, make, on_gpu
from torch import Tensor

from eirehn.ops.triton.large import LargeLaunch, backward, default_launch, forward

pytestmark = small.pytestmark
PHASES = LargeLaunch(programs=3, persistent=False, num_stages=1, step=16)
WAYS = [PHASES] if DEVICE == "cpu" else [PHASES, LargeLaunch(step=32, num_stages=2)]


@dataclass(frozen=True)
class Large(Case):
    launch: LargeLaunch = PHASES
    kept: bool = False


def found(case: Large, problem: Problem) -> dict[str, Tensor]:
    arguments = (problem.u, problem.h0, problem.weights, problem.batch_sizes, problem.offsets)
    options = {
        "kind": case.kind,
        "max_depth": case.R,
        "mask": problem.mask,
        "reverse": case.reverse,
        "launch": case.launch,
    }
    with Poisoned():
        out, depth, cost, *saved = forward(*arguments, **options, keep=case.kept, out_dtype=torch.float32)
        d_u, d_h0, grads = backward(
            *arguments, out, problem.d_out, problem.d_cost, **options, saved=saved[0] if saved else None
        )
    results = {"out": out, "depth": depth, "cost": cost, "d_u": d_u, "d_h0": d_h0}
    results |= {"d_" + name: each for name, each in grads._asdict().items() if each is not None}
    return {name: each.detach().cpu() for name, each in results.items()}


def errors(case: Large, device: str = DEVICE) -> dict[str, float]:
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


def check(case: Large) -> None:
    table = errors(case)
    depth = table.pop("depth")
    assert depth == 0 or case.dtype != torch.float32, f"depth differs in {depth:.0%} of the rows"
    tolerance = small.TOLERANCE[case.dtype]
    wrong = {name: f"{error:.1e}" for name, error in table.items() if not error <= tolerance}
    assert not wrong, f"{case}: {wrong}"


@pytest.mark.parametrize("kind", quick("RHN", of=KINDS))
def test_every_kind(kind: str) -> None:
    for launch in WAYS:
        check(Large(kind=kind, H=20, Z=10, sizes=(3, 3, 2), masked=True, launch=launch))


@pytest.mark.parametrize("kind", quick("RHN", of=["paper", "RHN"]))
def test_reverse(kind: str) -> None:
    for launch in WAYS:
        check(Large(kind=kind, H=21, Z=11, sizes=(3, 2, 1), R=2, reverse=True, kept=True, launch=launch))


@pytest.mark.parametrize("gates", quick("shut", of=["never", "shut"]))
def test_gates(gates: str) -> None:
    for launch in WAYS:
        check(Large(H=20, Z=10, sizes=(2, 2), gates=gates, kept=True, launch=launch))


def test_no_hypernetwork_shut() -> None:
    for launch in WAYS:
        check(Large(kind="none", H=20, sizes=(2, 2), gates="shut", launch=launch))


@pytest.mark.slow
def test_more_samples_than_a_tile() -> None:
    for launch in WAYS:
        check(Large(H=24, Z=17, sizes=(17, 5), R=2, E=2, masked=True, launch=launch._replace(block=16)))


@pytest.mark.slow
def test_sums_in_parts() -> None:
    for launch in WAYS:
        check(Large(H=40, Z=20, sizes=(3, 2), R=2, kept=True, launch=launch._replace(split=4, step=16)))


@pytest.mark.parametrize("kind", quick("RHN", of=["paper", "none", "RHN"]))
def test_one_launch(kind: str) -> None:
    # A single program has nobody to wait for, so that the interpreter can run it too.
    launch = PHASES._replace(programs=1, persistent=True)
    check(Large(kind=kind, H=20, Z=10, sizes=(2, 2, 1), R=3, launch=launch))


def test_cut_short() -> None:
    case = Large(kind="RHN", H=20, sizes=(2, 1), R=3)
    problem = make(case, DEVICE)
    case = replace(case, R=2)
    want, have = expected(case, problem), found(case, problem)
    for name in ("out", "d_u", "d_h0", "d_W_h", "d_b"):
        torch.testing.assert_close(have[name].double(), want[name], rtol=1e-4, atol=1e-4)


def test_one_inner_step() -> None:
    for launch in WAYS:
        check(Large(H=20, Z=10, sizes=(2, 1), R=1, launch=launch))


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_time_in_chunks(reverse: bool) -> None:
    check(
        Large(H=9, Z=5, sizes=(3, 3, 2, 1), R=2, masked=True, reverse=reverse, launch=PHASES._replace(workspace=1))
    )


@pytest.mark.slow
def test_no_gradient_of_cost() -> None:
    check(Large(H=20, Z=10, sizes=(2, 2), R=2, costed=False))


def test_no_samples() -> None:
    problem = make(Case(sizes=(1,)), DEVICE)
    arguments = (problem.u[:, :0], problem.h0[:, :0], problem.weights, problem.batch_sizes * 0, problem.offsets)
    out, depth, cost = forward(*arguments, kind="paper", max_depth=3)
    d_u, d_h0, grads = backward(*arguments, out, out, cost, kind="paper", max_depth=3)
    assert (out.shape, depth.shape, d_u.shape, d_h0.shape) == ((1, 0, 3), (1, 0), (1, 0, 9), (1, 0, 3))
    assert not any(grad.any() for grad in grads if grad is not None)


@pytest.mark.slow
def test_nan_stays_in_its_sample() -> None:
    case = Large(H=20, Z=10, sizes=(3, 3), R=2, gates="never")
    problem = make(case, DEVICE)
    clean = found(case, problem)
    problem.u[0, 1, 0] = float("nan")
    dirty = found(case, problem)
    others = [0, 2, 3, 5]
    for name in ("out", "depth", "cost", "d_u"):
        assert torch.equal(clean[name][0, others], dirty[name][0, others])
    assert dirty["out"][0, 1].isnan().any()


@on_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("batch", [1, 20, 33])
@pytest.mark.parametrize("H", [200, 333, 1200])
def test_real_sizes(H: int, batch: int, dtype: torch.dtype) -> None:
    launch = default_launch(dtype)
    sizes = (batch, batch, max(1, batch // 2))
    case = Large(H=H, Z=H // 2, sizes=sizes, R=4, masked=True, dtype=dtype, launch=launch, kept=batch == 20)
    if dtype == torch.bfloat16:
        case = replace(case, gates="never")  # a gate that shuts a step early or late has another gradient
    check(case)
    check(replace(case, launch=LargeLaunch(spin="load", step=32)))
    check(replace(case, kind="RHN", reverse=True))


@on_gpu
@pytest.mark.parametrize("kind", KINDS)
def test_real_kinds(kind: str) -> None:
    case = Large(kind=kind, H=200, Z=100, sizes=(20,) * 4, R=4, masked=True)
    for launch in (LargeLaunch(step=32, num_stages=2), LargeLaunch(step=32, precision="ieee"), PHASES):
        check(replace(case, launch=launch))


@on_gpu
def test_same_bits_twice() -> None:
    case = Large(H=333, Z=167, sizes=(20,) * 20, R=4, launch=LargeLaunch(step=32, num_stages=2))
    problem = make(case, DEVICE)
    one, two = found(case, problem), found(case, problem)
    assert all(torch.equal(one[name], two[name]) for name in one)
