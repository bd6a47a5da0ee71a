"""Speed of the fused recurrences beside the plain path and torch's LSTM: one run, interleaved, medians.

    python benchmarks/speed.py [--threads 2] [--rounds 15] [--json results/speed-cpu.json]

Every case is first checked, outputs and all gradients, against the plain path in float64; where they differ, no
speed is printed and the exit code is 1. On a machine with a GPU the GPU's cases run, else the CPU's.
"""

import argparse
import copy
import json
import platform
import statistics
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
]
GPU = [
    Case("HAR", **HAR, depth=4, targets={"plain": 50, "LSTM": 4}),
    Case("synthetic", **SYNTHETIC),
    Case("synthetic, 64 members", **SYNTHETIC, members=64),
]
# One case against another: (slower or larger, faster or smaller, at least, at most)
BETWEEN = [
    ("HAR, depth 10", "HAR, shut at 2 of 10", 3.0, None),
    ("synthetic, 5 members", "synthetic", None, 5.2),
    ("synthetic, 64 members", "synthetic", None, 2.0),
]


def build(case: Case, device: str) -> nn.Module:
    torch.manual_seed(0)
    layer = eirehn.EIREHN(case.inputs, case.hidden, max_depth=case.depth)
    # Gates that stay open for 13 inner steps, or that are all shut from a given one on, whatever the input.
    if case.open_for is not None:
        layer.reset_parameters(alpha=0.66 / (case.open_for - 0.5), decay_bias=-20.0, decay_scale=0.0)
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


def everything(layer: nn.Module, x: Tensor) -> list[Tensor]:
    layer.zero_grad(set_to_none=True)
    out, h_n, depth = layer(x, return_depth=True)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).view_as(out)
    (out * weight).sum().backward()
    return [depth.double(), out, h_n, *(p.grad.clone() for p in layer.parameters())]


def largest_errors(layer: nn.Module, x: Tensor) -> tuple[float, float]:
    """Of all outputs and gradients, relative to each tensor's largest value, against the plain path in float64:
    ours, and the plain path's own in float32."""
    fast = everything(layer, x)
    with eirehn.use_backend("reference"):
        plain = everything(layer, x)
        exact = everything(copy.deepcopy(layer).double(), x.double())

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=15)
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
    print(f"torch {torch.__version__}, {named}, float32, peak {best / 1e9:.0f} GFLOP/s")
    print(
        f"{'case':24}{'error':>9}{'ms':>9}{'plain':>9}{'x':>7}{'LSTM':>8}{'x':>7}{'GFLOP/s':>9}{'peak':>7}  targets"
    )
    rows: dict[str, dict[str, Any]] = {}
    for case in CPU if device == "cpu" else GPU:
        x = torch.randn(case.steps, case.batch, case.inputs, device=device)
        taken = build(case, device)(x, return_depth=True)[2].unique().tolist()
        if taken != [case.open_for or case.depth]:
            print(f"{case.name:24}  takes {taken} inner steps: no speed is reported")
            return 1
        error, plain = largest_errors(build(case, device), x)
        if not error <= max(1e-4, 3 * plain):
            print(f"{case.name:24}{error:9.1e}  differs from the plain path: no speed is reported")
            return 1
        ms = measure(case, device, arguments.rounds)
        faster, ratio = ms["plain"] / ms["ours"] * case.members, ms["ours"] / ms["LSTM"]
        rate = operations(case) / ms["ours"] * 1e3
        reached = []
        if case.targets:
            reached = [faster >= case.targets["plain"], ratio <= case.targets["LSTM"]]
        verdict = " ".join("met" if each else "MISSED" for each in reached)
        print(
            f"{case.name:24}{error:9.1e}{ms['ours']:9.2f}{ms['plain']:9.1f}{faster:7.1f}{ms['LSTM']:8.2f}{ratio:7.2f}"
            f"{rate / 1e9:9.1f}{rate / best:7.1%}  {verdict}",
            flush=True,
        )
        rows[case.name] = {
            **asdict(case), "error": error, "error_of_plain": plain, "ms": ms, "faster_than_plain": faster,
            "times_lstm": ratio, "gflops": rate / 1e9, "share_of_peak": rate / best,
        }  # fmt: skip
    between = []
    for large, small, least, most in BETWEEN:
        if large in rows and small in rows:
            ratio = rows[large]["ms"]["ours"] / rows[small]["ms"]["ours"]
            met = ratio >= least if least is not None else ratio <= most
            bound = f"at least {least}" if least is not None else f"at most {most}"
            print(f"{large} / {small}: {ratio:.2f} ({bound}: {'met' if met else 'MISSED'})")
            between.append({"of": large, "to": small, "ratio": ratio, "least": least, "most": most})
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        found = {
            "experiment": "speed",
            "command": f"python benchmarks/speed.py --threads {arguments.threads} --rounds {arguments.rounds}",
            "machine": named,
            "versions": {
                "torch": torch.__version__,
                "python": platform.python_version(),
                "eirehn": eirehn.__version__,
            },
            "peak_gflops": best / 1e9,
            "rows": rows,
            "between": between,
        }
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
