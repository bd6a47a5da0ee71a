"""What resets inside a sequence cost: a call without them, calls with `reset`, and a loop over time steps that sets
the state back by hand. Interleaved, medians of CPU time.

    python benchmarks/episodes.py [--rounds 9] [--json results/episodes.json]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import eirehn
from eirehn.training.provenance import provenance


def by_steps(layer: eirehn.EIREHN, x: Tensor, reset: Tensor) -> Tensor:
    state, outputs = torch.zeros(1, x.size(1), layer.hidden_size), []
    for x_t, reset_t in zip(x, reset, strict=True):
        out, state = layer(x_t[None], state.masked_fill(reset_t[None, :, None], 0.0))
        outputs.append(out)
    return torch.cat(outputs)


def milliseconds(run: Callable[[], Tensor]) -> float:
    began = time.process_time()
    run().sum().backward()
    return 1000 * (time.process_time() - began)


def table(found: dict[str, Any]) -> str:
    lines = [f"| {name} | {taken:.0f} |" for name, taken in found["milliseconds"].items()]
    return "\n".join(["| | ms |", "|---|--:|", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layer, x = eirehn.EIREHN(9, 48, max_depth=4), torch.randn(128, 64, 9)
    masks = {share: torch.rand(128, 64) < share for share in (0.01, 0.1)}
    torch.testing.assert_close(layer(x, reset=masks[0.1])[0], by_steps(layer, x, masks[0.1]), rtol=1e-4, atol=1e-4)
    cases: dict[str, Callable[[], Tensor]] = {
        "no resets": lambda: layer(x)[0],
        "resets at 1 % of the time steps": lambda: layer(x, reset=masks[0.01])[0],
        "resets at 10 %": lambda: layer(x, reset=masks[0.1])[0],
        "a loop over time steps that sets the state back by hand": lambda: by_steps(layer, x, masks[0.01]),
    }
    for run in cases.values():
        milliseconds(run)
    taken = [{name: milliseconds(run) for name, run in cases.items()} for _ in range(asked.rounds)]
    print("forward and backward, H=48, B=64, T=128, one thread")
    median = {name: statistics.median(each[name] for each in taken) for name in cases}
    for name in cases:
        print(f"{name:56} {median[name]:8.1f} ms")
    if asked.json:
        about = {"command": f"python benchmarks/episodes.py --rounds {asked.rounds}", **provenance()}
        asked.json.write_text(json.dumps({**about, "milliseconds": median}, indent=1) + "\n")


if __name__ == "__main__":
    main()
