"""The report of trained language models."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..models import ELASTIC, FIXED
from ..report.content import Curve, Report, TableRow
from ..report.published import published
from ..report.tables import METRICS
from ..training.folder import RunFolder
from ..training.recipe import Recipe
from . import analysis, reading
from .analysis import Trained
from .results import paper_figure

task = "Trained to model language."
figures = ("early", "histograms", "frequencies", "positions")
"""Those of a report that the results file keeps; not passages, as a text may be such that none may be passed on."""
TABLE_4 = {
    "LSTM (Zaremba 2014)": "ptb-lstm-1500",
    "Pointer Sentinel (Merity 2016)": "ptb-lstm-650-pointer",
    "RHN depth 10 (Zilly 2016)": "ptb-rhn-830-r10",
    "EI-REHN-1000D": "ptb-ei-rehn-1000-r4",
    "EI-REHN-1200D": "ptb-ei-rehn-1200-r4",
}
"""The recipe of each row; its ensemble of LSTMs has none."""


def about(recipes: Sequence[Recipe]) -> dict[str, Any]:
    """What there is to say of the data in a results file: how a figure of theirs is come by."""
    return {"evaluation": "perplexity of the whole text, read from end to end in one column"}


def complete(results: dict[str, Any], runs: Sequence[Trained]) -> None:
    """Adds how each row was learned, epoch by epoch, and what that took."""
    for row, run in zip(results["rows"], runs, strict=True):
        curve = analysis.learning_curve(run.folder)
        row["gpu_hours"] = _result(run).get("gpu_hours")
        row["learning_curve"] = {
            name: [[round(value, 4) for value in member] for member in values]
            for name, values in (("train_loss", curve.loss), ("validation_perplexity", curve.validation))
            if values is not None
        }


def content(
    title: str, summary: str, results: dict[str, Any], runs: Sequence[Trained], notice: str | None = None
) -> Report:
    """The report of these runs, with as many of its figures as they allow."""
    alive = [run for run in runs if run.models]
    deep = [run for run in alive if run.recipe.network.kind in FIXED + ELASTIC]
    best = best_of_each(deep)
    shown = [run for run in deep if run in best or run.recipe.optimisation.price]
    elastic = [run for run in shown if run.recipe.network.kind in ELASTIC]
    tokens = reading.tokens_to_read(shown) if shown else 0
    return Report(
        title=title,
        summary=summary,
        results=results,
        notice=notice,
        curves=[timed(run) for run in runs],
        histograms=[reading.histogram(run, tokens) for run in elastic],
        frequencies=[reading.by_frequency(run, tokens) for run in elastic],
        positions=[reading.by_place(run, tokens) for run in elastic],
        passages=reading.passages(_most_varied(elastic, tokens), tokens) if elastic else (),
        early=[reading.early_curve(run, tokens) for run in shown],
        tables=tables(runs) if runs[0].recipe.data.kind == "ptb" else (),
        measured_on=reading.what_was_read(shown[0], tokens) if shown else "",
        loss_name="training loss (nats a token, with dropout)",
        **METRICS["perplexity"]._asdict(),
    )


def timed(run: Trained) -> Curve:
    """The learning curve, with the time it took: epochs are alike."""
    curve, result = analysis.learning_curve(run.folder), _result(run)
    each = result["seconds"] / curve.epochs[-1]
    return replace(curve, seconds=[each * epoch for epoch in curve.epochs])


def best_of_each(runs: Sequence[Trained]) -> list[Trained]:
    """Of each kind of network, trained without a price on depth, the run that validation finds best."""
    best: dict[str, Trained] = {}
    for run in sorted(runs, key=_validation):
        if not run.recipe.optimisation.price:
            best.setdefault(run.recipe.network.kind, run)
    return list(best.values())


def tables(runs: Sequence[Trained]) -> list[TableRow]:
    """Tables 3 and 4 of the paper, ours beside their rows, and after them what they have no row for."""
    ours = {run.recipe.name: run for run in runs if paper_figure(run.recipe) is not None}
    printed, used, rows = published(), set(), []
    for kind, name in (("RHN", "rhn"), ("EIREHN", "ei-rehn")):
        table = printed["ptb_test_perplexity_by_depth_hidden_1200"][kind]
        sizes = table["parameters_millions"]
        for index, depth in enumerate(table["depth"]):
            used.add(recipe := f"ptb-{name}-1200-r{depth}")
            size = sizes[index] if isinstance(sizes, list) else sizes
            model = f"{name.upper()}-1200, depth {depth}"
            figure = table["perplexity"][index]
            rows.append(TableRow("Table 3: by depth", model, size, None, figure, *_figures(ours.get(recipe))))
    for row in printed["ptb_comparison"]:
        recipe = TABLE_4.get(row["model"], "")
        used.add(recipe)
        size = None if row["size"] is None else float(row["size"].removesuffix("M"))
        figures = _figures(ours.get(recipe))
        rows.append(TableRow("Table 4: beside others", row["model"], size, row["valid"], row["test"], *figures))
    for run in runs:
        if run.recipe.name not in used or run.recipe.name not in ours:
            millions = _result(run)["parameters"] / 1e6
            rows.append(TableRow("Ours besides", run.label, millions, None, None, *_figures(run)))
    return rows


def _figures(run: Trained | None) -> tuple[float | None, float | None]:
    """Perplexity on validation and test data, means over the seeds that have one."""
    if run is None:
        return None, None
    result = _result(run)
    found = [
        [value for value in values or () if value is not None]
        for values in (result.get("best_validation"), result["values"])
    ]
    validation, test = (statistics.fmean(values) if values else None for values in found)
    return validation, test


def _validation(run: Trained) -> float:
    validation, _ = _figures(run)
    return float("inf") if validation is None else validation


def _result(run: Trained) -> dict[str, Any]:
    result = RunFolder(run.folder).read_result()
    assert result is not None
    return result


def _most_varied(runs: Sequence[Trained], tokens: int) -> Trained:
    """The run whose depths differ most from word to word, by count or else by its gates: it is worth looking at."""

    def spread(run: Trained) -> tuple[float, float]:
        first = reading.readings(run, tokens)[0]
        effective = 0.0 if first.effective is None else first.effective.mean(0).std().item()
        return first.depth.double().mean(0).std().item(), effective

    return max(runs, key=spread)
