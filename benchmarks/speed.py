"""Speed of the plain path beside torch's LSTM of the same hidden size: one run, interleaved, medians.

python benchmarks/speed.py [--threads 2] [--rounds 7]
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import eirehn

CASES = {  # hidden, batch, steps, inner steps, inputs
    "synthetic H=20 B=20 T=20 R=6": (20, 20, 20, 6, 2),
    "HAR       H=48 B=200 T=128 R=4": (48, 200, 128, 4, 9),
}


def forward_and_backward(layer: nn.Module, x: Tensor) -> Callable[[], None]:
    def run() -> None:
        layer.zero_grad(set_to_none=True)
        layer(x)[0].sum().backward()

    return run


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    machine = f"torch {torch.__version__}, {platform.machine()}, {arguments.threads} threads"
    print(f"{machine}, forward and backward, float32")
    print(f"{'case':32}{'system':10}{'ms':>9}{'LSTM ms':>9}{'ratio':>8}")
    for case, (hidden, batch, steps, depth, inputs) in CASES.items():
        x = torch.randn(steps, batch, inputs)
        layers = {
            "LSTM": nn.LSTM(inputs, hidden),
            "EIREHN": eirehn.EIREHN(inputs, hidden, max_depth=depth),
            "SREHN": eirehn.SREHN(inputs, hidden, max_depth=depth),
            "RHN": eirehn.RHN(inputs, hidden, depth=depth),
        }
        runs = {name: forward_and_backward(layer, x) for name, layer in layers.items()}
        times: dict[str, list[float]] = {name: [] for name in runs}
        for warm in range(arguments.rounds + 1):
            for name, run in runs.items():
                spent = seconds(run)
                if warm:
                    times[name].append(spent)
        median = {name: 1e3 * statistics.median(each) for name, each in times.items()}
        for name in list(layers)[1:]:
            ratio = median[name] / median["LSTM"]
            print(f"{case:32}{name:10}{median[name]:9.2f}{median['LSTM']:9.2f}{ratio:8.1f}", flush=True)


if __name__ == "__main__":
    main()
