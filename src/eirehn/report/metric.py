"""What is measured: its name, its unit, and which way is better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Metric(NamedTuple):
    """How a stored figure is shown: multiplied by `scale`, with its unit, beside its name.

    The fields are those of `Report`: `Report(…, **metric_of(results)._asdict())`.
    """

    metric_name: str
    metric_unit: str
    lower_is_better: bool
    scale: float


METRICS = {
    "mse": Metric("test MSE", "×10⁻³", True, 1e3),
    "accuracy": Metric("test accuracy", "%", False, 100.0),
    "perplexity": Metric("test perplexity", "", True, 1.0),
}
"""By the name that rows of a results file give it. Results are stored as the task measures them: an accuracy is a
fraction there, and a percentage in tables and figures alone."""


def metric_of(results: Mapping[str, Any]) -> Metric:
    """The metric that all rows of a results file share; the mean squared error where they name none."""
    names = {row.get("metric") or "mse" for row in results.get("rows", ())}
    if len(names) > 1:
        raise ValueError(f"the rows of one table must have one metric, got: {', '.join(sorted(names))}")
    name = names.pop() if names else "mse"
    if name not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}, got {name!r}")
    return METRICS[name]
