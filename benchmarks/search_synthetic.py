"""Searches settings for the synthetic task: trains a plan's members at once, and keeps the better, rung by rung.

    python benchmarks/search_synthetic.py plan.json --json found.json [--rungs 8:80 30:30] [--test] [--seconds 300]

The plan is a list of objects with the fields of `synthetic_settings.Settings`. `--rungs 8:80` drops all but the 80
members of each stack that have the best validation loss after 8 epochs; without rungs all go to the end. The epoch
is chosen by validation, for each member. The test set is looked at only with `--test`: for the last choice, not for
the search.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch
from stacked import Stack
from synthetic_settings import Settings
from torch import Tensor

from eirehn.data.synthetic import synthetic

TRAIN, VALID = 8000, 1000  # and 1000 to test on, as in the paper


def train(
    settings: list[Settings],
    data: Tensor,
    device: str,
    *,
    rungs: dict[int, int] | None = None,
    test: bool = False,
    seconds: float = math.inf,
) -> list[dict[str, Any]]:
    """All members to their last epoch, or until the time is over; stacks of different shape run side by side.

    Args:
        data: training, validation and test sequences, in this order.
        rungs: epoch → members kept in each stack after it.
    """
    parts = data.split([len(data) - 2 * VALID, VALID, VALID])
    shapes: dict[tuple[Any, ...], list[Settings]] = {}
    for each in settings:
        shapes.setdefault(each.shape(), []).append(each)
    stacks = [Stack(each, parts[0], parts[1], device) for each in shapes.values()]
    for stack in stacks:
        stack.capture()
    found, begin, epoch = [], time.monotonic(), 0
    while stacks and time.monotonic() - begin < seconds:
        _run_epoch(stacks, device)
        epoch += 1
        kept = (rungs or {}).get(epoch)
        for i, stack in enumerate(stacks):
            if kept is not None and kept < len(stack.settings):
                order = stack.state["best_loss"].nan_to_num(math.inf).argsort().tolist()
                found += stack.narrow(order[kept:]).results()
                stacks[i] = stack.narrow(order[:kept])
                stacks[i].capture()
        done = [stack for stack in stacks if epoch == stack.first.epochs]
        found += [row for stack in done for row in stack.results(parts[2] if test else None)]
        stacks = [stack for stack in stacks if epoch < stack.first.epochs]
    return found + [row for stack in stacks for row in stack.results()]


def _run_epoch(stacks: list[Stack], device: str) -> None:
    for stack in stacks:
        with torch.cuda.stream(stack.stream):
            stack.begin_epoch()
    for step in range(max(stack.steps for stack in stacks)):
        for stack in stacks:
            if step < stack.steps:
                with torch.cuda.stream(stack.stream):
                    stack.advance(step)
    for stack in stacks:
        with torch.cuda.stream(stack.stream):
            stack.end_epoch()
    if device == "cuda":
        torch.cuda.synchronize()


def told(rows: list[dict[str, Any]]) -> None:
    """A line for each name: its seeds, best first."""
    names: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        names.setdefault(row["settings"]["name"], []).append(row)
    means = {name: sum(row["valid"] for row in each) / len(each) for name, each in names.items()}
    for name in sorted(names, key=means.__getitem__):
        each = names[name]
        epochs = sorted({len(row["curves"]["valid"]) for row in each})
        print(f"{name:44} valid {means[name]:.4f} of {[round(row['valid'], 4) for row in each]}, epochs {epochs}, "
              f"depth {each[0]['depth']:.2f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--rungs", nargs="*", default=[], metavar="EPOCH:MEMBERS")
    parser.add_argument("--test", action="store_true")
    parser.add_argument("--seconds", type=float, default=math.inf)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    settings = [Settings(**each) for each in json.loads(options.plan.read_text())]
    rungs = {int(epoch): int(members) for epoch, members in (each.split(":") for each in options.rungs)}
    data = torch.from_numpy(synthetic(TRAIN + 2 * VALID, seed=0).x)
    begin = time.monotonic()
    rows = train(settings, data, device, rungs=rungs, test=options.test, seconds=options.seconds)
    found = {
        "experiment": "search on the synthetic task",
        "command": " ".join(["python", *sys.argv]),
        "machine": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "seconds": time.monotonic() - begin,
        "rows": rows,
    }
    options.json.write_text(json.dumps(found) + "\n")
    told(rows)


if __name__ == "__main__":
    main()
