"""The kernels that keep their weights on the chip: their plan, that they compile, and their results against the
plain path in float64, on a GPU and, without one, on the CPU by way of cuda_on_cpu.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import test_ops_triton as small
import torch
from cuda_on_cpu import COMPILER, Emulated
from test_ops_triton import KINDS, make
from test_ops_triton_large import PHASES, Large, check, found

from eirehn.ops.cuda import nvrtc
from eirehn.ops.cuda.machine import MACHINES, chip, text
from eirehn.ops.cuda.plan import Plan, plan
from eirehn.ops.cuda.resident import TYPES, aligned, constants, source
from eirehn.ops.triton.large import LargeLaunch, default_launch
from eirehn.ops.triton.large.weights import Sizes

HOPPER = (132, 232_448, 512)  # multiprocessors, bytes of shared memory of a block, threads
RESIDENT = PHASES._replace(resident=True)


def sizes(kind: str = "printed", H: int = 1200, Z: int = 600, B: int = 20, R: int = 4) -> Sizes:
    update, elastic, own = KINDS[kind]
    Z = Z if update else 0
    whole = (-(-H // 8) * 8, -(-Z // 8) * 8)
    return Sizes(35 * B, B, 35, R, H, Z, *whole, hyper=update > 0, gated=update in (1, 2), elastic=elastic, own=own)


def planned(size: Sizes, machine: tuple[int, int, int] = HOPPER) -> list[Plan | None]:
    return [plan(size, *machine, backward=backward) for backward in (False, True)]


def test_plan_of_the_largest_network_of_the_paper() -> None:
    forward, backward = planned(sizes())
    assert forward == Plan(units=13, unit_blocks=93, row_blocks=38, slabs=16, memory=forward.memory)
    assert backward == Plan(units=16, unit_blocks=75, row_blocks=38, slabs=16, memory=backward.memory)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("H", "B"), [(129, 1), (333, 7), (1050, 20), (1200, 32)])
def test_plans_fit(kind: str, H: int, B: int) -> None:
    size = sizes(kind, H, H // 2, B)
    for chosen in planned(size):
        if chosen is None:
            assert kind == "RHN"
            assert H == 1200
            continue
        assert chosen.blocks <= HOPPER[0]
        assert chosen.memory <= HOPPER[1]
        assert chosen.units * chosen.unit_blocks >= size.HP
        assert chosen.units * B <= HOPPER[2]


@pytest.mark.parametrize("size", [sizes(B=33), sizes(H=2400), sizes("RHN", R=10), sizes(Z=2200)])
def test_no_plan_for_what_does_not_fit(size: Sizes) -> None:
    assert None in planned(size)


def test_no_plan_for_little_memory() -> None:
    assert planned(sizes(), (132, 101_376, 512)) == [None, None]


@pytest.mark.skipif(nvrtc.compiler() is None, reason="CUDA's runtime compiler is not installed")
@pytest.mark.parametrize("kind", KINDS)
def test_compiles(kind: str) -> None:
    size = sizes(kind, H=333, Z=167, B=7)
    for name, chosen in zip(("forward", "backward"), planned(size), strict=True):
        assert chosen is not None
        flags = {"MASKED": True, "REVERSE": False, "KEEP": True, "COSTED": True}
        numbers = constants(size, chosen, KINDS[kind][0], HOPPER[2], flags)
        code = source(name, numbers, dict.fromkeys(TYPES[name], "float"), text("hardware"))
        assert nvrtc.compiled(code, "sm_90")


def test_errors_of_the_compiler_are_told() -> None:
    if nvrtc.compiler() is None:
        with pytest.raises(nvrtc.CompileError, match="not found"):
            nvrtc.compiled("", "sm_90")
    else:
        with pytest.raises(nvrtc.CompileError, match="undefined"):
            nvrtc.compiled("__global__ void f() { undefined(); }", "sm_90")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture
def emulated(built: Path, monkeypatch: pytest.MonkeyPatch) -> list[Emulated]:
    """A machine where there is none, and whether it was asked for a kernel."""
    if COMPILER is None:
        pytest.skip("g++ is not installed")
    asked: list[Emulated] = []

    def find(index: int) -> Emulated:
        asked.append(Emulated(built, processors=5))
        return asked[-1]

    monkeypatch.setitem(MACHINES, "cpu", find)
    return asked


on_cpu = [*small.pytestmark, pytest.mark.skipif(small.DEVICE != "cpu", reason="there is a GPU to run on")]


class TestOnCPU:
    """The interpreter does what is left of Triton's."""

    pytestmark = on_cpu

    def same(self, emulated: list[Emulated], **options: Any) -> None:
        case = {"H": 21, "Z": 11, "sizes": (3, 3, 2), "launch": RESIDENT, "kept": True, "dtype": torch.bfloat16}
        check(Large(**{**case, "gates": "never", **options}))
        assert len(emulated) >= 2

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind(self, kind: str, emulated: list[Emulated]) -> None:
        self.same(emulated, kind=kind, masked=True, sizes=(5, 4, 1))

    @pytest.mark.parametrize("gates", ["mixed", "shut"])
    def test_gates(self, gates: str, emulated: list[Emulated]) -> None:
        self.same(emulated, gates=gates, H=20, Z=10)

    @pytest.mark.parametrize("kind", ["printed", "RHN"])
    def test_reverse(self, kind: str, emulated: list[Emulated]) -> None:
        self.same(emulated, kind=kind, masked=True, reverse=True, sizes=(3, 2, 1))

    def test_more_blocks_than_one_of_each(self, emulated: list[Emulated]) -> None:
        self.same(emulated, H=40, Z=30, sizes=(8, 2), R=2)

    def test_members_and_one_inner_step(self, emulated: list[Emulated]) -> None:
        self.same(emulated, E=2, R=1, costed=False)

    def test_time_in_chunks(self, emulated: list[Emulated]) -> None:
        self.same(emulated, kept=False, launch=RESIDENT._replace(workspace=1), sizes=(3, 3, 2, 1), R=2)


def test_weights_that_begin_anywhere_are_left_to_triton() -> None:
    given = dict.fromkeys(("W_h", "W_ah", "W_zs", "W_z", "P", "P_bar"))
    room = torch.zeros(33, dtype=torch.bfloat16)
    assert aligned({**given, "P": room[:32]})
    assert not aligned({**given, "P": room[1:]})


def test_other_dtypes_are_left_to_triton() -> None:
    assert default_launch(torch.bfloat16).resident or small.INTERPRETED
    assert not default_launch(torch.float32).resident


needs_chip = pytest.mark.skipif(
    not (small.DEVICE == "cuda" and chip(0)), reason="needs a GPU of compute capability 9 or more, and NVRTC"
)
FAST = LargeLaunch(num_stages=5, resident=True)


@needs_chip
class TestOnGPU:
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind(self, kind: str) -> None:
        check(
            Large(
                kind=kind, H=333, Z=167, sizes=(20, 11), R=3, masked=True, gates="never", kept=True, launch=FAST,
                dtype=torch.bfloat16,
            )
        )  # fmt: skip

    @pytest.mark.parametrize("batch", [1, 20, 32])
    def test_real_sizes(self, batch: int) -> None:
        lengths = (batch, batch, max(1, batch // 2))
        case = Large(H=1200, Z=600, sizes=lengths, gates="never", kept=True, launch=FAST, dtype=torch.bfloat16)
        check(replace(case, masked=batch == 32, reverse=batch == 32))

    def test_gates_and_chunks(self) -> None:
        launch = FAST._replace(workspace=1 << 22)
        sizes = (20, 20, 13)
        check(Large(H=333, Z=100, sizes=sizes, gates="mixed", masked=True, launch=launch, dtype=torch.bfloat16))

    def test_same_bits_twice(self) -> None:
        case = Large(H=1200, Z=600, sizes=(20,) * 20, R=4, kept=True, launch=FAST, dtype=torch.bfloat16)
        problem = make(case, "cuda")
        one, two = found(case, problem), found(case, problem)
        assert all(torch.equal(one[name], two[name]) for name in one)
