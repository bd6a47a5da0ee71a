"""Times training steps on a GPU as `eirehn train` takes them: recorded as a CUDA graph, and launch by launch.

    python benchmarks/training_step.py [case …] [--recorded] [--kernels]

The time of a step is that of an epoch's batches but the first and the last, between two waits for the GPU, the
median over epochs; an epoch's time has its validation in it. Random numbers stand in for the HAR data's signals;
the language models read the Penn Treebank, which must be there. `--recorded` leaves out the launch by launch;
`--kernels` tells what a recorded step is made of.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytorch_lightning as pl
import torch
from gpu_timing import milliseconds
from torch.profiler import ProfilerActivity, profile

from eirehn.data.dataset import Split, Splits
from eirehn.data.synthetic import SyntheticData
from eirehn.models import SequenceNetwork
from eirehn.recipes import ptb, synthetic
from eirehn.training.checkpoint import seeded
from eirehn.training.config import ClassifierOptimisation, Recipe
from eirehn.training.in_memory import Tensors
from eirehn.training.loaders import Data
from eirehn.training.trainer import make_task, make_trainer, quiet


def signals() -> Tensors:
    """Of the shape of the HAR data."""
    parts = (Split(torch.randn(count, 128, 9), torch.randint(0, 6, (count,))) for count in (7352, 500, 500))
    return Tensors(Splits(*parts), "classification", 6)


class Clock(pl.Callback):
    def __init__(self, *, looks: bool = False) -> None:
        self.looks = looks
        self.steps: list[float] = []
        self.epochs: list[float] = []
        self.graph: float | None = None
        self.kernels: Counter[str] = Counter()  # microseconds
        self.launches: Counter[str] = Counter()

    def on_train_epoch_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        torch.cuda.synchronize()
        self._epoch = time.perf_counter()

    def on_train_batch_end(self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Any, index: int) -> None:
        last = int(trainer.num_training_batches) - 1
        if index in (0, last - 1):  # the very last may be smaller
            torch.cuda.synchronize()
            now = time.perf_counter()
            if index == 0:
                self._first = now
            else:
                self.steps.append((now - self._first) / (last - 1))

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        torch.cuda.synchronize()
        self.epochs.append(time.perf_counter() - self._epoch)

    def on_train_end(self, trainer: pl.Trainer, task: Any) -> None:
        if task.captured is not None:
            first = next(iter(task.captured.recorded.values()))
            self.graph = milliseconds(first.graph.replay)
            if self.looks:
                self._look_into(first.graph.replay)

    def _look_into(self, replay: Callable[[], object], times: int = 5) -> None:
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(times):
                replay()
            torch.cuda.synchronize()
        for event in seen.events():
            self.kernels[event.name] += event.device_time / times
            self.launches[event.name] += 1
        for name in self.launches:
            self.launches[name] //= times

    def tell_kernels(self, most: int = 40) -> None:
        total, count = sum(self.kernels.values()), sum(self.launches.values())
        print(f"  {total / 1e3:.3f} ms in {count} kernels and copies", flush=True)
        for name, spent in self.kernels.most_common(most):
            print(f"  {spent / 1e3:8.4f} ms {self.launches[name]:4d}x  {name[:150]}", flush=True)


def timed(recipe: Recipe, *, looks: bool) -> Clock:
    """A short training of it, with its times in seconds by epoch; those of the graph alone in milliseconds."""
    clock = Clock(looks=looks)
    task, splits = make_task(recipe), recipe.data.load()
    with quiet(), seeded(0):
        trainer = make_trainer(recipe, None, [clock])
        trainer.fit(task, datamodule=Data(recipe, splits))
    return clock


def cases() -> dict[str, Recipe]:
    short = SyntheticData(train=2000)
    best = synthetic.best()
    paper, lstm = (replace(synthetic.network(kind, 20), data=short) for kind in ("EIREHN", "LSTM"))
    har = Recipe(
        name="har-ei-rehn-48",
        network=SequenceNetwork(
            "EIREHN",
            48,
            max_depth=4,
            weight_update="paper",
            start={"alpha": 0.05, "gate_bias": 0.0, "decay_bias": -4.0, "decay_scale": 0.1},
        ),
        data=signals(),
        optimisation=ClassifierOptimisation(batch_size=200),
    )
    return {
        "best": best,
        "best, one member": replace(best, seeds=(0,)),
        "har": har,
        "har, one member": replace(har, seeds=(0,)),
        "paper": paper,
        "paper, one member": replace(paper, seeds=(0,)),
        "paper LSTM": lstm,
        "ptb": ptb.ei_rehn(1200, 4),
        "ptb, depth 3": ptb.ei_rehn(1200, 3),
        "ptb best": ptb.best(),
        "ptb RHN": ptb.rhn(1050, 4),
        "ptb RHN, depth 10": ptb.rhn(830, 10),
        "ptb LSTM": ptb.lstm(1500),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="case")
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--kernels", action="store_true")
    args = parser.parse_args()
    if unknown := set(args.cases) - set(cases()):
        parser.error(f"no case {', '.join(sorted(unknown))}: there are {', '.join(cases())}")
    print(torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    print(f"{'case':<20} {'':<9} {'step ms':>8} {'graph ms':>8} {'epoch ms':>9}   steps by epoch", flush=True)
    for name, recipe in cases().items():
        if args.cases and name not in args.cases:
            continue
        epochs = 4 if recipe.optimisation.optimizer == "soap" else 3
        short = replace(recipe, optimisation=replace(recipe.optimisation, epochs=epochs))
        if recipe.data.task == "language":
            short = replace(short, data=recipe.data.smaller(200_000))
        for capture in (True,) if args.recorded else (True, False):
            placed = replace(short, hardware=replace(recipe.hardware, accelerator="gpu", capture=capture))
            clock = timed(placed, looks=args.kernels)
            word = "recorded" if capture else "launched"
            step, epoch = (1e3 * statistics.median(each[1:]) for each in (clock.steps, clock.epochs))
            each = " ".join(f"{1e3 * step:.2f}" for step in clock.steps)
            alone = f"{clock.graph:8.3f}" if clock.graph is not None else " " * 8
            print(f"{name:<20} {word:<9} {step:8.3f} {alone} {epoch:9.1f}   {each}", flush=True)
            if args.kernels and capture:
                clock.tell_kernels()


if __name__ == "__main__":
    main()
