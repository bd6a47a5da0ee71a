"""Completed runs: their models, their learning curves, and their depth on test data."""

from __future__ import annotations

import csv
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .._internal.files import RunError
from ..data.dataset import Data, Split
from ..models import ELASTIC, FIXED
from ..models.io import load
from ..report.content import Curve, DepthHistogram, EarlyCurve, Saving
from ..training.config import Recipe
from ..training.run import RunFolder
from .results import label, spread


class Trained:
    """A completed run."""

    def __init__(self, folder: Path, tell: Callable[[str], None] = lambda line: None) -> None:
        self.folder, self.tell = folder, tell
        self.recipe: Recipe = RunFolder(folder).recipe()
        result = RunFolder(folder).read_result()
        if result is None:
            raise RunError(f"{folder} has not ended: it has no result.json")
        self.result: dict[str, Any] = result
        self.commands = RunFolder(folder).commands()
        self.label = label(self.recipe)
        self.seeds = [
            seed for seed, value in zip(self.recipe.seeds, result["values"], strict=True) if value is not None
        ]
        self.has_weights = not self.seeds or (folder / "best.safetensors").exists()
        self.readings: dict[int | None, list[Any]] = {}
        """Cache of the predictions of each model for the test data."""

    @cached_property
    def models(self) -> list[Any]:
        """One for each seed that did not diverge in its first epoch; empty if the weights were not kept."""
        models = [load(self.folder, seed=seed) for seed in self.seeds] if self.has_weights else []
        for model in models:
            model.scaling = None  # the splits are already standardised
        return models

    @property
    def elastic(self) -> bool:
        return self.recipe.network.kind in ELASTIC

    @property
    def deep(self) -> bool:
        """Whether its depth can be capped."""
        return self.recipe.network.kind in FIXED + ELASTIC

    @property
    def penalty(self) -> float:
        return self.recipe.optimisation.depth_penalty

    @property
    def test(self) -> Split:
        return _split_for_test(self.recipe.data)


@lru_cache(8)  # the rows of a table may have different data
def _split_for_test(data: Data) -> Split:
    return data.load().test


def penalised_family(runs: Sequence[Trained]) -> list[Trained]:
    """The runs of one elastic network with different depth penalties."""
    penalised = [run.recipe.network for run in runs if run.elastic and run.penalty]
    return [run for run in runs if penalised and run.recipe.network == penalised[0]]


def largest_of_each(runs: Sequence[Trained], size: Callable[[Trained], int]) -> list[Trained]:
    """The largest run of each kind of network and number of layers, preferably without a depth penalty."""
    largest: dict[tuple[str, int], Trained] = {}
    for run in sorted(runs, key=lambda run: (run.penalty > 0, -size(run))):
        largest.setdefault((run.recipe.network.kind, run.recipe.network.num_layers), run)
    return [run for run in runs if run in largest.values()]


def learning_curve(run: Trained) -> Curve:
    """The metrics of every epoch, from the run's metrics.csv."""
    path, recipe = RunFolder(run.folder).metrics, run.recipe
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        metric = next(name for name in lines[0] if name not in ("epoch", "seed", "train_loss", "depth"))
        columns = {
            name: [[float(line[name]) for line in lines if int(line["seed"]) == seed] for seed in recipe.seeds]
            for name in ("train_loss", metric, "depth")
        }
        epochs = [int(line["epoch"]) for line in lines if int(line["seed"]) == recipe.seeds[0]]
        if any(len(seed) != len(epochs) for seeds in columns.values() for seed in seeds):
            raise ValueError("seeds are missing for some epochs")
    except (OSError, KeyError, ValueError, IndexError, StopIteration) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    # Without validation data there is no metric and no depth of an epoch.
    validated = run.result.get("best_validation", True) is not None
    varies = recipe.network.kind in (*ELASTIC, "ACT")
    measured = metric == "mse"  # there the loss is the metric
    return Curve(
        label=run.label,
        epochs=epochs,
        train=columns["train_loss"] if measured else None,
        validation=columns[metric] if validated else None,
        depth=columns["depth"] if varies and validated else None,
        loss=None if measured else columns["train_loss"],
    )


Measure = Callable[[Trained, int | None], list[tuple[float, float]]]
"""Measures the metric and the mean depth of each model of a run, with an optional cap on depth."""


def early_curve(run: Trained, measure: Measure) -> EarlyCurve:
    """The metric with a cap of 1, 2, … inner steps, not trained again."""
    caps = range(1, run.recipe.network.max_depth + 1)
    run.tell(f"measuring {run.folder} with at most 1 to {caps[-1]} inner steps")
    metric = [[value for value, _ in measure(run, cap)] for cap in caps]
    return EarlyCurve(
        run.label,
        list(caps),
        [statistics.fmean(each) for each in metric],
        [spread(each) or 0.0 for each in metric] if len(run.models) > 1 else None,
    )


def histogram(run: Trained, depths: Iterable[Tensor]) -> DepthHistogram:
    """The counts of these depths in all layers of the run's models."""
    every = torch.cat([each.flatten() for each in depths])
    counts = torch.bincount(every, minlength=run.recipe.network.max_depth + 1).tolist()
    return DepthHistogram(run.label, counts, run.recipe.network.num_layers)


def savings(runs: Sequence[Trained], measure: Measure, *, rounds: int) -> list[Saving]:
    """Metric, mean depth and time for the test data of each run."""
    found = []
    times = milliseconds([_reading(run) for run in runs], rounds)
    for run, time_to_read in zip(runs, times, strict=True):
        metric, depths = zip(*measure(run, None), strict=True)
        fixed = run.recipe.network.kind in FIXED
        found.append(
            Saving(
                label=run.label,
                group="fixed" if fixed else "elastic",
                penalty=None if fixed else run.penalty,
                depth=statistics.fmean(depths),
                milliseconds=time_to_read,
                mean=statistics.fmean(metric),
                std=spread(metric),
            )
        )
    return found


def _reading(run: Trained) -> Callable[[], None]:
    """A function that runs all models on the test data."""
    x, lengths = run.test.x.to(run.models[0].head.weight.dtype), run.test.lengths

    @torch.no_grad()
    def read() -> None:
        for model in run.models:
            model(x, lengths=lengths)

    return read


def milliseconds(calls: Sequence[Callable[[], None]], rounds: int, patience: float = math.inf) -> list[float]:
    """The median time of each call over `rounds`, or fewer if `patience` seconds are over, after a first one to
    warm up. The calls alternate."""
    times: list[list[float]] = [[] for _ in calls]
    until = time.monotonic() + patience
    for number in range(1 + rounds):
        if number > 1 and time.monotonic() > until:
            break
        for call, taken in zip(calls, times, strict=True):
            began = time.perf_counter()
            call()
            taken.append(1e3 * (time.perf_counter() - began))
    return [statistics.median(each[1:]) for each in times]
