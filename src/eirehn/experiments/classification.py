"""The report of trained classifiers: what they do on test data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data.dataset import Split
from ..models import FIXED, Network, SequenceModel, SequenceNetwork
from ..report.content import ClassDepth, Confusion, Window
from ..training.loaders import Parts
from .results import spread
from .trained import Trained, early_curve, histogram, largest_of_each, learning_curve, penalised_family, savings

TASK = "Trained to classify sequences."
KEPT = ("early", "savings", "histograms", "class_depths")
"""The parts of a report that the results file keeps."""

MISTAKES = 2
"""Windows shown that are classified wrongly."""
CHOSEN = (
    "They are the first of each class that it predicts correctly and, of those that it does not, the ones it is "
    "most sure of."
)


def about(runs: Sequence[Trained]) -> dict[str, Any]:
    return {"classes": classes(runs[0])}


def about_row(run: Trained) -> dict[str, Any]:
    return {"confusion": confusion_by_seed(run)}


def parts(runs: Sequence[Trained]) -> dict[str, Any]:
    """Of the report of these runs, as many as they allow."""
    alive = [run for run in runs if run.models]
    elastic = [run for run in alive if run.elastic]
    family = penalised_family(alive)
    like = family[0].recipe.network if family else None
    fixed = [run for run in alive if like and _comparable(run.recipe.network, like)]
    largest = largest_of_each(alive, parameters)
    deep = [run for run in elastic if run in family or run in largest]
    return {
        "curves": [learning_curve(run) for run in runs],
        "confusions": [confusion(run) for run in largest],
        "histograms": [histogram(run, depths(run)) for run in deep],
        "class_depths": [class_depth(run) for run in deep],
        "windows": windows(max(elastic, key=variety)) if elastic else (),
        "windows_chosen": CHOSEN,
        "savings": savings([*family, *fixed], accuracies_and_depths, rounds=3) if family else (),
        "early": [early_curve(run, accuracies_and_depths) for run in largest if run.deep],
        "loss_name": "training loss (cross-entropy)",
    }


def _comparable(network: Network, elastic: Network) -> bool:
    """Whether it has a fixed depth, and else no more and no less than the elastic one."""
    if not isinstance(network, SequenceNetwork) or not isinstance(elastic, SequenceNetwork):
        return False
    return network.kind in FIXED and (network.shortcut, network.pooling) == (elastic.shortcut, elastic.pooling)


def depths(run: Trained) -> list[Tensor]:
    return [reading.steps for reading in readings(run)]


def variety(run: Trained) -> float:
    """How much depths differ from window to window and step to step: the run with the most is worth looking at."""
    return depths(run)[0].double().mean(0).std(correction=0).item()


def parameters(run: Trained) -> int:
    return sum(parameter.numel() for parameter in run.models[0].parameters())


class Reading(NamedTuple):
    """What one model predicts of the test data."""

    probability: Tensor  # (N, C)
    depth: Tensor  # (layers · directions, N, T): 0 where a sequence has ended
    lengths: Tensor  # (N,)

    @property
    def predicted(self) -> Tensor:
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


def readings(run: Trained) -> list[Reading]:
    """What each of the run's models predicts of the test data, read once."""
    if None not in run.readings:
        run.readings[None] = [read(model, run.test) for model in run.models]
    return run.readings[None]


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
    found = readings(run) if max_depth is None else [read(model, run.test, max_depth) for model in run.models]
    return [((each.predicted == run.test.target).double().mean().item(), each.mean_depth) for each in found]


def classes(run: Trained) -> list[str]:
    return _names(run.recipe.data, "classes", run.recipe.data.output_size, "class")


def signals(run: Trained) -> list[str]:
    return _names(run.recipe.data, "signals", run.recipe.data.input_size, "signal")


def _names(data: object, attribute: str, number: int, otherwise: str) -> list[str]:
    """Those that the data has itself, and numbers from 1 on where it has none."""
    names = getattr(data, attribute, None)
    return [f"{otherwise} {index}" for index in range(1, number + 1)] if names is None else list(map(str, names))


def confusion_matrix(predicted: Tensor, target: Tensor, number: int) -> list[list[int]]:
    """How many of each class were predicted as each, [true][predicted]."""
    counts = torch.bincount(target * number + predicted, minlength=number**2)
    matrix: list[list[int]] = counts.view(number, number).tolist()
    return matrix


def confusion_by_seed(run: Trained) -> list[list[list[int]] | None]:
    """The confusion matrices for a row of a results file: one a seed, None where there is no model."""
    if not run.has_weights:
        return [None] * len(run.recipe.seeds)
    target, number = run.test.target, len(classes(run))
    found = {
        seed: confusion_matrix(reading.predicted, target, number)
        for seed, reading in zip(run.seeds, readings(run), strict=True)
    }
    return [found.get(seed) for seed in run.recipe.seeds]


def confusion(run: Trained) -> Confusion:
    return Confusion(run.label, classes(run), [matrix for matrix in confusion_by_seed(run) if matrix is not None])


def class_depth(run: Trained) -> ClassDepth:
    """How much of each class that occurs is predicted correctly, and the depth spent on it, over all seeds."""
    target = run.test.target
    found = {name: target == index for index, name in enumerate(classes(run)) if (target == index).any()}
    names, of_class = list(found), list(found.values())
    accuracy, depth = [], []  # [seed][class]
    for reading in readings(run):
        right = (reading.predicted == target).double()  # (N,)
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


def windows(run: Trained) -> list[Window]:
    """Test sequences as the run's first model reads them, chosen as `CHOSEN` says."""
    reading, target = readings(run)[0], run.test.target
    right = reading.predicted == target
    chosen: list[int] = []
    for index in range(len(classes(run))):
        chosen += ((target == index) & right).nonzero().flatten()[:1].tolist()
    sure = torch.where(right, -math.inf, reading.probability.amax(-1))
    surest = sure.argsort(descending=True, stable=True)[:MISTAKES].tolist()
    chosen += [index for index in surest if not right[index]]
    return [_window(run, reading, index) for index in chosen]


def _window(run: Trained, reading: Reading, index: int) -> Window:
    test, names, channels = run.test, classes(run), signals(run)
    predicted, end = int(reading.predicted[index]), int(reading.lengths[index])
    frame = test.x.size(-1) // len(channels)  # time steps that the network reads as one
    return Window(
        label=run.label,
        names=channels,
        signals=test.x[index, :end].unflatten(-1, (frame, len(channels))).flatten(0, 1).tolist(),
        depth=reading.depth[:, index, :end].double().mean(0).repeat_interleave(frame).tolist(),
        true=names[int(test.target[index])],
        predicted=names[predicted],
        probability=reading.probability[index, predicted].item(),
        layers=run.recipe.network.num_layers,
        frame=frame,
    )
