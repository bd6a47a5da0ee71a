"""Layers compared: the table, best layer first, and what it says in a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .tables import METRICS, aligned, as_float, count, measured, with_spread

DEVICES = {"cpu": "CPU", "cuda": "GPU"}


def verdict(results: Mapping[str, Any]) -> str:
    """Which layer is first, and which are within one standard error of it, in one sentence."""
    first, *others = ranked(results)
    alike = [each["label"] for each in others if abs(each["mean"] - first["mean"]) <= _error(first, each)]
    if not math.isfinite(first["mean"]):
        return "All layers diverged."
    if not alike:
        return f"{first['label']} is first, by more than one standard error."
    last = f"{', '.join(alike[:-1])} and {alike[-1]}" if len(alike) > 1 else alike[0]
    return (
        f"{first['label']} is first; {last} {'is' if len(alike) == 1 else 'are'} within one standard error of it."
    )


def ranked(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Rows, best first; those with a diverged seed last."""
    sign = 1 if METRICS[results["rows"][0]["metric"]].lower_is_better else -1
    return sorted(results["rows"], key=lambda row: sign * row["mean"] if math.isfinite(row["mean"]) else math.inf)


def _error(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Standard error of the difference of two means."""
    return math.sqrt(sum((each["std"] or 0.0) ** 2 / len(each["values"]) for each in (one, other)))


def comparison_table(results: Mapping[str, Any]) -> str:
    """The table for a README or a terminal, best layer first, and what it says in a sentence."""
    metric = METRICS[results["rows"][0]["metric"]]
    there = [name for name in DEVICES if all(name in line["step_ms"] for line in results["rows"])]
    times = [f"ms a step, {DEVICES[name]}" for name in there]
    lines = [["layer", "parameters", metric.metric_name, "mean depth", *times]]
    for line in ranked(results):
        shown = with_spread(line["mean"] * metric.scale, as_float(line["std"]) * metric.scale)
        times = [measured(line["step_ms"][name], 1) for name in there]
        lines.append([line["label"], count(line["parameters"]), shown, measured(line["depth"], 2), *times])
    for line in results["references"]:
        shown = with_spread(line["mean"] * metric.scale, as_float(line["std"]) * metric.scale)
        lines.append([line["label"], count(None), shown, count(None), *(count(None) for _ in there)])
    unit = f" ({metric.metric_unit})" if metric.metric_unit else ""
    seeds = len(results["rows"][0]["values"])
    note = (
        f"{metric.metric_name}{unit}, mean ± standard deviation of {seeds} seeds; {results['epochs']} epochs, "
        f"{len(results['rows'][0]['trials'])} trials each. {verdict(results)}"
    )
    if results["quick"]:
        note += " Quick run: it says nothing about the layers."
    return f"{aligned(lines)}\n\n{note}\n"
