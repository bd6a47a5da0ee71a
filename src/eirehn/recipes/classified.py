"""What trained classifiers do, measured on test data: the content of a report's figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data.splits import Split
from ..models import ELASTIC, SequenceModel
from ..report.classification import ClassDepth, Confusion, Window
from ..report.content import Curve, DepthHistogram, EarlyCurve, Report, Saving
from ..report.metric import metric_of
from ..training.batches import Parts
from . import analysis
from .analysis import Trained
from .results import spread

MISTAKES = 2
"""Windows shown that are not told rightly."""
CHOSEN = (
    "They are the first of each class that it tells rightly and, of those that it does not, the ones it is most "
    "sure of."
)


class Reading(NamedTuple):
    """What one model says of the test data."""

    probability: Tensor  # (N, C)
    depth: Tensor  # (layers · directions, N, T)

    @property
    def taken_for(self) -> Tensor:
        return self.probability.argmax(-1)  # (N,)


class Classified(Trained):
    """A run of classifiers that has ended, and what each of its models says of the test data."""

    @property
    def test(self) -> Split:
        return analysis.split_for_test(self.recipe.data)

    @cached_property
    def readings(self) -> list[Reading]:
        return [read(model, self.test) for model in self.models]

    @property
    def classes(self) -> list[str]:
        number = int(self.recipe.data.output_size)
        return _names(self.recipe.data, "classes", number, "class")

    @property
    def signals(self) -> list[str]:
        number = int(self.recipe.data.input_size)
        return _names(self.recipe.data, "signals", number, "signal")

    @property
    def elastic(self) -> bool:
        return self.recipe.network.kind in (*ELASTIC, "ACT")


def _names(data: Any, attribute: str, number: int, otherwise: str) -> list[str]:
    """Those that the data has itself, and numbers from 1 on where it has none."""
    names = getattr(data, attribute, None)
    return [f"{otherwise} {index}" for index in range(1, number + 1)] if names is None else [str(n) for n in names]


@torch.no_grad()
def read(model: SequenceModel, split: Split, max_depth: int | None = None) -> Reading:
    """In parts, so that a large split does not take more memory than there is."""
    probabilities, depths = [], []
    for part in Parts(split):
        outcome = model.run(part.x.to(model.head.weight), max_depth=max_depth)
        probabilities.append(outcome.prediction.double().softmax(-1).cpu())
        depths.append(outcome.depth.to("cpu", torch.int16))  # kept for every model of a table
    return Reading(torch.cat(probabilities), torch.cat(depths, 1))


def figures(run: Classified, max_depth: int | None = None) -> list[tuple[float, float]]:
    """The accuracy and the mean depth of each of the run's models."""
    readings = run.readings if max_depth is None else [read(model, run.test, max_depth) for model in run.models]
    target = run.test.target
    return [
        ((each.taken_for == target).double().mean().item(), each.depth.double().mean().item()) for each in readings
    ]


def confusion_matrix(taken_for: Tensor, target: Tensor, number: int) -> list[list[int]]:
    """How many of each class were taken for each, [true][predicted]."""
    counts: list[list[int]] = (
        torch.bincount(target * number + taken_for, minlength=number**2).view(-1, number).tolist()
    )
    return counts


def confusion_by_seed(run: Classified) -> list[list[list[int]] | None]:
    """The confusion matrices for a row of a results file: one a seed, None for one that diverged."""
    number = len(run.classes)
    found = {
        seed: confusion_matrix(reading.taken_for, run.test.target, number)
        for seed, reading in zip(run.seeds, run.readings, strict=True)
    }
    return [found.get(seed) for seed in run.recipe.seeds]


def confusion(run: Classified) -> Confusion:
    return Confusion(run.label, run.classes, [matrix for matrix in confusion_by_seed(run) if matrix is not None])


def class_depth(run: Classified) -> ClassDepth:
    """How much of each class is told, and the depth spent on it, over the run's models."""
    target = run.test.target
    accuracy, depth = [], []  # [seed][class]
    for reading in run.readings:
        right = (reading.taken_for == target).double()  # (N,)
        spent = reading.depth.double().mean((0, 2))  # (N,)
        which = [target == index for index in range(len(run.classes))]
        accuracy.append([right[each].mean().item() for each in which])
        depth.append([spent[each].mean().item() for each in which])
    several = len(run.models) > 1
    return ClassDepth(
        label=run.label,
        classes=run.classes,
        accuracy=[statistics.fmean(each) for each in zip(*accuracy, strict=True)],
        depth=[statistics.fmean(each) for each in zip(*depth, strict=True)],
        count=torch.bincount(target, minlength=len(run.classes)).tolist(),
        accuracy_std=[spread(each) or 0.0 for each in zip(*accuracy, strict=True)] if several else None,
        depth_std=[spread(each) or 0.0 for each in zip(*depth, strict=True)] if several else None,
        layers=run.recipe.network.num_layers,
    )


def histogram(run: Classified) -> DepthHistogram:
    """How often the run's models spent each depth, in all layers."""
    depths = torch.cat([reading.depth.flatten() for reading in run.readings])
    counts = torch.bincount(depths, minlength=run.recipe.network.max_depth + 1).tolist()
    return DepthHistogram(run.label, counts, run.recipe.network.num_layers)


def windows(run: Classified) -> list[Window]:
    """Test sequences as the run's first model reads them: the first of each class that it tells rightly, and of
    those that it does not, the ones it is most sure of."""
    reading, target = run.readings[0], run.test.target
    right = reading.taken_for == target
    chosen = []
    for index in range(len(run.classes)):
        chosen += ((target == index) & right).nonzero().flatten()[:1].tolist()
    sure = torch.where(right, -math.inf, reading.probability.amax(-1))
    order = sure.argsort(descending=True, stable=True)[:MISTAKES].tolist()
    chosen += [index for index in order if not right[index]]
    return [_window(run, reading, index) for index in chosen]


def _window(run: Classified, reading: Reading, index: int) -> Window:
    taken_for = int(reading.taken_for[index])
    return Window(
        label=run.label,
        names=run.signals,
        signals=run.test.x[index].tolist(),
        depth=reading.depth[:, index].double().mean(0).tolist(),
        true=run.classes[int(run.test.target[index])],
        predicted=run.classes[taken_for],
        probability=reading.probability[index, taken_for].item(),
        layers=run.recipe.network.num_layers,
    )


def early_curve(run: Classified) -> EarlyCurve:
    """The accuracy when no time step may go deeper than 1, 2, … inner steps, without training for it."""
    return analysis.early_curve(run, figures)


def savings(runs: Sequence[Classified], *, rounds: int = 3) -> list[Saving]:
    """Accuracy, mean depth and time to read the test data of each run."""
    return analysis.savings(runs, figures, rounds=rounds)


def learning_curves(runs: Sequence[Trained]) -> list[Curve]:
    return [analysis.learning_curve(run.folder) for run in runs]


def best_of_each(runs: Sequence[Classified]) -> list[Classified]:
    """Of each kind of network the run with the best mean accuracy on validation data, trained without a price."""
    best: dict[str, Classified] = {}
    for run in runs:
        kind = run.recipe.network.kind
        if run.recipe.optimisation.price == 0 and (kind not in best or validation(run) > validation(best[kind])):
            best[kind] = run
    return list(best.values())


def validation(run: Trained) -> float:
    """The mean over the seeds that did not diverge."""
    values = [value for value in run.result["best_validation"] if value is not None and math.isfinite(value)]
    return statistics.fmean(values) if values else -math.inf


def content(
    title: str, summary: str, results: dict[str, Any], runs: Sequence[Classified], notice: str | None = None
) -> Report:
    """The report of these runs, with as many of its figures as they allow."""
    alive = [run for run in runs if run.models]
    elastic = [run for run in alive if run.elastic]
    priced = [run for run in elastic if run.recipe.optimisation.price]
    family = [run for run in elastic if priced and run.recipe.network == priced[0].recipe.network]
    fixed = [run for run in alive if run.recipe.network.kind in ("RHN", "SRHN")]
    shown = best_of_each(alive)
    varied = sorted({id(run): run for run in (*family, *(r for r in shown if r.elastic))}.values(), key=runs.index)
    return Report(
        title=title,
        summary=summary,
        results=results,
        notice=notice,
        curves=learning_curves(runs),
        confusions=[confusion(run) for run in shown],
        histograms=[histogram(run) for run in varied],
        class_depths=[class_depth(run) for run in varied],
        windows=windows(_most_varied(elastic)) if elastic else (),
        windows_chosen=CHOSEN if elastic else "",
        savings=savings([*family, *fixed]) if family else (),
        early=[early_curve(run) for run in shown if run.recipe.network.kind in ("RHN", "SRHN", *ELASTIC)],
        loss_name="training loss (cross-entropy)",
        **metric_of(results)._asdict(),
    )


def _most_varied(runs: Sequence[Classified]) -> Classified:
    """The run whose depths differ most from window to window and step to step: the one worth looking at."""
    return max(runs, key=lambda run: float(np.std(run.readings[0].depth.double().mean(0).numpy())))
