"""Times the kernels for large networks, and a whole training step of a language model around them.

    python benchmarks/gpu_large.py [--seconds 240] [--filter text] [--patience 30]

Every configuration is checked against the plain path in float64 before it is timed. The work is done in a child
process that reports line by line: if it says nothing for `--patience` seconds (programs that wait for each other
for ever, say), it is ended, and another goes on with the next configuration.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from gpu_large_step import Way, training_step
from gpu_timing import captured, milliseconds, say
from helpers.gpu_problems import Case, Problem, expected, make

from eirehn.ops.triton.large import LargeLaunch, backward, default_launch, forward

TARGET = Case(kind="paper", H=1200, Z=600, sizes=(20,) * 35, R=4, gates="never", dtype=torch.bfloat16)
SHORT = Case(kind="paper", H=1200, Z=600, sizes=(20, 20, 13), R=3, gates="never", dtype=torch.bfloat16)
LAUNCHES = [
    Way(default_launch(torch.bfloat16), cuda=True),
    Way(LargeLaunch(num_stages=4)),
    Way(LargeLaunch(num_stages=3)),
    Way(LargeLaunch(num_stages=5)),
    Way(LargeLaunch(num_stages=6)),
    Way(LargeLaunch(step=32, num_stages=6)),
    Way(LargeLaunch(step=32, num_stages=8)),
    Way(LargeLaunch(num_stages=4, back_rows=8)),
    Way(LargeLaunch(num_stages=5, back_rows=8)),
    Way(LargeLaunch(num_stages=4, rows=16)),
    Way(LargeLaunch(num_stages=4, hyper_rows=32)),
    Way(LargeLaunch(num_stages=4, num_warps=8)),
    Way(LargeLaunch(num_stages=4, spin="load")),
    Way(LargeLaunch(split=4, step=32, num_stages=5, back_rows=8)),
]


def floating(problem: Problem) -> Problem:
    """The state, its input and its gradient in float32, as in training."""
    problem.u, problem.h0, problem.d_out = (each.float() for each in (problem.u, problem.h0, problem.d_out))
    return problem


def passes(case: Case, problem: Problem, launch: Way) -> tuple[Callable[[], Any], Callable[[], Any]]:
    arguments = (problem.u, problem.h0, problem.weights, problem.batch_sizes, problem.offsets)
    options: dict[str, Any] = {"kind": case.kind, "max_depth": case.R, **launch._asdict()}

    def ahead() -> Any:
        return forward(*arguments, **options, keep=True)

    out, _, saved = ahead()

    def back() -> Any:
        return backward(*arguments, out, problem.d_out, **options, saved=saved)

    return ahead, back


def worst(problem: Problem, want: dict[str, Tensor], launch: Way) -> tuple[str, float]:
    """The tensor with the largest error over its largest value."""
    ahead, back = passes(SHORT, problem, launch)
    out, (d_u, d_h0, grads) = ahead()[0], back()
    have = {"out": out, "d_u": d_u, "d_h0": d_h0}
    have |= {"d_" + name: each for name, each in grads._asdict().items() if each is not None}
    errors = {
        name: ((each.cpu().double() - want[name]).abs().max() / want[name].abs().max()).item()
        for name, each in have.items()
    }
    errors = {name: float("inf") if error != error else error for name, error in errors.items()}
    name = max(errors, key=errors.__getitem__)
    return name, errors[name]


def lstm() -> str:
    layer = torch.nn.LSTM(1200, 1200).cuda().bfloat16()
    x = torch.randn(35, 20, 1200, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    grad = torch.randn(35, 20, 1200, device="cuda", dtype=torch.bfloat16)

    def both() -> None:
        layer.zero_grad(set_to_none=True)
        layer(x)[0].backward(grad)

    return (
        f"cuDNN LSTM 1200, bfloat16: forward {milliseconds(lambda: layer(x)):.3f}, both {milliseconds(both):.3f} ms"
    )


def time_launch(index: int, short: Problem, want: dict[str, Tensor], target: Problem) -> None:
    launch = LAUNCHES[index]
    label = describe(launch)
    name, error = worst(short, want, launch)
    if not error <= 2e-2:
        say(f"{label:<62} WRONG, not timed: {name} {error:.1e}")
        return
    ahead, back = passes(TARGET, target, launch)
    one, two = milliseconds(ahead), milliseconds(back)
    fast_one, fast_two = milliseconds(captured(ahead)), milliseconds(captured(back))
    phases = len(TARGET.sizes) * (2 * TARGET.R - 1)
    each = f"{1000 * fast_one / phases:5.2f} {1000 * fast_two / phases:5.2f}"
    both = fast_one + fast_two
    say(f"{label:<62} {one:7.3f} {two:7.3f} {fast_one:7.3f} {fast_two:7.3f} {both:7.3f} {each} {error:8.1e}")
    say(f"TIMED {index} {fast_one} {fast_two}")


def time_steps(ahead: int, back: int) -> None:
    step = training_step(LAUNCHES[ahead], LAUNCHES[back])
    losses = [round(step().item(), 3) for _ in range(3)]
    say(f"training step, forward {describe(LAUNCHES[ahead])}, backward {describe(LAUNCHES[back])}: losses {losses}")
    say(f"  launched one by one {milliseconds(step):.3f} ms")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    table = sorted(profile.key_averages(), key=lambda each: -each.device_time_total)[:14]
    for each in table:
        say(f"    {each.device_time_total / 1000:7.3f} ms {each.count:4d}×  {each.key[:90]}")
    say(f"  as a CUDA graph     {milliseconds(captured(step)):.3f} ms")


def describe(way: Way) -> str:
    if way.cuda:
        return "cuda"
    launch, default = way.launch, LargeLaunch()
    words = [f"split={launch.split} warps={launch.num_warps} step={launch.step} stages={launch.num_stages}"]
    for name in ("block", "units", "rows", "hyper_rows", "back_rows", "spin"):
        if getattr(launch, name) != getattr(default, name):
            words.append(f"{name}={getattr(launch, name)}")
    return " ".join(words)


def matches(launch: Way, texts: str) -> bool:
    return any(text in describe(launch) for text in texts.split(","))


def child(tasks: list[list[Any]]) -> None:
    """Does the tasks in order. DONE tells the parent how far it came."""
    problems: list[Any] = []
    for kind, index, *other in tasks:
        try:
            if kind == "lstm":
                say(lstm())
            elif kind == "step":
                time_steps(index, *other)
            else:
                if not problems:
                    short = floating(make(SHORT, "cuda"))
                    problems = [short, expected(SHORT, short), floating(make(TARGET, "cuda"))]
                time_launch(index, *problems)
        except Exception as met:  # a configuration too large for the chip must not end the run
            lines = str(met).splitlines() or [""]
            say(f"{kind} {describe(LAUNCHES[index])}: {type(met).__name__}: {lines[0][:120]} … {lines[-1][-120:]}")
            if "CUDA" in str(met):
                say("DONE")
                sys.exit(1)  # the context may be beyond use: the parent goes on in a fresh one
        say("DONE")


def run(tasks: list[list[Any]], deadline: float, patience: float) -> dict[int, tuple[float, float]]:
    """Gives the tasks to children, and takes the next task in a fresh one where a child falls silent."""
    timed: dict[int, tuple[float, float]] = {}
    while tasks and time.monotonic() < deadline:
        command = [sys.executable, __file__, "--child", json.dumps(tasks)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=_follow, args=(process, lines), daemon=True).start()
        left, first = len(tasks), True
        while True:
            try:
                wait = min(patience + (30.0 if first else 0.0), max(1.0, deadline - time.monotonic()))
                line = lines.get(timeout=wait)
            except queue.Empty:
                process.kill()
                process.wait()
                say(f"{tasks[0][0]} {describe(LAUNCHES[tasks[0][1]])}: no answer in {wait:.0f} s, ended")
                tasks = tasks[1:]
                break
            if line is None:
                process.wait()
                if len(tasks) == left:  # it died of the first of them, without a word
                    say(f"{tasks[0][0]} {describe(LAUNCHES[tasks[0][1]])}: ended with {process.returncode}")
                    tasks = tasks[1:]
                break
            first = False
            if line.startswith("DONE"):
                tasks = tasks[1:]
            elif line.startswith("TIMED"):
                _, index, one, two = line.split()
                timed[int(index)] = float(one), float(two)
            else:
                say(line)
    for kind, index, *_ in tasks:
        say(f"{kind} {describe(LAUNCHES[index])}: out of time")
    return timed


def _follow(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line.rstrip("\n"))
    lines.put(None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=230.0)
    parser.add_argument("--patience", type=float, default=30.0)
    parser.add_argument("--filter", default="", help="only launches whose description holds one of these, a,b,…")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(json.loads(options.child))
        return
    begin = time.monotonic()
    if not torch.cuda.is_available():
        sys.exit("no GPU")
    say(torch.cuda.get_device_name(), "torch", torch.__version__)
    title = "paper H=1200 Z=600 B=20 T=35 R=4: milliseconds"
    say(f"{title:<62} forward    back   graph:     back     sum us/phase: back    error")
    chosen = [index for index, launch in enumerate(LAUNCHES) if matches(launch, options.filter)]
    tasks: list[list[Any]] = [["lstm", 0], *(["time", index] for index in chosen)]
    timed = run(tasks, begin + 0.75 * options.seconds, options.patience)
    if timed:
        ahead, back = (min(timed, key=lambda index, way=way: timed[index][way]) for way in (0, 1))
        say(f"best forward: {timed[ahead][0]:.3f} ms, {describe(LAUNCHES[ahead])}")
        say(f"best backward: {timed[back][1]:.3f} ms, {describe(LAUNCHES[back])}")
        run([["step", ahead, back]], begin + options.seconds, options.patience)
    say(f"{time.monotonic() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
