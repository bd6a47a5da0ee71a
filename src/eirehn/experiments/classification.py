"""The report of trained classifiers: accuracy, confusion and depth on test data."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..report.content import ClassDepth, Confusion, Window
from .results import spread
from .sequences import depths, names, parameters, readings, shared_parts, window
from .trained import Trained

__all__ = ["depths", "parameters"]

TASK = "Trained to classify sequences."
KEPT = ("early", "savings", "histograms", "class_depths")
"""The parts of a report that the results file keeps."""

MISTAKES = 2
"""Wrongly classified sequences that are shown."""
CHOSEN = (
    "Shown are the first sequence of each class that is predicted correctly, and the wrong predictions with the "
    "highest probability."
)


def about(runs: Sequence[Trained]) -> dict[str, Any]:
    return {"classes": classes(runs[0])}


def about_row(run: Trained) -> dict[str, Any]:
    return {"confusion": confusion_by_seed(run)}


def parts(runs: Sequence[Trained]) -> dict[str, Any]:
    """The parts of the report of these runs."""
    shared, largest, deep = shared_parts(runs, accuracies_and_depths, windows)
    return {
        **shared,
        "confusions": [confusion(run) for run in largest],
        "class_depths": [class_depth(run) for run in deep],
        "windows_chosen": CHOSEN,
        "loss_name": "training loss (cross-entropy)",
    }


def more(run: Trained) -> dict[str, list[float]]:
    """Metrics beside the accuracy, a value for each seed."""
    return {
        "macro F1 (%)": [
            math.nan if matrix is None else 100 * Confusion(run.label, classes(run), [matrix]).macro_f1
            for matrix in confusion_by_seed(run)
        ]
    }


def baseline(run: Trained) -> dict[str, Any]:
    """Predicting the most frequent class of the training data for every sequence."""
    found, target = classes(run), run.test.target
    majority = int(run.recipe.data.load().train.target.bincount(minlength=len(found)).argmax())
    matrix = confusion_matrix(torch.full_like(target, majority), target, len(found))
    constant = Confusion("", found, [matrix])
    return {
        "label": f"majority class: always “{found[majority]}”",
        "value": np.trace(constant.summed) / len(target),
        "more": {"macro F1 (%)": 100 * constant.macro_f1},
    }


def accuracies_and_depths(run: Trained, max_depth: int | None = None) -> list[tuple[float, float]]:
    """The accuracy and the mean depth of each of the run's models."""
    found = readings(run, max_depth)
    return [((each.predicted == run.test.target).double().mean().item(), each.mean_depth) for each in found]


def classes(run: Trained) -> list[str]:
    return names(run.recipe.data, "classes", run.recipe.data.output_size, "class")


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
    """The accuracy on each class that occurs and the depth spent on it, over all seeds."""
    target = run.test.target
    found = {name: target == index for index, name in enumerate(classes(run)) if (target == index).any()}
    of_class = list(found.values())
    accuracy, depth = [], []  # [seed][class]
    for reading in readings(run):
        right = (reading.predicted == target).double()  # (N,)
        accuracy.append([right[which].mean().item() for which in of_class])
        depth.append([reading.spent[which].mean().item() for which in of_class])
    several = len(run.models) > 1
    return ClassDepth(
        label=run.label,
        classes=list(found),
        accuracy=[statistics.fmean(seeds) for seeds in zip(*accuracy, strict=True)],
        depth=[statistics.fmean(seeds) for seeds in zip(*depth, strict=True)],
        count=[int(which.sum()) for which in of_class],
        accuracy_std=[spread(seeds) or 0.0 for seeds in zip(*accuracy, strict=True)] if several else None,
        depth_std=[spread(seeds) or 0.0 for seeds in zip(*depth, strict=True)] if several else None,
        layers=run.recipe.network.num_layers,
    )


def windows(run: Trained) -> list[Window]:
    """Test sequences as the run's first model reads them, chosen as `CHOSEN` says."""
    reading, target, found = readings(run)[0], run.test.target, classes(run)
    predicted, probability = reading.predicted, reading.probability.amax(-1)  # (N,) each
    right = predicted == target
    chosen: list[int] = []
    for index in range(len(found)):
        chosen += ((target == index) & right).nonzero().flatten()[:1].tolist()
    order = torch.where(right, -math.inf, probability).argsort(descending=True, stable=True)
    chosen += [index for index in order[:MISTAKES].tolist() if not right[index]]
    return [
        window(run, reading, at, found[target[at]], found[predicted[at]], probability[at].item()) for at in chosen
    ]
