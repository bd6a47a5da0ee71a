"""The table of results and the paper's, and the format of numbers in the page, the terminal and the README."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from .content import Searched, Tried

MISSING = "–"
MINUS = "−"
NAMES = {"EIREHN": "EI-REHN"}
DEVICES = {"cpu": "CPU", "cuda": "GPU"}


class Metric(NamedTuple):
    """The name of a metric and how its stored values are shown: multiplied by `scale`, with the unit."""

    metric_name: str
    metric_unit: str
    lower_is_better: bool
    scale: float

    @property
    def on_validation(self) -> str:
        return self.metric_name.removeprefix("test ")


METRICS = {
    "mse": Metric("test MSE", "×10⁻³", True, 1e3),
    "accuracy": Metric("test accuracy", "%", False, 100.0),
    "perplexity": Metric("test perplexity", "", True, 1.0),
}
"""By the name in a results file, where values are stored as measured: an accuracy is a fraction there, and shown as
a percentage."""


def metric_of(results: Mapping[str, Any]) -> Metric:
    """The metric that all rows of a results file share; mean squared error if there are no rows."""
    names = {row["metric"] for row in results.get("rows", ())} or {"mse"}
    if len(names) > 1:
        raise ValueError(f"the rows of one table must have one metric, got: {', '.join(sorted(names))}")
    return METRICS[names.pop()]


def as_float(value: object) -> float:
    """NaN for None, the value of a diverged run."""
    return math.nan if value is None else float(value)  # type: ignore[arg-type]


def decimals(value: float) -> int:
    if 0 < abs(value) < 0.01:  # three significant digits
        return 2 - math.floor(math.log10(abs(value)))
    return 3 if abs(value) < 10 else 2 if abs(value) < 1000 else 0


def measured(value: float, places: int | None = None) -> str:
    if not math.isfinite(value):
        return MISSING
    text = f"{value:.{decimals(value) if places is None else places}f}"
    return text.replace("-", MINUS)


def with_spread(mean: float, std: float) -> str:
    """`0.571 ± 0.009`; the mean alone without a standard deviation."""
    text = measured(mean)
    return f"{text} ± {measured(std, decimals(mean))}" if math.isfinite(std) and math.isfinite(mean) else text


def printed(value: float) -> str:
    """A published value: without trailing zeros after the second digit."""
    text = measured(value)
    return text[:-1] if "." in text and text.endswith("0") and len(text.split(".")[1]) == 3 else text


def signed(value: float, beside: float) -> str:
    """A difference, with as many digits as the value `beside`."""
    if not math.isfinite(value):
        return MISSING
    text = measured(abs(value), decimals(beside))
    return ("+" if value > 0 else MINUS if value < 0 else "±") + text


def percent(share: float) -> str:
    if not math.isfinite(share):
        return MISSING
    places = 0 if abs(share) >= 0.01 else 1
    return ("+" if share > 0 else MINUS if share < 0 else "±") + f"{100 * abs(share):.{places}f} %"


def count(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}".replace(",", " ")


def duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return MISSING
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def or_diverged(mean: float, std: float = math.nan) -> str:
    return with_spread(mean, std) if math.isfinite(mean) else "diverged"


def or_missing(value: object) -> str:
    return MISSING if value is None else str(value)


@dataclass(frozen=True)
class Row:
    """One line of the table, in the units of the results file; NaN for missing values."""

    label: str
    """Short and unique in the table: `EI-REHN-20`."""
    model: str
    recipe: str
    layers: int
    max_depth: int | None
    weight_update: str | None
    parameters: int
    values: tuple[float, ...]
    """One for each seed."""
    mean: float
    std: float
    final_mean: float
    """At the last epoch, while `mean` is at the epoch with the best validation result."""
    paper: float
    paper_std: float
    excess: float
    """`mean` minus the floor."""
    seconds: float
    best: bool
    """The best mean of all rows without a diverged seed."""
    paper_best: bool
    stopped: int
    """Seeds whose training stopped because it was unstable."""
    more: Mapping[str, tuple[float, float]]
    """Other metrics, as they are shown: mean and standard deviation over the seeds."""

    @property
    def at_last_epoch(self) -> bool:
        """Whether the result is that of the last epoch, as without validation data."""
        return self.final_mean == self.mean or (math.isnan(self.final_mean) and math.isnan(self.mean))

    @property
    def difference(self) -> float:
        return self.mean - self.paper

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


def results_table(results: Mapping[str, Any]) -> list[Row]:
    """The rows of a results file, grouped by model, in the order of first occurrence."""
    stored = list(results.get("rows", ()))
    models = list(dict.fromkeys(row["model"] for row in stored))
    stored.sort(key=lambda row: models.index(row["model"]))
    sign = 1.0 if metric_of(results).lower_is_better else -1.0
    best = _least([math.nan if _any_diverged(row) else sign * as_float(row["mean"]) for row in stored])
    paper_best = _least([sign * as_float(row["paper"]) for row in stored])
    floor = floor_of(results)
    return [
        Row(
            label=label,
            model=NAMES.get(row["model"], row["model"]),
            recipe=row["recipe"],
            layers=row["layers"],
            max_depth=row["max_depth"],
            weight_update=row["weight_update"],
            parameters=row["parameters"],
            values=tuple(as_float(value) for value in row["values"]),
            mean=as_float(row["mean"]),
            std=as_float(row["std"]),
            final_mean=as_float(row["final_mean"]),
            paper=as_float(row["paper"]),
            paper_std=as_float(row["paper_std"]),
            excess=as_float(row["mean"]) - floor,
            seconds=as_float(row["seconds"]),
            best=index == best,
            paper_best=index == paper_best,
            stopped=len(row.get("stopped_seeds", ())),  # missing in files of older versions
            more={name: _mean_and_std(values) for name, values in row.get("more", {}).items()},
        )
        for index, (row, label) in enumerate(zip(stored, _labels(stored), strict=True))
    ]


def _mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else math.nan


def baseline_of(results: Mapping[str, Any]) -> float:
    return as_float(results.get("baseline", {}).get("value"))


def markdown_table(results: Mapping[str, Any]) -> str:
    """The table for a README or a terminal, in the unit of its metric."""
    rows, metric = results_table(results), metric_of(results)
    floor = floor_of(results) * metric.scale
    head = ["model", "parameters", "seeds", "ours", "paper", "difference"]
    if math.isfinite(floor):
        head.append("over the floor")
    table = aligned([head, *(_markdown_cells(row, metric)[: len(head)] for row in rows)])
    unit = f", {metric.metric_unit}" if metric.metric_unit else ""
    note = f"{metric.metric_name}{unit}; mean ± standard deviation over the seeds."
    if math.isfinite(floor):
        note += f" Floor, which no predictor can beat: {measured(floor)}."
    if any(row.diverged for row in rows):
        note += " A row with a diverged seed is never the best one."
    if results.get("quick"):
        note += " Quick run: not comparable with the paper."
    return f"{table}\n\n{note}\n"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns line up; the first of `lines` is its head, the first column text."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = [_markdown_line(line, widths) for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 1) + (":" if i else "-") for i, width in enumerate(widths)) + "|")
    return "\n".join(text)


def _markdown_cells(row: Row, metric: Metric) -> list[str]:
    scale = metric.scale
    ours = with_spread(row.mean * scale, row.std * scale)
    paper = with_spread_as_printed(row.paper * scale, row.paper_std * scale)
    return [
        row.label,
        count(row.parameters),
        seeds_text(row),
        f"**{ours}**" if row.best else ours,
        f"**{paper}**" if row.paper_best else paper,
        difference_text(row, scale, metric.metric_unit),
        signed(row.excess * scale, row.mean * scale),
    ]


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
    # A percentage of percentages would be misread as percentage points.
    return text if unit == "%" else f"{text} ({percent(row.difference / row.paper)})"


def with_spread_as_printed(mean: float, std: float) -> str:
    return f"{printed(mean)} ± {printed(std)}" if math.isfinite(std) else printed(mean)


def _markdown_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.ljust(width) if i == 0 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in padded) + " |"


def _any_diverged(row: Mapping[str, Any]) -> bool:
    return not all(math.isfinite(as_float(value)) for value in row["values"])


def _least(values: Sequence[float]) -> int | None:
    finite = [(value, index) for index, value in enumerate(values) if math.isfinite(value)]
    return min(finite)[1] if finite else None


def _labels(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The labels of rows, extended by what makes them different."""
    labels = [row["label"] for row in rows]
    for key, text in (
        ("max_depth", "depth {}"),
        ("weight_update", "{}"),
        ("layers", "{} layers"),
        ("recipe", "{}"),
    ):
        for label in [label for label, times in Counter(labels).items() if times > 1]:
            same = [index for index, other in enumerate(labels) if other == label]
            if len({rows[index][key] for index in same}) > 1:
                for index in same:
                    if rows[index][key] is not None:
                        labels[index] += ", " + text.format(rows[index][key])
    return labels


def verdict(results: Mapping[str, Any]) -> str:
    """Which layer is first, and which are within one standard error of it, in one sentence."""
    first, *others = _ranked(results)
    alike = [each["label"] for each in others if abs(each["mean"] - first["mean"]) <= _error(first, each)]
    if not math.isfinite(first["mean"]):
        return "All layers diverged."
    if not alike:
        return f"{first['label']} is first, by more than one standard error."
    last = f"{', '.join(alike[:-1])} and {alike[-1]}" if len(alike) > 1 else alike[0]
    return (
        f"{first['label']} is first; {last} {'is' if len(alike) == 1 else 'are'} within one standard error of it."
    )


def _ranked(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Rows, best first; those with a diverged seed last."""
    sign = 1 if METRICS[results["rows"][0]["metric"]].lower_is_better else -1
    return sorted(results["rows"], key=lambda row: sign * row["mean"] if math.isfinite(row["mean"]) else math.inf)


def _error(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Standard error of the difference of two means."""
    return math.sqrt(sum((each["std"] or 0.0) ** 2 / len(each["values"]) for each in (one, other)))


def comparison_table(results: Mapping[str, Any]) -> str:
    """The table for a README or a terminal, best layer first, and a sentence on it."""
    metric = METRICS[results["rows"][0]["metric"]]
    there = [name for name in DEVICES if all(name in line["step_ms"] for line in results["rows"])]
    times = [f"ms a step, {DEVICES[name]}" for name in there]
    lines = [["layer", "parameters", metric.metric_name, "mean depth", *times]]
    for line in (*_ranked(results), *results["references"]):  # references have a label and a metric alone
        shown = with_spread(line["mean"] * metric.scale, as_float(line["std"]) * metric.scale)
        depth, step_ms = measured(as_float(line.get("depth")), 2), line.get("step_ms", {})
        times = [measured(as_float(step_ms.get(name)), 1) for name in there]
        lines.append([line["label"], count(line.get("parameters")), shown, depth, *times])
    unit = f" ({metric.metric_unit})" if metric.metric_unit else ""
    seeds = len(results["rows"][0]["values"])
    note = (
        f"{metric.metric_name}{unit}, mean ± standard deviation of {seeds} seeds; {results['epochs']} epochs, "
        f"{len(results['rows'][0]['trials'])} trials each. {verdict(results)}"
    )
    if results["quick"]:
        note += " Quick run: the comparison of the layers is not meaningful."
    return f"{aligned(lines)}\n\n{note}\n"


LISTED = 10
"""Trials in the table of the terminal."""


def search_table(search: Searched) -> str:
    """The best trials of a search and their settings, for a terminal."""
    unit = f" ({search.metric.metric_unit})" if search.metric.metric_unit else ""
    lines = [trial_cells(search, each) for each in search.ranked[:LISTED]]
    head = ["trial", f"{search.metric.on_validation}{unit}", "epochs", *map(title, search.fields)]
    listed = f", of which {LISTED} are listed" if len(search.trials) > LISTED else ""
    name = search.metric.on_validation
    return f"{aligned([head, *lines])}\n\n{search}{listed}; {name} on validation data, at the best epoch.\n"


def trial_cells(search: Searched, trial: Tried) -> list[str]:
    """Number, result, epochs and settings of a trial."""
    value = trial.error or trial.state
    if trial.value is not None:
        ended = "" if trial.state == "complete" else f", {trial.state}"
        value = measured(search.metric.scale * trial.value) + ended
    settings = [shown(trial.settings[name]) if name in trial.settings else MISSING for name in search.fields]
    return [str(trial.number), value, str(trial.epochs), *settings]


def title(name: str) -> str:
    """The name of a field in a heading."""
    return name.rpartition(".")[2].replace("_", " ")


def shown(value: object) -> str:
    """A value of a field, as it is typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)
