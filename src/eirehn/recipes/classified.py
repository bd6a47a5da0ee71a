"""The report of trained classifiers: what they do on test data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..data.splits import Split
from ..models import ELASTIC, FIXED, Network, SequenceModel
from ..report.content import ClassDepth, Confusion, DepthHistogram, EarlyCurve, Report, Saving, Window
from ..report.tables import METRICS
from ..training.batches import Parts
from ..training.recipe import Recipe
from . import analysis
from .analysis import Trained, split_for_test
from .results import spread

task = "Trained to tell classes of sequences apart."
figures = ("early", "savings", "histograms", "class_depths")
"""Those of a report that the results file keeps."""

MISTAKES = 2
"""Windows shown that are not told rightly."""
CHOSEN = (
    "They are the first of each class that it tells rightly and, of those that it does not, the ones it is most "
    "sure of."
)


class Reading(NamedTuple):
    """What one model says of the test data."""

    probability: Tensor  # (N, C)
    depth: Tensor  # (layers · directions, N, T): 0 where a sequence has ended
    lengths: Tensor  # (N,)

    @property
    def taken_for(self) -> Tensor:
        return self.probability.argmax(-1)  # (N,)

    @property
    def spent(self) -> Tensor:
        """The mean depth of each sequence, (N,)."""
        return self.depth.double().sum((0, 2)) / (len(self.depth) * self.lengths)

    @property
    def mean_depth(self) -> float:
        return self.depth.double().sum().item() / (len(self.depth) * int(self.lengths.sum()))

    @property
    def steps(self) -> Tensor:
        """The depth of every step that there is, (layers · directions, steps)."""
        return self.depth[:, torch.arange(self.depth.size(2)) < self.lengths[:, None]]


_readings: WeakKeyDictionary[Trained, list[Reading]] = WeakKeyDictionary()


def readings(run: Trained) -> list[Reading]:
    """What each of the run's models says of the test data, read once."""
    if run not in _readings:
        test = split_for_test(run.recipe.data)
        _readings[run] = [read(model, test) for model in run.models]
    return _readings[run]


@torch.no_grad()
def read(model: SequenceModel, split: Split, max_depth: int | None = None) -> Reading:
    """In parts, so that a large split does not take more memory than there is."""
    probabilities, depths = [], []
    for part in Parts(split):
        outcome = model.run(part.x.to(model.head.weight), lengths=part.lengths, max_depth=max_depth)
        probabilities.append(outcome.prediction.double().softmax(-1).cpu())
        depths.append(outcome.depth.to("cpu", torch.int16))  # kept for every model of a table
    count, steps = split.x.shape[:2]
    lengths = torch.full((count,), steps) if split.lengths is None else split.lengths
    return Reading(torch.cat(probabilities), torch.cat(depths, 1), lengths)


def accuracies_and_depths(run: Trained, max_depth: int | None = None) -> list[tuple[float, float]]:
    """The accuracy and the mean depth of each of the run's models."""
    test = split_for_test(run.recipe.data)
    found = readings(run) if max_depth is None else [read(model, test, max_depth) for model in run.models]
    return [((each.taken_for == test.target).double().mean().item(), each.mean_depth) for each in found]


def classes(run: Trained) -> list[str]:
    return _names(run.recipe.data, "classes", run.recipe.data.output_size, "class")


def signals(run: Trained) -> list[str]:
    return _names(run.recipe.data, "signals", run.recipe.data.input_size, "signal")


def _names(data: object, attribute: str, number: int, otherwise: str) -> list[str]:
    """Those that the data has itself, and numbers from 1 on where it has none."""
    names = getattr(data, attribute, None)
    return [f"{otherwise} {index}" for index in range(1, number + 1)] if names is None else list(map(str, names))


def confusion_matrix(taken_for: Tensor, target: Tensor, number: int) -> list[list[int]]:
    """How many of each class were taken for each, [true][predicted]."""
    counts = torch.bincount(target * number + taken_for, minlength=number**2)
    matrix: list[list[int]] = counts.view(number, number).tolist()
    return matrix


def confusion_by_seed(run: Trained) -> list[list[list[int]] | None]:
    """The confusion matrices for a row of a results file: one a seed, None where there is no model."""
    if not run.has_weights:
        return [None] * len(run.recipe.seeds)
    target, number = split_for_test(run.recipe.data).target, len(classes(run))
    found = {
        seed: confusion_matrix(reading.taken_for, target, number)
        for seed, reading in zip(run.seeds, readings(run), strict=True)
    }
    return [found.get(seed) for seed in run.recipe.seeds]


def complete(results: dict[str, Any], runs: Sequence[Trained]) -> None:
    """Puts the names of the classes into the results, and into each row the confusion matrices of its run."""
    results["classes"] = classes(runs[0])
    for row, run in zip(results["rows"], runs, strict=True):
        row["confusion"] = confusion_by_seed(run)


def confusion(run: Trained) -> Confusion:
    return Confusion(run.label, classes(run), [matrix for matrix in confusion_by_seed(run) if matrix is not None])


def class_depth(run: Trained) -> ClassDepth:
    """How much of each class that there is to be told is told, and the depth spent on it, over the run's models."""
    target = split_for_test(run.recipe.data).target
    found = {name: target == index for index, name in enumerate(classes(run)) if (target == index).any()}
    names, of_class = list(found), list(found.values())
    accuracy, depth = [], []  # [seed][class]
    for reading in readings(run):
        right = (reading.taken_for == target).double()  # (N,)
        accuracy.append([right[which].mean().item() for which in of_class])
        depth.append([reading.spent[which].mean().item() for which in of_class])
    several = len(run.models) > 1
    return ClassDepth(
        label=run.label,
        classes=names,
        accuracy=[statistics.fmean(seeds) for seeds in zip(*accuracy, strict=True)],
        depth=[statistics.fmean(seeds) for seeds in zip(*depth, strict=True)],
        count=[int(which.sum()) for which in of_class],
        accuracy_std=[spread(seeds) or 0.0 for seeds in zip(*accuracy, strict=True)] if several else None,
        depth_std=[spread(seeds) or 0.0 for seeds in zip(*depth, strict=True)] if several else None,
        layers=run.recipe.network.num_layers,
    )


def histogram(run: Trained) -> DepthHistogram:
    """How often the run's models spent each depth, in all layers."""
    depths = torch.cat([reading.steps.flatten() for reading in readings(run)])
    counts = torch.bincount(depths, minlength=run.recipe.network.max_depth + 1).tolist()
    return DepthHistogram(run.label, counts, run.recipe.network.num_layers)


def windows(run: Trained) -> list[Window]:
    """Test sequences as the run's first model reads them, chosen as `CHOSEN` says."""
    reading, target = readings(run)[0], split_for_test(run.recipe.data).target
    right = reading.taken_for == target
    chosen: list[int] = []
    for index in range(len(classes(run))):
        chosen += ((target == index) & right).nonzero().flatten()[:1].tolist()
    sure = torch.where(right, -math.inf, reading.probability.amax(-1))
    surest = sure.argsort(descending=True, stable=True)[:MISTAKES].tolist()
    chosen += [index for index in surest if not right[index]]
    return [_window(run, reading, index) for index in chosen]


def _window(run: Trained, reading: Reading, index: int) -> Window:
    test, names, channels = split_for_test(run.recipe.data), classes(run), signals(run)
    taken_for, end = int(reading.taken_for[index]), int(reading.lengths[index])
    frame = test.x.size(-1) // len(channels)  # time steps that the network reads as one
    return Window(
        label=run.label,
        names=channels,
        signals=test.x[index, :end].unflatten(-1, (frame, len(channels))).flatten(0, 1).tolist(),
        depth=reading.depth[:, index, :end].double().mean(0).repeat_interleave(frame).tolist(),
        true=names[int(test.target[index])],
        predicted=names[taken_for],
        probability=reading.probability[index, taken_for].item(),
        layers=run.recipe.network.num_layers,
        frame=frame,
    )


def early_curve(run: Trained) -> EarlyCurve:
    """The accuracy when no time step may go deeper than 1, 2, … inner steps, without training for it."""
    return analysis.early_curve(run, accuracies_and_depths)


def savings(runs: Sequence[Trained], *, rounds: int = 3) -> list[Saving]:
    """Accuracy, mean depth and time to read the test data of each run."""
    return analysis.savings(runs, accuracies_and_depths, rounds=rounds)


def about(recipes: Sequence[Recipe]) -> dict[str, Any]:
    """What there is to say of the data in a results file: nothing."""
    return {}


def content(
    title: str, summary: str, results: dict[str, Any], runs: Sequence[Trained], notice: str | None = None
) -> Report:
    """The report of these runs, with as many of its figures as they allow."""
    alive = [run for run in runs if run.models]
    elastic = [run for run in alive if run.recipe.network.kind in ELASTIC]
    priced = [run for run in elastic if run.recipe.optimisation.price]
    family = [run for run in elastic if priced and run.recipe.network == priced[0].recipe.network]
    like = family[0].recipe.network if family else None
    fixed = [run for run in alive if like and _comparable(run.recipe.network, like)]
    largest = largest_of_each(alive)
    deep = [run for run in elastic if run in family or run in largest]
    return Report(
        title=title,
        summary=summary,
        results=results,
        notice=notice,
        curves=[analysis.learning_curve(run.folder) for run in runs],
        confusions=[confusion(run) for run in largest],
        histograms=[histogram(run) for run in deep],
        class_depths=[class_depth(run) for run in deep],
        windows=windows(_most_varied(elastic)) if elastic else (),
        windows_chosen=CHOSEN,
        savings=savings([*family, *fixed]) if family else (),
        early=[early_curve(run) for run in largest if run.recipe.network.kind in FIXED + ELASTIC],
        loss_name="training loss (cross-entropy)",
        **METRICS["accuracy"]._asdict(),
    )


def _comparable(network: Network, elastic: Network) -> bool:
    """Whether it has a fixed depth, and else no more and no less than the elastic one."""
    return network.kind in FIXED and (network.shortcut, network.pooling) == (elastic.shortcut, elastic.pooling)


def largest_of_each(runs: Sequence[Trained]) -> list[Trained]:
    """The largest run of each kind of network and number of layers, trained without a price on depth."""
    largest: dict[tuple[str, int], Trained] = {}
    for run in runs:
        form = run.recipe.network.kind, run.recipe.network.num_layers
        if run.recipe.optimisation.price == 0 and (form not in largest or _size(run) > _size(largest[form])):
            largest[form] = run
    return list(largest.values())


def _size(run: Trained) -> int:
    return sum(parameter.numel() for parameter in run.models[0].parameters())


def _most_varied(runs: Sequence[Trained]) -> Trained:
    """The run whose depths differ most from window to window and step to step: the one worth looking at."""
    return max(runs, key=lambda run: readings(run)[0].steps.double().mean(0).std(correction=0).item())
