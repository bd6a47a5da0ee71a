"""What trained models do with depth, measured on test data: the content of a report's figures."""

from __future__ import annotations

import csv
import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from ..data.dataset import Data, Split
from ..data.synthetic import Synthetic, SyntheticData
from ..files import RunError
from ..loading import load
from ..models import ELASTIC, FIXED, SequenceModel
from ..report.content import Curve, DepthHistogram, EarlyCurve, Example, Saving, TrueDepth
from ..training.config import Recipe
from ..training.folder import RunFolder
from .results import label, spread

EXAMPLES = 6


class Trained:
    """The models of a run that has ended, one for each seed that did not diverge from its first epoch on. There are
    none where its weights were not kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recipe: Recipe = RunFolder(folder).recipe()
        result = RunFolder(folder).read_result()
        assert result is not None
        self.seeds = [
            seed for seed, value in zip(self.recipe.seeds, result["values"], strict=True) if value is not None
        ]
        self.has_weights = not self.seeds or (folder / "best.safetensors").exists()
        self.models = [load(folder, seed=seed) for seed in self.seeds] if self.has_weights else []
        for model in self.models:
            model.scaling = None  # what they are given here, the splits, is in the units of the training

    @property
    def label(self) -> str:
        return label(self.recipe)

    @property
    def data(self) -> SyntheticData:
        assert isinstance(self.recipe.data, SyntheticData)
        return self.recipe.data


def learning_curve(folder: Path) -> Curve:
    """The figures of every epoch, from the run's metrics.csv."""
    run = RunFolder(folder)
    recipe = run.recipe()
    try:
        with open(run.metrics, newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        metric = next(name for name in lines[0] if name not in ("epoch", "seed", "train_loss", "depth"))
        columns = {
            name: [[float(line[name]) for line in lines if int(line["seed"]) == seed] for seed in recipe.seeds]
            for name in ("train_loss", metric, "depth")
        }
        epochs = [int(line["epoch"]) for line in lines if int(line["seed"]) == recipe.seeds[0]]
    except (OSError, KeyError, ValueError, IndexError, StopIteration) as error:
        raise RunError(f"{run.metrics} cannot be read: {error}") from error
    # Where nothing is held out, there is no metric and no depth of an epoch.
    validated = (run.read_result() or {}).get("best_validation", True) is not None
    varies = recipe.network.kind in (*ELASTIC, "ACT")
    depth = columns["depth"] if varies and validated else None
    loss = columns["train_loss"]
    measured = metric == "mse"  # there what training lowers is the metric
    return Curve(
        label=label(recipe),
        epochs=epochs,
        train=loss if measured else None,
        validation=columns[metric] if validated else None,
        depth=depth,
        loss=None if measured else loss,
    )


@lru_cache(2)
def _generated(data: SyntheticData) -> Synthetic:
    return data.generate()


@lru_cache(8)  # the rows of one table may read their data in several ways
def split_for_test(data: Data) -> Split:
    return data.load().test


@torch.no_grad()
def squared_errors(
    model: SequenceModel, data: SyntheticData, max_depth: int | None = None
) -> tuple[Tensor, Tensor]:
    """The squared error and the depth at each time step of the test data, (N, T) each."""
    test = split_for_test(data)
    outcome = model.run(test.x.to(model.head.weight.dtype), max_depth=max_depth)
    return (outcome.prediction - test.target).double().square().mean(-1), outcome.depth[-1]


def errors_and_depths(run: Trained, max_depth: int | None = None) -> list[tuple[float, float]]:
    """The mean squared error and the mean depth of each of the run's models."""
    measured = [squared_errors(model, run.data, max_depth) for model in run.models]
    return [(error.mean().item(), depth.double().mean().item()) for error, depth in measured]


Figures = Callable[[Trained, int | None], list[tuple[float, float]]]
"""The metric and the mean depth of each model of a run, whose depth may be capped."""


def early_curve(run: Trained, figures: Figures = errors_and_depths) -> EarlyCurve:
    """The metric when no time step may go deeper than 1, 2, … inner steps, without training for it."""
    caps = range(1, run.recipe.network.max_depth + 1)
    metric = [[value for value, _ in figures(run, cap)] for cap in caps]
    return EarlyCurve(
        run.label,
        list(caps),
        [statistics.fmean(each) for each in metric],
        [spread(each) or 0.0 for each in metric] if len(run.models) > 1 else None,
    )


def histogram(run: Trained) -> DepthHistogram:
    """How often the run's models spent each depth."""
    depths = torch.cat([squared_errors(model, run.data)[1].flatten() for model in run.models])
    return DepthHistogram(run.label, torch.bincount(depths, minlength=run.recipe.network.max_depth + 1).tolist())


def examples(run: Trained) -> list[Example]:
    """The first test sequences, as the run's first model reads them."""
    data = run.data
    errors, depths = squared_errors(run.models[0], data)
    generated = _generated(data)
    return [
        Example(
            x=generated.x[-data.test :][index, :-1].tolist(),
            spent=depths[index].tolist(),
            taken=generated.depth[-data.test :][index, 1:].tolist(),
            error=errors[index].tolist(),
        )
        for index in range(min(EXAMPLES, data.test))
    ]


def true_depth(run: Trained) -> TrueDepth:
    """The depth spent on a prediction against the generator's own for the point predicted."""
    data = run.data
    taken = torch.from_numpy(_generated(data).depth[-data.test :, 1:]).flatten()
    taken = taken.repeat(len(run.models))
    spent = torch.cat([squared_errors(model, data)[1].flatten() for model in run.models]).double()
    depths = taken.unique().tolist()
    groups = [spent[taken == depth] for depth in depths]
    return TrueDepth(
        run.label,
        depths,
        [group.mean().item() for group in groups],
        [group.std(correction=0).item() for group in groups],
        [len(group) for group in groups],
    )


def savings(runs: Sequence[Trained], figures: Figures = errors_and_depths, *, rounds: int = 7) -> list[Saving]:
    """Metric, mean depth and time to read the test data of each run; times are medians of interleaved rounds."""
    milliseconds = _interleaved([_reading(run) for run in runs], rounds)
    found = []
    for run, time_taken in zip(runs, milliseconds, strict=True):
        metric, depths = zip(*figures(run, None), strict=True)
        fixed = run.recipe.network.kind in FIXED
        found.append(
            Saving(
                label=run.label,
                group="fixed" if fixed else "elastic",
                price=None if fixed else run.recipe.optimisation.price,
                depth=statistics.fmean(depths),
                milliseconds=time_taken,
                mean=statistics.fmean(metric),
                std=spread(metric),
            )
        )
    return found


def _reading(run: Trained) -> Callable[[], None]:
    test = split_for_test(run.recipe.data)
    x, given = test.x.to(run.models[0].head.weight.dtype), {} if test.lengths is None else {"lengths": test.lengths}

    def read() -> None:
        for model in run.models:
            model(x, **given)

    return read


@torch.no_grad()
def _interleaved(calls: Sequence[Callable[[], None]], rounds: int) -> list[float]:
    times: list[list[float]] = [[] for _ in calls]
    for number in range(rounds + 1):
        for call, taken in zip(calls, times, strict=True):
            begin = time.perf_counter()
            call()
            if number:  # the first round warms up
                taken.append((time.perf_counter() - begin) * 1e3)
    return [statistics.median(each) if each else math.nan for each in times]
