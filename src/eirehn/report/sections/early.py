"""How early a model improves."""

from __future__ import annotations

import math

from ..content import Report
from ..elements import figure_block, fold, key, model_key, table
from ..numbers import as_float, or_diverged
from ..palette import FLOOR, Palette
from ..panels.depth import DASHES
from ..panels.early import early_panel
from ..panels.panel import axis_label
from ..table import floor_of


def early(report: Report, palette: Palette) -> str:
    floor = floor_of(report.results)
    caption = (
        "The same trained models, stopped after at most so many inner steps, without training them again. A line "
        "that comes near its end value after one or two inner steps belongs to a model that does the most "
        "important work first: it improves early, and can be cut short when time is short."
    )
    if any(curve.std is not None for curve in report.early):
        caption += " The shade is one standard deviation over the seeds."
    if report.measured_on:
        caption += f" {report.measured_on}"
    keys = [
        model_key(curve.label, palette[curve.label], dash=DASHES[index % len(DASHES)])
        for index, curve in enumerate(report.early)
    ]
    if math.isfinite(floor):
        keys.append(key("floor", FLOOR, dash=(0, (1, 1.5))))
    rows = []
    for curve in report.early:
        spreads = curve.std if curve.std is not None else [math.nan] * len(curve.caps)
        for cap, mean, std in zip(curve.caps, curve.mean, spreads, strict=True):
            text = or_diverged(as_float(mean) * report.scale, as_float(std) * report.scale)
            rows.append([curve.label, str(cap), text])
    head = ["model", "at most", axis_label(report.metric_name, report.metric_unit)]
    data = fold("The points as a table", table(head, rows, "The metric by cap"))
    return figure_block(
        "early", [early_panel(report.early, floor, report, palette)], caption, keys=keys, data=data, layout="one"
    )
