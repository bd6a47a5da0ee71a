"""Searches settings for human activity recognition, cross-validated over people: a network a fold, all at once.

    python benchmarks/search_har.py plan.json --json found.json [--folds 5] [--seconds 500]

The plan is a list of objects with the fields of `Settings`, tried in order while time is left. The 21 people of the
published training part are dealt to folds; each network trains on the windows of the others and is measured on its
own. The published test part is not read. On a GPU the training step is one CUDA graph.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from eirehn.data.download import kept
from eirehn.data.har import FILE, read
from eirehn.models import Network, SequenceModel
from eirehn.training.ensemble import Ensemble

CLASSES, SIGNALS = 6, 9


@dataclass
class Settings:
    """One way to train. `network` holds fields of `eirehn.models.Network`."""

    name: str = ""
    network: dict[str, Any] = field(default_factory=dict)
    frame: int = 1
    tilt: float = 0.0
    gain: float = 0.0
    epochs: int = 100
    batch: int = 200
    rate: float = 0.0025
    schedule: str = "constant"
    warmup: float = 0.0
    decay: float = 0.0
    penalty: float = 0.0
    smoothing: float = 0.0
    clip: float | None = None
    average: float = 0.0
    price: float = 0.0
    seeds: int = 1
    seed: int = 0

    def rate_at(self, progress: float) -> float:
        if progress < self.warmup:
            return self.rate * progress / self.warmup
        if self.schedule == "constant":
            return self.rate
        return self.rate * 0.5 * (1 + math.cos(math.pi * (progress - self.warmup) / (1 - self.warmup)))


class People:
    """The training part dealt to folds of people."""

    def __init__(self, folds: int, device: str) -> None:
        windows = read(kept("har", FILE)).train
        mean, scale = windows.x.mean((0, 1)), windows.x.std((0, 1))
        self.mean, self.scale = (torch.from_numpy(each).to(device) for each in (mean, scale))
        self.x = torch.from_numpy((windows.x - mean) / scale).to(device)
        self.target = torch.from_numpy(windows.target).to(device)
        people = np.random.default_rng(0).permutation(np.unique(windows.subject))
        fold = np.empty(len(windows.subject), np.int64)
        for index, person in enumerate(people):
            fold[windows.subject == person] = index % folds
        self.inside = [torch.from_numpy(np.flatnonzero(fold != each)).to(device) for each in range(folds)]
        self.outside = [torch.from_numpy(np.flatnonzero(fold == each)).to(device) for each in range(folds)]


class Folds:
    """A network for each fold and seed, trained together."""

    def __init__(self, settings: Settings, people: People, device: str) -> None:
        self.settings, self.people, self.device = settings, people, device
        self.folds = [fold for fold in range(len(people.inside)) for _ in range(settings.seeds)]
        members = []
        for index in range(len(self.folds)):
            torch.manual_seed(1000 * settings.seed + index)
            network = Network(**settings.network)
            members.append(SequenceModel(network, SIGNALS * settings.frame, CLASSES, last=True))
        self.parameters = sum(value.numel() for value in members[0].parameters())
        self.ensemble = Ensemble(members).to(device)
        self.rate = torch.tensor(settings.rate, device=device)
        values = list(self.ensemble.parameters())
        options = {"fused": True, "capturable": True} if device == "cuda" else {}
        self.optimizer = torch.optim.AdamW(values, self.rate, weight_decay=settings.decay, **options)
        self.averages = [value.detach().clone() for value in values]
        self.steps = min(len(people.inside[fold]) for fold in self.folds) // settings.batch
        self.rows = torch.zeros(len(self.folds), settings.batch, dtype=torch.int64, device=device)
        self.loss = torch.zeros(len(self.folds), device=device)
        self.replay = self.step

    def batch(self) -> tuple[Tensor, Tensor]:
        s = self.settings
        x = self.people.x[self.rows]  # (M, B, 128, 9)
        if s.tilt or s.gain:
            x = self.moved(x)
        return x.unflatten(2, (-1, s.frame)).flatten(3), self.people.target[self.rows]

    def moved(self, x: Tensor) -> Tensor:
        """As `eirehn.data.har.moved` does it, with draws of the device."""
        s, people = self.settings, self.people
        angles = torch.randn(*x.shape[:2], 3, device=self.device) * math.radians(s.tilt)
        zero = torch.zeros_like(angles[..., 0])
        a, b, c = angles.unbind(-1)
        K = torch.stack([zero, -c, b, c, zero, -a, -b, a, zero], -1).unflatten(-1, (3, 3))
        length = angles.norm(dim=-1)[..., None, None]
        turn = torch.eye(3, device=self.device) + torch.sinc(length / math.pi) * K
        turn = turn + 0.5 * torch.sinc(length / (2 * math.pi)).square() * (K @ K)
        turn = turn * (torch.randn(*x.shape[:2], 1, 1, device=self.device) * s.gain).exp()
        vectors = (x * people.scale + people.mean).unflatten(-1, (3, 3))
        turned = torch.einsum("mbtvi,mbji->mbtvj", vectors, turn).flatten(-2)
        return (turned - people.mean) / people.scale

    def step(self) -> None:
        s = self.settings
        x, target = self.batch()
        outcome = self.ensemble(x, with_cost=s.price > 0)
        entropy = F.cross_entropy(
            outcome.prediction.flatten(0, 1), target.flatten(), reduction="none", label_smoothing=s.smoothing
        )
        errors = entropy.view(target.shape).mean(1)
        total = errors + s.price * outcome.cost.flatten(1).mean(1) if s.price else errors
        self.optimizer.zero_grad(set_to_none=False)
        total.sum().backward()
        if s.penalty:
            self.ensemble.add_penalty(s.penalty)
        if s.clip is not None:
            self.ensemble.clip_gradients(s.clip)
        self.optimizer.step()
        with torch.no_grad():
            self.loss += errors
            if s.average:
                torch._foreach_lerp_(self.averages, list(self.ensemble.parameters()), 1 - s.average)

    def capture(self) -> None:
        if self.device != "cuda":
            return
        values = list(self.ensemble.parameters())
        before = [value.detach().clone() for value in values]
        for value in values:
            value.grad = torch.zeros_like(value)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        with torch.no_grad():
            for value, old in zip(values, before, strict=True):
                value.copy_(old)
            for average, old in zip(self.averages, before, strict=True):
                average.copy_(old)
            for state in self.optimizer.state.values():
                for each in state.values():
                    each.zero_()
            self.loss.zero_()
        torch.cuda.synchronize()
        self.replay = graph.replay

    @torch.no_grad()
    def epoch(self, number: int) -> None:
        s = self.settings
        orders = torch.stack(
            [
                self.people.inside[fold][torch.randperm(len(self.people.inside[fold]), device=self.device)][
                    : self.steps * s.batch
                ]
                for fold in self.folds
            ]
        )
        self.loss.zero_()
        for step in range(self.steps):
            self.rate.fill_(s.rate_at((number * self.steps + step) / (s.epochs * self.steps)))
            self.rows.copy_(orders[:, step * s.batch : (step + 1) * s.batch])
            with torch.enable_grad():
                self.replay()

    @torch.no_grad()
    def accuracies(self) -> tuple[list[float], float]:
        """Of each network on the people it has not seen, and the mean depth."""
        self.ensemble.eval()
        s = self.settings
        most = max(len(each) for each in self.people.outside)
        rows = torch.stack([F.pad(self.people.outside[fold], (0, most - len(self.people.outside[fold])))
                            for fold in self.folds])  # fmt: skip
        right, depths = [], []
        for part in rows.split(400, 1):
            outcome = self.ensemble(self.people.x[part].unflatten(2, (-1, s.frame)).flatten(3))
            right.append(outcome.prediction.argmax(-1) == self.people.target[part])
            depths.append(outcome.depth.double().mean())
        hits = torch.cat(right, 1)
        counts = [len(self.people.outside[fold]) for fold in self.folds]
        self.ensemble.train()
        found = [hits[index, :count].double().mean().item() for index, count in enumerate(counts)]
        return found, torch.stack(depths).mean().item()

    @torch.no_grad()
    def swap(self) -> None:
        for average, value in zip(self.averages, self.ensemble.parameters(), strict=True):
            kept = value.clone()
            value.copy_(average)
            average.copy_(kept)

    def measure(self, epoch: int) -> dict[str, Any]:
        plain, depth = self.accuracies()
        row: dict[str, Any] = {"epoch": epoch, "plain": plain, "depth": depth}
        row["loss"] = (self.loss / self.steps).mean().item()
        if self.settings.average:
            self.swap()
            row["averaged"] = self.accuracies()[0]
            self.swap()
        return row


def tried(settings: Settings, people: People, device: str, until: float) -> dict[str, Any]:
    folds = Folds(settings, people, device)
    folds.capture()
    begin, curve = time.monotonic(), []
    for number in range(settings.epochs):
        folds.epoch(number)
        left = settings.epochs - 1 - number
        if left % max(1, settings.epochs // 10) == 0 or left < 3:
            curve.append(folds.measure(number + 1))
        if time.monotonic() > until:
            break
    seconds = time.monotonic() - begin
    return {"settings": asdict(settings), "parameters": folds.parameters, "curve": curve, "seconds": seconds}


def told(row: dict[str, Any]) -> str:
    def mean(which: str) -> str:
        return (
            " ".join(f"{np.mean(each[which]):.4f}" for each in row["curve"][-5:])
            if which in row["curve"][-1]
            else ""
        )

    last = row["curve"][-1]
    return (
        f"{row['settings']['name']:40} {row['parameters']:6} {row['seconds']:5.0f} s  epoch {last['epoch']}  "
        f"loss {last['loss']:.4f}  depth {last['depth']:.2f}  plain {mean('plain')}  averaged {mean('averaged')}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=math.inf)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    people = People(options.folds, device)
    until = time.monotonic() + options.seconds
    found: dict[str, Any] = {
        "experiment": "search on UCI HAR, cross-validated over the people of the training part",
        "command": " ".join(["python", *sys.argv]),
        "machine": torch.cuda.get_device_name() if device == "cuda" else platform.machine(),
        "versions": {"torch": torch.__version__, "python": platform.python_version()},
        "rows": [],
    }
    for each in json.loads(options.plan.read_text()):
        if time.monotonic() > until:
            break
        try:
            row = tried(Settings(**each), people, device, until)
        except (RuntimeError, ValueError) as error:
            print(f"{each.get('name')}: {error}", flush=True)
            continue
        print(told(row), flush=True)
        found["rows"].append(row)
        options.json.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
