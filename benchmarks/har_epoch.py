"""An epoch of human activity recognition: EI-REHN-48 of depth 4 beside torch's own two-layer LSTM-32.

    python benchmarks/har_epoch.py [--threads 2] [--epochs 3] [--json results/speed-har.json]

Whole training steps (forward, backward, Adam) of 200 windows, taken in turns, 37 of each an epoch; on a GPU, where
there is one. The windows are random numbers of the right shape: what they are changes nothing here.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eirehn.models import SequenceModel, SequenceNetwork
from eirehn.training.provenance import provenance

WINDOWS, BATCH, WANTED = 7352, 200, 3.5


class TorchLSTM(nn.Module):
    """Two layers of torch's own, and a head on the last state."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.LSTM(9, 32, 2, batch_first=True), nn.Linear(32, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)[0][:, -1])


def step_of(model: nn.Module, x: Tensor, target: Tensor) -> Callable[[], None]:
    optimizer = torch.optim.Adam(model.parameters(), 0.0025, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), target).backward()
        optimizer.step()
        if x.is_cuda:
            torch.cuda.synchronize()

    return step


def epoch(steps: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Seconds of an epoch of each, their steps taken in turns."""
    taken = dict.fromkeys(steps, 0.0)
    for _ in range(-(-WINDOWS // BATCH)):
        for name, step in steps.items():
            begin = time.perf_counter()
            step()
            taken[name] += time.perf_counter() - begin
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, target = torch.randn(BATCH, 128, 9, device=device), torch.randint(0, 6, (BATCH,), device=device)
    ours = SequenceModel(
        SequenceNetwork(
            "EIREHN",
            48,
            max_depth=4,
            shortcut=True,
            weight_update="paper",
            start={"alpha": 0.05, "gate_bias": 0.0, "decay_bias": -4.0, "decay_scale": 0.1},
        ),
        9,
        6,
        last=True,
    ).to(device)
    steps = {"EI-REHN-48": step_of(ours, x, target), "LSTM-32": step_of(TorchLSTM().to(device), x, target)}
    for step in steps.values():
        step()
    epochs = [epoch(steps) for _ in range(options.epochs)]
    ratios = [each["EI-REHN-48"] / each["LSTM-32"] for each in epochs]
    ratio = statistics.median(ratios)
    met = "met" if ratio <= WANTED else "missed"
    for each, own in zip(epochs, ratios, strict=True):
        print(f"EI-REHN-48 {each['EI-REHN-48']:.2f} s, LSTM-32 {each['LSTM-32']:.2f} s, {own:.2f} times")
    print(f"median {ratio:.2f} times, at most {WANTED} wanted: {met}")
    if options.json is not None:
        found = {
            "experiment": "an epoch of HAR",
            "command": " ".join(["python", *sys.argv]),
            **provenance(),
            "device": device,
            "threads": options.threads,
            "seconds": epochs,
            "times": {"median": ratio, "least": min(ratios), "most": max(ratios), "wanted": WANTED},
        }
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
