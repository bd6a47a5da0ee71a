"""The Triton kernels for large networks against the plain path in float64.

Without a GPU each phase is a launch of its own, in Triton's interpreter; on a GPU both that and the one launch
whose programs wait for each other are tested.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from helpers.gpu_problems import (
    DEVICE,
    GPU_TESTS,
    KINDS,
    PHASES,
    Case,
    check,
    expected,
    found,
    make,
    nan_stays_in_its_sample,
    on_gpu,
    same_bits_twice,
)
from helpers.quick import quick

from eirehn.ops.triton.large import LargeLaunch, default_launch

pytestmark = GPU_TESTS
WAYS = [PHASES] if DEVICE == "cpu" else [PHASES, LargeLaunch(step=32, num_stages=2)]
Large = partial(Case, launch=PHASES)


@pytest.mark.parametrize("kind", quick("RHN", of=KINDS))
def test_every_kind(kind: str) -> None:
    for launch in WAYS:
        check(Large(kind=kind, H=20, Z=10, sizes=(3, 3, 2), masked=True, launch=launch))


@pytest.mark.parametrize("kind", quick("RHN", of=["paper", "RHN"]))
def test_reverse(kind: str) -> None:
    for launch in WAYS:
        check(Large(kind=kind, H=21, Z=11, sizes=(3, 2, 1), R=2, reverse=True, kept=True, launch=launch))


@pytest.mark.parametrize(
    ("options", "way"),
    [
        pytest.param({"gates": "never", "kept": True}, {}, id="gates never shut", marks=pytest.mark.slow),
        pytest.param({"gates": "shut", "kept": True}, {}, id="gates shut"),
        pytest.param({"gates": "shut", "kind": "none"}, {}, id="gates shut, no hypernetwork"),
        pytest.param({"sizes": (2, 1), "R": 1}, {}, id="one inner step"),
        pytest.param(
            {"H": 24, "Z": 17, "sizes": (17, 5), "R": 2, "E": 2, "masked": True}, {"block": 16},
            id="more samples than a tile", marks=pytest.mark.slow,
        ),
        pytest.param(
            {"H": 40, "Z": 20, "sizes": (3, 2), "R": 2, "kept": True}, {"split": 4, "step": 16},
            id="sums in parts", marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_gates_and_sizes(options: dict[str, Any], way: dict[str, int]) -> None:
    for launch in WAYS:
        check(replace(Large(H=20, Z=10, sizes=(2, 2), launch=launch._replace(**way)), **options))


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


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_time_in_chunks(reverse: bool) -> None:
    check(
        Large(H=9, Z=5, sizes=(3, 3, 2, 1), R=2, masked=True, reverse=reverse, launch=PHASES._replace(workspace=1))
    )


@pytest.mark.slow
def test_nan_stays_in_its_sample() -> None:
    nan_stays_in_its_sample(Large(H=20, Z=10, sizes=(3, 3), R=2, gates="never"))


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
    same_bits_twice(Large(H=333, Z=167, sizes=(20,) * 20, R=4, launch=LargeLaunch(step=32, num_stages=2)))
