"""The report of a regression on the user's own sequences, in the units of the target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ..data.table import FileData
from ..report.content import Predictions, Window
from ..report.tables import Metric
from .sequences import Reading, readings, shared_parts, window
from .trained import Trained

TASK = "Trained to predict a number for each sequence."
KEPT = ("early", "savings", "histograms")
"""The parts of a report that the results file keeps."""
WINDOWS = 6
CHOSEN = (
    "The test sequences are ordered by their target and divided into equal parts; of each part the one whose depth "
    "varies most is shown."
)


def about(runs: Sequence[Trained]) -> dict[str, Any]:
    return {}


def about_row(run: Trained) -> dict[str, Any]:
    return {}


def parts(runs: Sequence[Trained]) -> dict[str, Any]:
    """The parts of the report of these runs."""
    shared, largest, _ = shared_parts(runs, errors_and_depths, windows)
    return {
        **shared,
        "predictions": [each for run in largest for each in predictions(run)],
        "windows_chosen": CHOSEN,
        "own_metric": metric(_data(runs[0])),
    }


def metric(data: FileData) -> Metric:
    """Results are stored as trained, standardised; of one target they are shown in its own units, squared."""
    if data.output_size > 1:
        return Metric("test MSE, standardised", "", True, 1.0)
    return Metric("test MSE", "", True, data.scaling.target_scale[0] ** 2)


def more(run: Trained) -> dict[str, list[float]]:
    """Metrics beside the mean squared error, a value for each seed."""
    found = [_metrics(_own(run, reading.output), _own(run, run.test.target)) for reading in readings(run)]
    by_seed = dict(zip(run.seeds, found, strict=True)) if run.has_weights else {}
    nothing = dict.fromkeys(_metrics(*[_own(run, run.test.target)] * 2), math.nan)
    return {name: [by_seed.get(seed, nothing)[name] for seed in run.recipe.seeds] for name in nothing}


def baseline(run: Trained) -> dict[str, Any]:
    """Predicting the mean of the training data for every sequence."""
    train, test = run.recipe.data.load().train.target.double(), run.test.target.double()
    mean = train.mean(0).expand_as(test)
    own = _own(run, mean)
    value = f", {own[0].item():.4g}" if own.size(-1) == 1 else ""
    return {
        "label": f"always the training mean{value}",
        "value": (mean - test).square().mean().item(),
        "more": _metrics(own, _own(run, test)),
    }


def errors_and_depths(run: Trained, max_depth: int | None = None) -> list[tuple[float, float]]:
    """The mean squared error, as trained, and the mean depth of each of the run's models."""
    target = run.test.target.double()
    found = readings(run, max_depth)
    return [((each.output - target).square().mean().item(), each.mean_depth) for each in found]


def predictions(run: Trained) -> list[Predictions]:
    """One for each number predicted."""
    true, outputs = _own(run, run.test.target), [_own(run, reading.output) for reading in readings(run)]
    return [
        Predictions(run.label, name, true[:, at].tolist(), [each[:, at].tolist() for each in outputs])
        for at, name in enumerate(targets(run))
    ]


def targets(run: Trained) -> list[str]:
    data = _data(run)
    return [data.target] if data.output_size == 1 else [f"{data.target} {n + 1}" for n in range(data.output_size)]


def windows(run: Trained) -> list[Window]:
    """Test sequences as the run's first model reads them, chosen as `CHOSEN` says."""
    reading = readings(run)[0]
    order = run.test.target[:, 0].argsort(stable=True)  # (N,)
    parts = order.tensor_split(min(WINDOWS, len(order)))
    return [_window(run, reading, max(part.tolist(), key=reading.variety)) for part in parts]


def _window(run: Trained, reading: Reading, at: int) -> Window:
    true, predicted = (_own(run, each[at]) for each in (run.test.target, reading.output))
    shown = [", ".join(f"{value:.4g}" for value in each.tolist()) for each in (true, predicted)]
    return window(run, reading, at, f"{_data(run).target} {shown[0]}", shown[1], None)


def _metrics(predicted: Tensor, true: Tensor) -> dict[str, float]:
    """Of numbers (N, O) in their own units."""
    each = Predictions("", "", true.t().tolist(), [predicted.t().tolist()])
    if true.size(-1) > 1:
        return {"R², mean of the targets": float(each.r2.mean())}
    return {"MAE": float(each.mae.mean()), "R²": float(each.r2.mean())}


def _own(run: Trained, values: Tensor) -> Tensor:
    """In the units of the target."""
    return _data(run).scaling.outputs(values)


def _data(run: Trained) -> FileData:
    assert isinstance(run.recipe.data, FileData)
    return run.recipe.data
