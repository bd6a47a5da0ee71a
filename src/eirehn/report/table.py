"""The table: our figures beside the paper's, and how far each is from the best that can be."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .metric import Metric, metric_of
from .numbers import MISSING, as_float, count, measured, percent, printed, signed, with_spread

NAMES = {"EIREHN": "EI-REHN"}


@dataclass(frozen=True)
class Row:
    """One line of the table, in the units of the results file; NaN stands for what there is not."""

    label: str
    """Short and told apart from every other row's: `EI-REHN-20`."""
    model: str
    recipe: str
    hidden: int | None
    layers: int | None
    max_depth: int | None
    weight_update: str | None
    parameters: int | None
    values: tuple[float, ...]
    """One a seed."""
    mean: float
    std: float
    final_mean: float
    """At the last epoch, where `mean` is at the epoch that validation chose."""
    paper: float
    paper_std: float
    excess: float
    """`mean` over the floor."""
    seconds: float
    best: bool
    """The best mean of all rows of which no seed diverged."""
    paper_best: bool
    stopped: int = 0
    """Seeds whose training stopped because it was unstable."""

    @property
    def at_last_epoch(self) -> bool:
        """Whether no epoch was chosen, as where there is nothing held out to choose by."""
        return self.final_mean == self.mean or (math.isnan(self.final_mean) and math.isnan(self.mean))

    @property
    def difference(self) -> float:
        return self.mean - self.paper

    @property
    def relative(self) -> float:
        return self.difference / self.paper if self.paper else math.nan

    @property
    def diverged(self) -> int:
        return sum(not math.isfinite(value) for value in self.values)

    @property
    def finite_mean(self) -> tuple[float, float]:
        """Mean and standard deviation of the seeds that did not diverge."""
        values = [value for value in self.values if math.isfinite(value)]
        return (float(np.mean(values)), float(np.std(values))) if values else (math.nan, math.nan)


def floor_of(results: Mapping[str, Any]) -> float:
    return as_float(results.get("bayes_floor"))


def results_table(results: Mapping[str, Any], *, lower_is_better: bool = True) -> list[Row]:
    """The rows of a results file, those of one model together, models in the order they first come."""
    stored = _checked_rows(results)
    models = list(dict.fromkeys(row["model"] for row in stored))
    stored = sorted(stored, key=lambda row: models.index(row["model"]))
    sign = 1.0 if lower_is_better else -1.0
    best = _least([math.nan if _any_diverged(row) else sign * as_float(row["mean"]) for row in stored])
    paper_best = _least([sign * as_float(row.get("paper")) for row in stored])
    floor = floor_of(results)
    return [
        Row(
            label=label,
            model=NAMES.get(row["model"], row["model"]),
            recipe=str(row.get("recipe") or ""),
            hidden=row.get("hidden"),
            layers=row.get("layers"),
            max_depth=row.get("max_depth"),
            weight_update=row.get("weight_update"),
            parameters=row.get("parameters"),
            values=tuple(as_float(value) for value in row["values"]),
            mean=as_float(row["mean"]),
            std=as_float(row.get("std")) if len(row["values"]) > 1 else math.nan,
            final_mean=as_float(row.get("final_mean")),
            paper=as_float(row.get("paper")),
            paper_std=as_float(row.get("paper_std")),
            excess=as_float(row["mean"]) - floor,
            seconds=as_float(row.get("seconds")),
            best=index == best,
            paper_best=index == paper_best,
            stopped=len(row.get("stopped_seeds") or ()),
        )
        for index, (row, label) in enumerate(zip(stored, _labels(stored), strict=True))
    ]


def markdown_table(results: Mapping[str, Any], metric: Metric | None = None) -> str:
    """The table for a README or a terminal, in the unit of its metric; where None, that which the rows name."""
    _checked_rows(results)
    metric_name, metric_unit, lower_is_better, scale = metric or metric_of(results)
    rows = results_table(results, lower_is_better=lower_is_better)
    floor = floor_of(results) * scale
    lines = [["model", "parameters", "seeds", "ours", "paper", "difference"]]
    for row in rows:
        ours = with_spread(row.mean * scale, row.std * scale)
        paper = with_spread_as_printed(row.paper * scale, row.paper_std * scale)
        lines.append(
            [
                row.label,
                count(row.parameters),
                seeds_text(row),
                f"**{ours}**" if row.best else ours,
                f"**{paper}**" if row.paper_best else paper,
                difference_text(row, scale, metric_unit),
            ]
        )
    if math.isfinite(floor):
        for line, cell in zip(
            lines, ["over the floor", *(signed(row.excess * scale, row.mean * scale) for row in rows)], strict=True
        ):
            line.append(cell)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = [_markdown_line(line, widths) for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 1) + (":" if i else "-") for i, width in enumerate(widths)) + "|")
    unit = f", {metric_unit}" if metric_unit else ""
    text.append(f"\n{metric_name}{unit}; mean ± standard deviation over the seeds.")
    if math.isfinite(floor):
        text[-1] += f" Floor, which no predictor can beat: {measured(floor)}."
    if any(row.diverged for row in rows):
        text[-1] += " A row with a diverged seed is never the best one."
    if results.get("quick"):
        text[-1] += " Quick run: not comparable with the paper."
    return "\n".join(text) + "\n"


def seeds_text(row: Row) -> str:
    words = [str(len(row.values))]
    if row.diverged:
        words.append(f"{row.diverged} diverged")
    if row.stopped:
        words.append(f"{row.stopped} unstable")
    return ", ".join(words)


def difference_text(row: Row, scale: float, unit: str = "") -> str:
    if not math.isfinite(row.difference):
        return MISSING
    text = signed(row.difference * scale, row.mean * scale)
    # Percent of a percentage would be taken for points.
    return text if unit == "%" else f"{text} ({percent(row.relative)})"


def with_spread_as_printed(mean: float, std: float) -> str:
    return f"{printed(mean)} ± {printed(std)}" if math.isfinite(std) else printed(mean)


def _markdown_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in padded) + " |"


def _checked_rows(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if not isinstance(results, Mapping):
        raise ValueError(f"results must be a mapping, got: {type(results).__name__}")
    rows = results.get("rows", [])
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        raise ValueError(f'results["rows"] must be a list, got: {type(rows).__name__}')
    for index, row in enumerate(rows):
        name = f'results["rows"][{index}]'
        if not isinstance(row, Mapping):
            raise ValueError(f"{name} must be a mapping, got: {type(row).__name__}")
        for key in ("model", "values", "mean"):
            if key not in row:
                raise ValueError(f'{name} must have a "{key}", got only: {", ".join(map(str, row))}')
        if not isinstance(row["model"], str) or not row["model"]:
            raise ValueError(f'{name}["model"] must be text that is not empty, got {row["model"]!r}')
        numbers = {key: row.get(key) for key in ("mean", "std", "final_mean", "paper", "paper_std", "seconds")}
        for seed, value in enumerate(row["values"]):
            numbers[f"values[{seed}]"] = value
        for key, value in numbers.items():
            if value is not None and (isinstance(value, (str, bool)) or not hasattr(value, "__float__")):
                raise ValueError(f"{name}: {key} must be a number or null, got {value!r}")
    return list(rows)


def _any_diverged(row: Mapping[str, Any]) -> bool:
    return not all(math.isfinite(as_float(value)) for value in row["values"])


def _least(values: Sequence[float]) -> int | None:
    finite = [(value, index) for index, value in enumerate(values) if math.isfinite(value)]
    return min(finite)[1] if finite else None


def _labels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A row's own label, or its model and size, and of the rest what it takes to tell all rows apart."""
    labels = [row.get("label") or _name(row) for row in rows]
    for key, text in (
        ("max_depth", "depth {}"),
        ("weight_update", "{}"),
        ("layers", "{} layers"),
        ("recipe", "{}"),
    ):
        twice = {label for label, times in Counter(labels).items() if times > 1}
        for label in twice:
            same = [index for index, other in enumerate(labels) if other == label]
            if len({str(rows[index].get(key)) for index in same}) > 1:
                for index in same:
                    if rows[index].get(key) is not None:
                        labels[index] += ", " + text.format(rows[index][key])
    return labels


def _name(row: Mapping[str, Any]) -> str:
    model = NAMES.get(row["model"], row["model"])
    return f"{model}-{row['hidden']}" if row.get("hidden") is not None else str(model)
