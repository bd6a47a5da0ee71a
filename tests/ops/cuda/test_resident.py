"""The kernels that keep their weights on the chip: their plan, that they compile, and their results against the
plain path in float64, on a GPU and, without one, on the CPU by way of cuda_on_cpu.py."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.cuda_on_cpu import COMPILER, Emulated, Refusing, sanitizer
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
    same_bits_twice,
)
from helpers.systems import largest_error

import eirehn
from eirehn.ops import dispatch
from eirehn.ops.cuda.machine import MACHINES, CompileError, DriverError, chip, compiled, compiler, text
from eirehn.ops.cuda.plan import Plan, plan
from eirehn.ops.cuda.resident import ORDER, TYPES, aligned, constants, source, types_of
from eirehn.ops.triton.large import LargeLaunch
from eirehn.ops.triton.large.plan import sizes_for
from eirehn.ops.triton.large.weights import Sizes

HOPPER = (132, 232_448, 512)  # multiprocessors, bytes of shared memory of a block, threads
OnChip = partial(Case, launch=PHASES, cuda=True, dtype=torch.bfloat16)


def sizes(kind: str = "paper", H: int = 1200, Z: int = 600, B: int = 20, R: int = 4) -> Sizes:
    return sizes_for(kind, H, Z if KINDS[kind][0] else 0, R, B)


def planned(size: Sizes, machine: tuple[int, int, int] = HOPPER) -> list[Plan | None]:
    return [plan(size, *machine, backward=backward) for backward in (False, True)]


def test_plan_of_the_largest_network_of_the_paper() -> None:
    forward, backward = planned(sizes())
    assert forward == Plan(units=13, unit_blocks=93, row_blocks=38, slabs=16, kept=1, memory=forward.memory)
    assert backward == Plan(units=16, unit_blocks=75, row_blocks=38, slabs=16, kept=1, memory=backward.memory)


def test_sets_of_weights_that_have_no_room_are_brought() -> None:
    """The RHN of Table 4, and the widest of Table 3."""
    for size, forward, backward in [(sizes("RHN", H=830, R=10), 6, 5), (sizes("RHN", R=5), 3, 3)]:
        have = planned(size)
        assert [each and each.kept for each in have] == [forward, backward]
        for each in have:
            assert each is not None
            rows, columns = 2 * each.units * each.unit_blocks, -(-size.HP // 32) * 32
            assert each.others == (size.R - each.kept) * rows * columns * 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("H", "B"), [(129, 1), (333, 7), (1050, 20), (1200, 32)])
def test_plans_fit(kind: str, H: int, B: int) -> None:
    size = sizes(kind, H, H // 2, B)
    for chosen in planned(size):
        assert chosen is not None
        assert chosen.blocks <= HOPPER[0]
        assert chosen.memory <= HOPPER[1]
        assert chosen.units * chosen.unit_blocks >= size.HP
        assert chosen.units * B <= HOPPER[2]


@pytest.mark.parametrize("size", [sizes(B=33), sizes(H=2400), sizes("RHN", H=2400), sizes(Z=2200)])
def test_no_plan_for_what_does_not_fit(size: Sizes) -> None:
    assert None in planned(size)


def test_no_plan_for_little_memory() -> None:
    assert planned(sizes(), (132, 101_376, 512)) == [None, None]


ONE_PASS = [
    ("paper", 333, 74_000, [False, True]),
    ("paper", 167, 57_000, [True, False]),
    ("RHN", 1, 35_000, [True, False]),
]
# Inner steps, processors, bytes; the sets that have room in each pass.
BROUGHT = [
    (5, 5, 11_500, [3, 1]),
    (3, 5, 9_000, [3, 1]),
    (4, 4, 12_000, [2, 1]),
]


@pytest.mark.parametrize(("kind", "Z", "memory", "fit"), ONE_PASS)
def test_plan_of_one_pass_alone(kind: str, Z: int, memory: int, fit: list[bool]) -> None:
    size = sizes(kind, H=333, Z=Z, B=20, R=3)
    assert [each is not None for each in planned(size, (48, memory, 512))] == fit


@pytest.mark.skipif(compiler() is None, reason="CUDA's runtime compiler is not installed")
@pytest.mark.parametrize(("kind", "H", "R"), [*((kind, 333, 4) for kind in KINDS), ("RHN", 830, 10)])
def test_compiles(kind: str, H: int, R: int) -> None:
    size = sizes(kind, H, Z=167, B=7, R=R)
    for name, chosen in zip(("forward", "backward"), planned(size), strict=True):
        assert chosen is not None
        flags = {"MASKED": True, "REVERSE": False, "KEEP": True}
        numbers = constants(size, chosen, KINDS[kind][0], HOPPER[2], flags)
        code = source(name, numbers, dict.fromkeys(TYPES[name], "float"), text("hardware"))
        assert compiled(code, "sm_90")


def test_errors_of_the_compiler_are_told() -> None:
    if compiler() is None:
        with pytest.raises(CompileError, match="not found"):
            compiled("", "sm_90")
    else:
        with pytest.raises(CompileError, match="undefined"):
            compiled("__global__ void f() { undefined(); }", "sm_90")


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Emulated:
    if COMPILER is None:
        pytest.skip("g++ is not installed")
    return Emulated(tmp_path_factory.mktemp("emulated"), processors=5)


@pytest.fixture
def emulated(machine: Emulated, monkeypatch: pytest.MonkeyPatch) -> Emulated:
    """A machine where there is none."""
    machine.launched.clear()
    monkeypatch.setitem(MACHINES, "cpu", lambda index: machine)
    return machine


Put = Callable[..., None]


@pytest.fixture
def instead(emulated: Emulated, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts another machine in the place of the emulated one."""

    def put(other: type[Emulated] = Emulated, **options: Any) -> None:
        same = {each.name: getattr(emulated, each.name) for each in fields(emulated)}
        made = other(**(same | options))
        monkeypatch.setitem(MACHINES, "cpu", lambda index: made)

    return put


def slow(options: dict[str, Any]) -> Any:
    return pytest.param(options, marks=pytest.mark.slow)


on_cpu = [*GPU_TESTS, pytest.mark.skipif(DEVICE != "cpu", reason="there is a GPU to run on")]


class TestOnCPU:
    """The interpreter does what is left of Triton's."""

    pytestmark = on_cpu

    def same(self, emulated: Emulated, **options: Any) -> None:
        case = OnChip(H=21, Z=11, sizes=(3, 3, 2), kept=True, gates="never")
        check(replace(case, **options))
        assert set(emulated.launched) == {"forward_pass", "backward_pass"}

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind(self, kind: str, emulated: Emulated) -> None:
        self.same(emulated, kind=kind, masked=True, sizes=(5, 4, 1))

    @pytest.mark.parametrize(
        "options",
        [
            {"gates": "mixed", "H": 20, "Z": 10},
            {"gates": "shut", "H": 20, "Z": 10},
            {"kind": "RHN", "masked": True, "reverse": True, "sizes": (3, 2, 1)},
            {"E": 2, "R": 1},
            slow({"masked": True, "reverse": True, "sizes": (3, 2, 1)}),
            slow({"H": 40, "Z": 30, "sizes": (8, 2), "R": 2}),  # more blocks than one of each kind
            slow({"kept": False, "launch": PHASES._replace(workspace=1), "sizes": (3, 3, 2, 1), "R": 2}),
        ],
        ids=str,
    )
    def test_gates_sizes_and_directions(self, options: dict[str, Any], emulated: Emulated) -> None:
        self.same(emulated, **options)

    def test_time_steps_that_are_shut_between_others(self, emulated: Emulated) -> None:
        case = OnChip(H=20, Z=10, sizes=(3, 3, 3, 2), gates="never", kept=True)
        problem = make(case, "cpu")
        problem.u[0, 3:6, 40:] = 5.0
        want, have = expected(case, problem), found(case, problem)
        assert have["depth"].tolist() == [[3, 3, 3, 0, 0, 0, 3, 3, 3, 3, 3]]
        assert emulated.launched == ["forward_pass", "backward_pass"]
        assert largest_error([have[name] for name in want], want.values()) <= 2e-2

    def test_nan_stays_in_its_sample(self, emulated: Emulated) -> None:
        nan_stays_in_its_sample(OnChip(H=20, Z=10, sizes=(3, 3, 2), kept=True))
        assert emulated.launched == ["forward_pass", "backward_pass"] * 2

    @pytest.mark.slow
    @pytest.mark.parametrize(("kind", "memory"), [("paper", 11_000), ("RHN", 9_000), ("additive", 7_000)])
    def test_little_memory(self, kind: str, memory: int, emulated: Emulated, instead: Put) -> None:
        """Units that fill no tile, and sums of warps that are added in rounds."""
        instead(processors=9, memory=memory)
        self.same(emulated, kind=kind, H=40, Z=30)

    @pytest.mark.slow
    @pytest.mark.parametrize(("R", "processors", "memory", "kept"), BROUGHT)
    def test_weights_that_are_brought(
        self, R: int, processors: int, memory: int, kept: list[int], emulated: Emulated, instead: Put
    ) -> None:
        """By blocks of 8 units, which fill a tile, and of 10."""
        size = sizes("RHN", H=40, B=3, R=R)
        assert [each and each.kept for each in planned(size, (processors, memory, emulated.threads))] == kept
        instead(processors=processors, memory=memory)
        self.same(emulated, kind="RHN", H=40, R=R, masked=True, sizes=(3, 3, 2, 1))

    @pytest.mark.parametrize(
        ("kind", "processors", "memory", "passes"),
        [
            pytest.param("paper", 5, 12_500, ["backward_pass"], marks=pytest.mark.slow),
            ("RHN", 3, 12_500, ["forward_pass"]),
            pytest.param("paper", 2, 1 << 18, [], marks=pytest.mark.slow),
        ],
    )
    def test_a_pass_that_has_no_room_is_left_to_triton(
        self, kind: str, processors: int, memory: int, passes: list[str], emulated: Emulated, instead: Put
    ) -> None:
        instead(processors=processors, memory=memory)
        run(OnChip(kind=kind, H=48, Z=30, sizes=(3, 2), kept=True))
        assert emulated.launched == passes

    def test_a_layer_by_this_backend_by_name(
        self, emulated: Emulated, instead: Put, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dispatch, "SMALL", 8)  # the emulated chip is small
        torch.manual_seed(0)
        layer = eirehn.EIREHN(2, 21, max_depth=3).bfloat16()
        x = torch.randn(3, 4, 2).bfloat16()
        exact = copy.deepcopy(layer).double()(x.double())[0]  # by the plain path
        with eirehn.use_backend("cuda"):
            out = layer(x)[0]
            out.sum().backward()
            assert emulated.launched == ["forward_pass", "backward_pass"]
            instead(memory=12_000)
            with pytest.raises(ValueError, match="pass of 21 units with a batch of 40 does not fit on the chip"):
                layer(torch.randn(3, 40, 2).bfloat16())
        assert (out.double() - exact).abs().max() < 2e-2
        with eirehn.use_backend("triton"), pytest.raises(ValueError, match="hidden_size"):
            layer(x)

    def test_compiled_code_may_choose_it_too(self, emulated: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(dispatch, "SMALL", 8)
        torch.manual_seed(0)
        layer = eirehn.EIREHN(2, 21, max_depth=3).bfloat16()
        torch.compiler.reset()
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
        with eirehn.use_backend("cuda"):
            for batch in (4, 3):
                x = torch.randn(3, batch, 2).bfloat16()
                assert torch.equal(compiled(x)[0], layer(x)[0])
        assert emulated.launched == ["forward_pass"] * 4

    def test_a_pass_asked_for_by_name_is_not_left_to_triton(self, instead: Put) -> None:
        case = OnChip(H=21, Z=11, sizes=(3, 2), kept=True)
        for kind, processors, message in (
            (Emulated, 2, "the forward pass does not fit on the chip"),
            (Refusing, 5, "its kernels were not built: not today"),
        ):
            instead(kind, processors=processors)
            with eirehn.use_backend("cuda"), pytest.raises(ValueError, match=message):
                run(case)

    @pytest.mark.parametrize("error", [CompileError, DriverError])
    def test_kernels_that_are_refused_are_left_to_triton(self, error: type[Exception], instead: Put) -> None:
        instead(Refusing, error=error)
        with pytest.warns(UserWarning, match="Triton's are used: not today"):
            run(OnChip(H=21, Z=11, sizes=(3, 2), kept=True))

    def test_kernels_that_a_graph_cannot_record(self, instead: Put, monkeypatch: pytest.MonkeyPatch) -> None:
        instead(Refusing, error=DriverError)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        with pytest.raises(RuntimeError, match=r"run the step once before \(not today\)"):
            run(OnChip(H=22, Z=11, sizes=(3, 2)))

    @pytest.mark.slow
    @pytest.mark.skipif(
        not (sanitizer("tsan") and shutil.which("setarch")), reason="g++'s thread sanitizer is not installed"
    )
    @pytest.mark.parametrize(
        ("kind", "processors", "memory"), [("paper", 5, 15_000), ("RHN", 3, 17_500), ("RHN", 3, 14_000)]
    )
    def test_no_races(self, kind: str, processors: int, memory: int, tmp_path: Path) -> None:
        """Every barrier and every wait is there: results alone hardly ever show that one is missing."""
        given = (kind, processors, memory, str(tmp_path))
        code = f"from helpers.cuda_on_cpu import run_sanitized; run_sanitized(*{given!r})"
        told = tmp_path / "races"
        settings = {
            "LD_PRELOAD": sanitizer("tsan"),
            "TSAN_OPTIONS": f"report_thread_leaks=0 history_size=4 log_path={told}",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        command = ["setarch", "-R", sys.executable, "-c", code]
        done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=300)
        found = "".join(each.read_text() for each in tmp_path.glob("races*"))
        assert done.returncode == 0, found + done.stderr


def run(case: Case) -> None:
    """For who did what: the interpreter multiplies bfloat16 as the integers that their bits are."""
    found(case, make(case, "cpu"))


def test_weights_that_begin_anywhere_are_left_to_triton() -> None:
    given = dict.fromkeys(("W_h", "W_ah", "W_zs", "W_z", "P", "P_bar"))
    room = torch.zeros(33, dtype=torch.bfloat16)
    assert aligned({**given, "P": room[:32]})
    assert not aligned({**given, "P": room[1:]})


def test_other_dtypes_are_left_to_triton() -> None:
    given: dict[str, Any] = dict.fromkeys(ORDER["forward"])
    given |= {name: torch.zeros(1, dtype=torch.bfloat16) for name in ("W_h", "P", "u")}
    given |= {"alpha": torch.zeros(1), "batch_sizes": torch.zeros(1, dtype=torch.int64)}
    known = types_of("forward", given)
    assert known is not None
    assert known["Input"] == "bf16"
    for name, dtype in [("P", torch.float32), ("alpha", torch.bfloat16), ("batch_sizes", torch.int32)]:
        assert types_of("forward", {**given, name: torch.zeros(1, dtype=dtype)}) is None
    assert types_of("forward", {**given, "u": torch.zeros(1, dtype=torch.float16)}) is None


needs_chip = pytest.mark.skipif(
    not (DEVICE == "cuda" and chip(0)), reason="needs a GPU of compute capability 9 or more, and NVRTC"
)
FAST = LargeLaunch(num_stages=5)


@needs_chip
class TestOnGPU:
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_kind(self, kind: str) -> None:
        check(
            OnChip(
                kind=kind, H=333, Z=167, sizes=(20, 11), R=3, masked=True, gates="never", kept=True, launch=FAST,
            )
        )  # fmt: skip

    @pytest.mark.parametrize("batch", [1, 20, 32])
    def test_real_sizes(self, batch: int) -> None:
        lengths = (batch, batch, max(1, batch // 2))
        case = OnChip(H=1200, Z=600, sizes=lengths, gates="never", kept=True, launch=FAST)
        check(replace(case, masked=batch == 32, reverse=batch == 32))

    @pytest.mark.parametrize(("H", "R"), [(830, 10), (1200, 5)])
    def test_weights_that_are_brought(self, H: int, R: int) -> None:
        check(OnChip(kind="RHN", H=H, sizes=(20, 20, 13), R=R, masked=True, kept=True, launch=FAST))

    def test_gates_and_chunks(self) -> None:
        launch = FAST._replace(workspace=1 << 22)
        sizes = (20, 20, 13)
        check(OnChip(H=333, Z=100, sizes=sizes, gates="mixed", masked=True, launch=launch))

    @pytest.mark.parametrize(("kind", "Z", "memory", "_"), ONE_PASS)
    def test_one_pass_without_room(
        self, kind: str, Z: int, memory: int, _: list[bool], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What the kernels of one pass keep, those of the other can read."""
        few = replace(chip(0), processors=48, memory=memory)
        monkeypatch.setitem(MACHINES, "cuda", lambda index: few)
        case = OnChip(kind=kind, H=333, Z=Z, sizes=(20, 11), R=3, masked=True, gates="never", kept=True)
        check(replace(case, launch=FAST))

    @pytest.mark.parametrize(("kind", "H", "R"), [("paper", 1200, 4), ("RHN", 830, 10)])
    def test_same_bits_twice(self, kind: str, H: int, R: int) -> None:
        case = OnChip(kind=kind, H=H, Z=600, sizes=(20,) * 20, R=R, kept=True, launch=FAST)
        same_bits_twice(case)
