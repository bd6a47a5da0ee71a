"""The Triton kernels for small networks against the plain path in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.gpu_problems import (
    DEVICE,
    GPU_TESTS,
    KINDS,
    ROW,
    TILE,
    Case,
    check,
    make,
    nan_stays_in_its_sample,
    on_gpu,
    same_bits_twice,
)
from helpers.quick import quick

from eirehn.ops import triton
from eirehn.ops.triton import Launch, default_launch, large

pytestmark = GPU_TESTS
BOTH = pytest.mark.parametrize("launch", [ROW, TILE], ids=["row", "tile"])


@pytest.mark.parametrize("launch", quick(TILE, of=[ROW, TILE]), ids=["row", "tile"])
@pytest.mark.parametrize("kind", quick("paper", of=KINDS))
def test_every_kind(kind: str, launch: Launch) -> None:
    check(Case(kind=kind, launch=launch, masked=True, E=2, sizes=(3, 3, 2, 1)))


@BOTH
@pytest.mark.parametrize("kind", quick("RHN", of=["paper", "RHN"]))
def test_reverse(kind: str, launch: Launch) -> None:
    check(Case(kind=kind, launch=launch, reverse=True, masked=True, sizes=(3, 2, 2, 1)))


@pytest.mark.parametrize("gates", quick("shut", of=["never", "shut"]))
@BOTH
def test_gates(gates: str, launch: Launch) -> None:
    check(Case(gates=gates, launch=launch, sizes=(2, 2)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"sizes": (1,), "R": 1},
        {"sizes": (1, 1, 1, 1)},
        {"sizes": (17, 17), "R": 1},
        {"H": 20, "Z": 10, "sizes": (2, 2, 1)},
    ],
    ids=str,
)
@BOTH
def test_sizes(options: dict[str, Any], launch: Launch) -> None:
    check(Case(launch=launch, **options))


@pytest.mark.slow
@BOTH
def test_weights_read_at_each_step(launch: Launch) -> None:
    check(Case(launch=launch._replace(resident=False)))


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_time_in_chunks(reverse: bool) -> None:
    check(Case(launch=TILE._replace(workspace=2 * 4 * 3 * 3 * 40), reverse=reverse))


@pytest.mark.parametrize("kernels", [triton, large], ids=["small", "large"])
def test_no_samples(kernels: Any) -> None:
    """Nothing in, nothing out, and gradients of zero."""
    problem = make(Case(sizes=(1,)), DEVICE)
    arguments = (problem.u[:, :0], problem.h0[:, :0], problem.weights, problem.batch_sizes * 0, problem.offsets)
    out, depth = kernels.forward(*arguments, kind="paper", max_depth=3)
    d_u, d_h0, grads = kernels.backward(*arguments, out, out, kind="paper", max_depth=3)
    assert (out.shape, depth.shape, d_u.shape, d_h0.shape) == ((1, 0, 3), (1, 0), (1, 0, 9), (1, 0, 3))
    assert not any(grad.any() for grad in grads if grad is not None)


def test_bfloat16() -> None:
    # The interpreter cannot multiply tiles of bfloat16.
    check(Case(dtype=torch.bfloat16, H=20, Z=10, sizes=(2, 2), launch=ROW))


def test_nan_stays_in_its_sample() -> None:
    nan_stays_in_its_sample(Case(sizes=(3, 3), launch=TILE, gates="never"))


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
    same_bits_twice(Case(H=48, Z=24, sizes=(50,) * 20, R=4))
