"""Times the Triton kernels for small networks beside cuDNN's LSTM, over the ways to launch them.

    python benchmarks/gpu_kernels.py [--quick] [--seconds 220] [--filter text]

It checks every case against the plain path in float64 before it times it. A configuration that fails is printed
with its error, and the others go on. `--seconds` is a budget: configurations that no longer fit are left out.
The kernels are compiled beforehand, by `--jobs` processes at once, into Triton's cache on disk.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from gpu_timing import captured, milliseconds, say
from helpers.gpu_problems import Case, Problem, errors, make

from eirehn.ops.triton import Launch, backward, default_launch, forward

HAR = Case(kind="paper", H=48, Z=24, sizes=(200,) * 128, R=4, gates="never")
SYNTHETIC = Case(kind="paper", H=20, Z=10, sizes=(20,) * 20, R=6, gates="never")
WIDE = Case(kind="paper", H=128, Z=64, sizes=(64,) * 32, R=4, gates="never")


def passes(case: Case, problem: Problem, launch: Launch) -> tuple[Callable[[], object], Callable[[], object]]:
    arguments = (problem.u, problem.h0, problem.weights, problem.batch_sizes, problem.offsets)

    def ahead() -> torch.Tensor:
        return forward(*arguments, kind=case.kind, max_depth=case.R, launch=launch)[0]

    out = ahead()

    def back() -> object:
        return backward(*arguments, out, problem.d_out, kind=case.kind, max_depth=case.R, launch=launch)

    return ahead, back


def lstm(case: Case, inputs: int = 9) -> tuple[float, float]:
    """cuDNN's LSTM of the same width: forward, and forward with backward."""
    layer = torch.nn.LSTM(inputs, case.H).cuda()
    x = torch.randn(len(case.sizes), case.sizes[0], inputs, device="cuda")
    grad = torch.randn(len(case.sizes), case.sizes[0], case.H, device="cuda")

    def ahead() -> torch.Tensor:
        return layer(x)[0]

    def both() -> None:
        layer.zero_grad(set_to_none=True)
        layer(x)[0].backward(grad)

    return milliseconds(ahead), milliseconds(both)


def rows() -> list[Launch]:
    """One sample a program."""
    ways = [Launch(block=1, num_warps=warps) for warps in (8, 4, 2, 16, 1)]
    ways += [Launch(block=1, num_warps=warps, resident=False) for warps in (8, 4, 16)]
    return [*ways, Launch(block=1, num_warps=8, maxnreg=128), Launch(block=1, num_warps=4, maxnreg=128)]


def tiles(resident: tuple[bool, ...] = (True, False), blocks: tuple[int, ...] = (16, 32)) -> list[Launch]:
    return [
        Launch(block=block, num_warps=warps, precision=precision, resident=stay)
        for block, precision, warps, stay in product(blocks, ("tf32x3", "ieee", "tf32"), (4, 8, 2), resident)
    ]


def small(case: Case, launch: Launch) -> Case:
    """The same kernels on a problem small enough for the plain path."""
    sizes = tuple(min(size, 24) for size in case.sizes[:4])
    return replace(case, sizes=sizes, gates="mixed", E=min(case.E, 2), launch=launch)


def compiled(case: Case, launch: Launch) -> None:
    """Leaves the kernels in Triton's cache; what goes wrong will be said when they are timed."""
    try:
        tiny = replace(small(case, launch), sizes=(1,), E=1)
        for work in passes(tiny, make(tiny, "cuda"), launch):
            work()
    except Exception:  # as above
        return


def compile_all(work: list[tuple[Case, Launch]], jobs: int, seconds: float) -> None:
    begin = time.monotonic()
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    done, late = wait([pool.submit(compiled, *each) for each in work], timeout=seconds)
    pool.shutdown(wait=False, cancel_futures=True)
    say(f"compiled {len(done)} of {len(done) + len(late)} configurations in {time.monotonic() - begin:.0f} s")


def describe(launch: Launch) -> str:
    words = [f"block={launch.block:<2}", f"warps={launch.num_warps:<2}"]
    words.append(f"{launch.precision:<6}" if launch.block > 1 else "f32   ")
    words.append("resident" if launch.resident else "reread  ")
    words.append(f"maxnreg={launch.maxnreg}" if launch.maxnreg else "")
    return " ".join(words)


def table(name: str, case: Case, launches: list[Launch], deadline: float) -> None:
    say(f"\n{name}: {case.kind} H={case.H} Z={case.Z} B={case.sizes[0]} T={len(case.sizes)} R={case.R} E={case.E}")
    say(f"{'launch':<44} {'fwd ms':>8} {'bwd ms':>8} {'sum':>8} {'graph':>8} {'error':>9}")
    problem = make(case, "cuda")
    times: dict[str, tuple[float, float]] = {}
    for launch in launches:
        label = describe(launch)
        if time.monotonic() > deadline:
            say("… out of time, the rest is left out")
            break
        try:
            found = errors(small(case, launch), "cuda")
            wrong = found.pop("depth") > 0
            error = max(found.values())
            if launch.precision != "tf32" and (wrong or not error <= 1e-4):
                worst = max(found, key=found.__getitem__)
                say(f"{label:<44} WRONG, not timed: {worst} {error:.1e}, depth {'wrong' if wrong else 'right'}")
                continue
            ahead, back = passes(case, problem, launch)
            one, two = milliseconds(ahead), milliseconds(back)
            whole = milliseconds(captured(lambda a=ahead, b=back: (a(), b())))
            say(f"{label:<44} {one:8.3f} {two:8.3f} {one + two:8.3f} {whole:8.3f} {error:9.1e}")
            times[label] = one, two
        except Exception as met:  # a configuration too large for the chip must not end the run
            lines = str(met).splitlines() or [""]
            say(f"{label:<44} {type(met).__name__}: {lines[0][:60]} … {lines[-1][-60:]}")
    exact = {label: each for label, each in times.items() if "tf32 " not in label}
    for index, word in enumerate(("forward", "backward")):
        if exact:
            label = min(exact, key=lambda each: exact[each][index])
            say(f"best {word}: {exact[label][index]:.3f} ms, {label}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="only the default launches")
    parser.add_argument("--seconds", type=float, default=220.0)
    parser.add_argument("--filter", default="", help="only launches whose description holds this text")
    parser.add_argument("--jobs", type=int, default=max(1, min(14, (os.cpu_count() or 2) - 1)))
    options = parser.parse_args()
    begin = time.monotonic()
    say(torch.cuda.get_device_name(), "torch", torch.__version__)
    for name, case in (("HAR", HAR), ("synthetic", SYNTHETIC)):
        ahead, both = lstm(case)
        say(f"cuDNN LSTM, {name} H={case.H} B={case.sizes[0]}: fwd {ahead:.3f}, both {both:.3f} ms")

    ensemble = replace(SYNTHETIC, E=64)
    plans = [
        ("HAR", HAR, [*rows(), *tiles(blocks=(16,)), *tiles((False,), blocks=(32,))], 0.65),
        ("synthetic, one member", SYNTHETIC, [*rows(), *tiles((True,))], 0.78),
        ("synthetic, 64 members", ensemble, [*rows(), *tiles((True,))], 0.92),
        ("H=128", WIDE, [*rows()[5:8], *tiles((False,), blocks=(16,))], 1.0),
    ]
    if options.quick:
        plans = [
            (name, case, [default_launch(case.E, case.sizes[0], case.H)], share) for name, case, _, share in plans
        ]
    plans = [
        (name, case, [each for each in launches if options.filter in describe(each)], share)
        for name, case, launches, share in plans
    ]
    # The ensemble runs the kernels of the single network.
    todo = [(case, launch) for _, case, launches, _ in plans if case.E == 1 for launch in launches]
    if todo:
        compile_all(todo, options.jobs, 0.45 * options.seconds)
    begun = time.monotonic()
    left = options.seconds - (begun - begin)
    for name, case, launches, share in plans:
        if launches:
            table(name, case, launches, begun + share * left)
    say(f"\n{time.monotonic() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
