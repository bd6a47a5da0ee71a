"""Speed of the fused recurrences beside the plain path and torch's LSTM: interleaved, medians, over several runs.

    python benchmarks/speed.py [--threads 2] [--rounds 15] [--runs 3] [--json results/speed-cpu.json]

Every case is first checked, outputs and (where it trains) all gradients, against the plain path in float64; where
they differ, no speed is printed and the exit code is 1. On a machine with a GPU the GPU's cases run, and the peak
memory of a long sequence; else the CPU's. A ratio is the median over the runs, with the least and the most of them
beside it.
"""

import argparse
import copy
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

import eirehn


@dataclass
class Case:
    name: str
    hidden: int
    batch: int
    steps: int
    depth: int
    inputs: int = 9
    training: bool = True
    members: int = 1
    open_for: int | None = None
    """Inner steps after which all gates are shut, None for as many as there are."""
    targets: dict[str, float] = field(default_factory=dict)


SYNTHETIC: dict[str, int] = {"hidden": 20, "batch": 20, "steps": 20, "depth": 6, "inputs": 2}
HAR: dict[str, int] = {"hidden": 48, "batch": 200, "steps": 128}
CPU = [
    Case("synthetic", **SYNTHETIC, targets={"plain": 30, "LSTM": 2.5}),
    Case("HAR", **HAR, depth=4, targets={"plain": 5, "LSTM": 5}),
    Case("streaming", 20, 1, 20, 6, inputs=2, training=False, targets={"plain": 40, "LSTM": 2.5}),
    Case("HAR, depth 10", **HAR, depth=10),
    Case("HAR, shut at 2 of 10", **HAR, depth=10, open_for=2),
    Case("synthetic, 5 members", **SYNTHETIC, members=5),
    Case("text", 400, 20, 35, 4, inputs=400),
    Case("word", 400, 1, 1, 4, inputs=400, training=False),
    Case("word, H=1200", 1200, 1, 1, 4, inputs=1200, training=False),
]
GPU = [
    Case("HAR", **HAR, depth=4, targets={"plain": 50, "LSTM": 4}),
    Case("synthetic", **SYNTHETIC),
    Case("synthetic, 64 members", **SYNTHETIC, members=64),
]
MEMORY = Case("memory", 48, 200, 1024, 10)
MOST_MEMORY = 3.0  # times the LSTM's
# One case against another: (slower or larger, faster or smaller, at least, at most)
BETWEEN = [
    ("HAR, depth 10", "HAR, shut at 2 of 10", 3.0, None),
    ("synthetic, 5 members", "synthetic", None, 5.2),
    ("synthetic, 64 members", "synthetic", None, 2.0),
]


def build(case: Case, device: str) -> nn.Module:
    torch.manual_seed(0)
    layer = eirehn.EIREHN(case.inputs, case.hidden, max_depth=case.depth, weight_update="paper")
    # Gates that stay open for 13 inner steps, or that are all shut from a given one on, whatever the input.
    if case.open_for is None:
        layer.reset_parameters(alpha=0.05, gate_bias=0.0, decay_bias=-4.0, decay_scale=0.1)
    else:
        alpha = 0.66 / (case.open_for - 0.5)
        layer.reset_parameters(alpha=alpha, gate_bias=0.0, decay_bias=-20.0, decay_scale=0.0)
    return layer.to(device)


def run_of(case: Case, layer: nn.Module, x: Tensor) -> Callable[[], Any]:
    """Forward and backward, or forward alone, of one network or of an ensemble."""
    if case.members > 1:
        members = [copy.deepcopy(layer) for _ in range(case.members)]
        parameters, _ = stack_module_state(members)
        frame = copy.deepcopy(layer).to("meta")
        call = vmap(lambda parameters: functional_call(frame, parameters, (x,))[0])

        def ensemble() -> None:
            for each in parameters.values():
                each.grad = None
            call(parameters).sum().backward()

        return ensemble
    if not case.training:

        @torch.no_grad()
        def infer() -> None:
            layer(x)

        return infer

    def train() -> None:
        layer.zero_grad(set_to_none=True)
        layer(x)[0].sum().backward()

    return train


def everything(layer: nn.Module, x: Tensor, training: bool) -> list[Tensor]:
    layer.zero_grad(set_to_none=True)
    with torch.set_grad_enabled(training):
        out, h_n, depth = layer(x, return_depth=True)
    if not training:
        return [depth.double(), out, h_n]
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).view_as(out)
    (out * weight).sum().backward()
    return [depth.double(), out, h_n, *(p.grad.clone() for p in layer.parameters())]


def largest_errors(layer: nn.Module, x: Tensor, training: bool = True) -> tuple[float, float]:
    """Of all outputs and gradients, relative to each tensor's largest value, against the plain path in float64:
    ours, and the plain path's own in float32."""
    fast = everything(layer, x, training)
    with eirehn.use_backend("reference"):
        plain = everything(layer, x, training)
        exact = everything(copy.deepcopy(layer).double(), x.double(), training)

    def largest(found: list[Tensor]) -> float:
        pairs = zip(found, exact, strict=True)
        return max(((a.double() - b).abs().max() / b.abs().max().clamp(min=1e-30)).item() for a, b in pairs)

    return largest(fast), largest(plain)


def operations(case: Case) -> float:
    """Floating-point operations of the matrix products; the backward pass recomputes, then does twice as many."""
    H, Z = case.hidden, (case.hidden + 1) // 2
    inner = 2 * H * H + 2 * H * Z + Z * Z + 4 * H * Z
    depth = case.open_for or case.depth
    forward = 2 * case.members * case.batch * case.steps * (depth * inner + H * H + 3 * H * case.inputs)
    return forward * (4 if case.training else 1)


def seconds(run: Callable[[], Any], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def peak(device: str) -> float:
    """Operations a second of a large float32 matrix product."""
    size = 2048 if device == "cpu" else 8192
    a, b = torch.randn(2, size, size, device=device)
    best = min(seconds(lambda: a @ b, device) for _ in range(8))
    return 2 * size**3 / best


def measure(case: Case, device: str, rounds: int) -> dict[str, float]:
    """Median milliseconds of ours, the plain path and torch's LSTM, taken in turns."""
    layer = build(case, device)
    x = torch.randn(case.steps, case.batch, case.inputs, device=device)
    lstm = nn.LSTM(case.inputs, case.hidden, device=device)
    single = Case(**{**asdict(case), "members": 1})
    runs = {"ours": run_of(case, layer, x), "LSTM": run_of(single, lstm, x), "plain": run_of(single, layer, x)}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 2):
        # In turns, each time in another order: what ran before leaves cold caches and spinning threads to the next.
        order = sorted(runs, key=lambda name: (list(runs).index(name) + number) % len(runs))
        for name in order:
            run = runs[name]
            if name == "plain" and number > max(3, rounds // 4) + 2:
                continue  # by far the slowest
            with eirehn.use_backend("reference" if name == "plain" else "auto"):
                # Ten times, and the last five count, as in a training loop.
                repeats = 1 if name == "plain" else 10
                spent = [seconds(run, device) for _ in range(repeats)]
            if number > 1:
                times[name] += [1e3 * each for each in spent[-5:]]
    return {name: statistics.median(each) for name, each in times.items()}


def peak_memory(case: Case) -> dict[str, float]:
    """MiB at the height of forward and backward on the GPU, above what lies there before, ours and torch's LSTM."""
    x = torch.randn(case.steps, case.batch, case.inputs, device="cuda")
    found = {}
    for name, layer in (("ours", build(case, "cuda")), ("LSTM", nn.LSTM(case.inputs, case.hidden, device="cuda"))):
        run = run_of(case, layer, x)
        run()  # what is allocated once does not count
        layer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        found[name] = (torch.cuda.max_memory_allocated() - before) / 2**20
    return found


def commit() -> str | None:
    """Of the checkout this file lies in, with a + where files were changed since."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def check(case: Case, device: str) -> tuple[float, float] | None:
    """The errors of `largest_errors`, or None, with a line that says why, where no speed may be reported."""
    x = torch.randn(case.steps, case.batch, case.inputs, device=device)
    taken = build(case, device)(x, return_depth=True)[2].unique().tolist()
    if taken != [case.open_for or case.depth]:
        print(f"{case.name:24}  takes {taken} inner steps: no speed is reported")
        return None
    error, plain = largest_errors(build(case, device), x, case.training)
    if not error <= max(1e-4, 3 * plain):
        print(f"{case.name:24}{error:9.1e}  differs from the plain path: no speed is reported")
        return None
    return error, plain


def spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def told(of: dict[str, float]) -> str:
    return f"{of['median']:.2f} ({of['least']:.2f}-{of['most']:.2f})"


def verdict(of: dict[str, float], least: float | None, most: float | None) -> str:
    """Of the median."""
    met = of["median"] >= least if least is not None else most is None or of["median"] <= most
    return "met" if met else "MISSED"


def row(case: Case, errors: tuple[float, float], runs: list[dict[str, float]], best: float) -> dict[str, Any]:
    """What the runs, milliseconds by name, say of a case; printed too."""
    ms = {name: spread([each[name] for each in runs]) for name in runs[0]}
    faster = spread([each["plain"] / each["ours"] * case.members for each in runs])
    ratio = spread([each["ours"] / each["LSTM"] for each in runs])
    rate = operations(case) / ms["ours"]["median"] * 1e3
    reached = ""
    if case.targets:
        reached = f"{verdict(faster, case.targets['plain'], None)} {verdict(ratio, None, case.targets['LSTM'])}"
    print(
        f"{case.name:24}{errors[0]:9.1e}{ms['ours']['median']:9.2f}{ms['plain']['median']:9.1f}{told(faster):>24}"
        f"{ms['LSTM']['median']:8.2f}{told(ratio):>18}{rate / 1e9:9.1f}{rate / best:7.1%}  {reached}",
        flush=True,
    )
    return {
        **asdict(case), "error": errors[0], "error_of_plain": errors[1], "ms": ms, "faster_than_plain": faster,
        "times_lstm": ratio, "gflops": rate / 1e9, "share_of_peak": rate / best,
    }  # fmt: skip


def compare(runs: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """The cases of BETWEEN that were timed, run by run."""
    found = []
    for large, small, least, most in BETWEEN:
        if large in runs and small in runs:
            ratio = spread([a["ours"] / b["ours"] for a, b in zip(runs[large], runs[small], strict=True)])
            bound = f"at least {least}" if least is not None else f"at most {most}"
            print(f"{large} / {small}: {told(ratio)} ({bound}: {verdict(ratio, least, most)})")
            found.append({"of": large, "to": small, "ratio": ratio, "least": least, "most": most})
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=1, help="repeat all timings this often, and tell the spread")
    parser.add_argument("--commit", default=commit(), help="to write down where the tree is no git checkout")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False
    named = (
        torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, {arguments.threads} threads"
    )
    best = peak(device)
    print(f"torch {torch.__version__}, {named}, float32, peak {best / 1e9:.0f} GFLOP/s, {arguments.runs} runs")
    cases = CPU if device == "cpu" else GPU
    errors = {case.name: check(case, device) for case in cases}
    if None in errors.values():
        return 1
    # Run by run, not case by case: what drifts over minutes shows in the spread.
    timed: dict[str, list[dict[str, float]]] = {case.name: [] for case in cases}
    for _ in range(arguments.runs):
        for case in cases:
            timed[case.name].append(measure(case, device, arguments.rounds))
    print(
        f"{'case':24}{'error':>9}{'ms':>9}{'plain':>9}{'faster':>24}{'LSTM':>8}{'times':>18}{'GFLOP/s':>9}{'peak':>7}"
        "  targets"
    )
    rows = {case.name: row(case, errors[case.name] or (0.0, 0.0), timed[case.name], best) for case in cases}
    between = compare(timed)
    memory: dict[str, Any] = {}
    if device == "cuda":
        mib = peak_memory(MEMORY)
        ratio = mib["ours"] / mib["LSTM"]
        memory = {**asdict(MEMORY), "mib": mib, "times_lstm": ratio, "most": MOST_MEMORY}
        met = "met" if ratio <= MOST_MEMORY else "MISSED"
        print(f"peak MiB: {mib['ours']:.0f}, LSTM {mib['LSTM']:.0f}: {ratio:.2f} ({met}: at most {MOST_MEMORY})")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        found = {
            "experiment": "speed",
            "command": f"python benchmarks/speed.py --threads {arguments.threads} --rounds {arguments.rounds} "
            f"--runs {arguments.runs}",
            "commit": arguments.commit,
            "machine": named,
            "versions": {
                "torch": torch.__version__,
                "python": platform.python_version(),
                "eirehn": eirehn.__version__,
            },
            "peak_gflops": best / 1e9,
            "rows": rows,
            "between": between,
            **({"memory": memory} if memory else {}),
        }
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
