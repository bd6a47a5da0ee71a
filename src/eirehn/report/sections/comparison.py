"""The first section: our figures beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..content import Report
from ..elements import escape, figure_block, key
from ..numbers import measured, printed, with_spread
from ..palette import FLOOR, INK, Palette
from ..panels.seeds import seeds_panel
from ..table import Row, floor_of, results_table
from .results import results


def tiles(report: Report) -> str:
    """The figures a reader looks for first."""
    rows = results_table(report.results, lower_is_better=report.lower_is_better)
    floor = floor_of(report.results) * report.scale
    shown = []
    for row in rows:
        if row.best:
            seeds = f"{len(row.values)} seed{'' if len(row.values) == 1 else 's'}"
            value = with_spread(row.mean * report.scale, row.std * report.scale)
            shown.append(("Our best", value, f"{row.label}, {seeds}"))
    shown += [("The paper’s best", printed(row.paper * report.scale), row.label) for row in rows if row.paper_best]
    if math.isfinite(floor):
        shown.append(("Floor", measured(floor), "no predictor does better"))
    if not shown:
        return ""
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd>{escape(note)}</dd></div>"
        for name, value, note in shown
    )
    unit = f", {report.metric_unit}" if report.metric_unit else ""
    return f'<dl class="tiles">{cells}</dl><p class="unit">{escape(report.metric_name + unit)}</p>'


def comparison(report: Report, palette: Palette) -> str:
    rows = results_table(report.results, lower_is_better=report.lower_is_better)
    floor = floor_of(report.results)
    keys = [key("one seed", INK, dash="", marker="o"), key("our mean, the larger shape", INK, dash="", marker="s")]
    if any(math.isfinite(row.paper) for row in rows):
        keys.append(key("the paper", INK, dash="", marker="|"))
    if math.isfinite(floor):
        keys.append(key("floor", FLOOR, dash=(0, (4, 2))))
    panel = seeds_panel(rows, floor, report, palette)
    return (
        f"<p>{escape(_lead(rows, floor, report))}</p>"
        + results(rows, floor, report, palette)
        + _notes(rows)
        + figure_block("seeds", [panel], _caption(rows, report, floor), keys=keys, layout="one")
    )


def _lead(rows: Sequence[Row], floor: float, report: Report) -> str:
    unit = f", {report.metric_unit}" if report.metric_unit else ""
    metric = report.metric_name[:1].upper() + report.metric_name[1:]
    lead = (
        f"{metric}{unit}: mean ± standard deviation over the seeds, each at the "
        f"{'last epoch' if all(row.at_last_epoch for row in rows) else 'epoch that validation chose'}. "
        f"{'Lower' if report.lower_is_better else 'Higher'} is better; the best is bold."
    )
    if math.isfinite(floor):
        lead += f" The floor, {measured(floor * report.scale)}, is what the best possible predictor is left with."
    recipes = {row.recipe for row in rows}
    if len(recipes) == 1 and any(recipes):
        lead += f" Recipe of all rows: {recipes.pop()}."
    return lead


def _notes(rows: Sequence[Row]) -> str:
    notes = []
    if any(row.diverged for row in rows):
        notes.append("A row with a diverged seed is never the best one, whatever the others reached.")
    if any(math.isfinite(row.final_mean) and not row.at_last_epoch for row in rows):
        notes.append("“Last epoch” is the mean without choosing an epoch by validation.")
    return f'<p class="note">{escape(" ".join(notes))}</p>' if notes else ""


def _caption(rows: Sequence[Row], report: Report, floor: float) -> str:
    words = "Every seed by itself. "
    compared = [row for row in rows if math.isfinite(row.difference)]
    if compared:
        better = sum((row.difference < 0) == report.lower_is_better and row.difference != 0 for row in compared)
        words += (
            f"Where the dots lie {'left' if report.lower_is_better else 'right'} of the upright stroke, ours is "
            f"better than the paper: {better} of {len(compared)} rows by the mean. "
        )
    if math.isfinite(floor):
        words += "What is left between the dots and the dashed line is all that a model can still win."
    return words
