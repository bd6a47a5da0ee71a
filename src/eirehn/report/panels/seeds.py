"""Every seed of every row beside the paper's figure and the floor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..content import Report
from ..numbers import measured, printed
from ..palette import FLOOR, INK, PAPER, Palette
from ..table import Row
from .panel import LARGE, Panel, axis_label, canvas, least_shown


def seeds_panel(rows: Sequence[Row], floor: float, report: Report, palette: Palette) -> Panel:
    figure, (ax,) = canvas((LARGE[0], 0.75 + 0.235 * len(rows)), font=9.0)
    scale = report.scale
    shown: list[float] = []
    for y, row in enumerate(rows):
        colour, marker = palette[row.model]
        values = [value * scale for value in row.values if math.isfinite(value)]
        ax.scatter(values, [y] * len(values), s=14, color=colour, alpha=0.45, linewidths=0, zorder=3)
        if math.isfinite(row.mean):
            ax.plot(row.mean * scale, y, marker, color=colour, markersize=7, markeredgecolor=PAPER, zorder=4)
        if math.isfinite(row.paper):
            ax.plot(row.paper * scale, y, "|", color=INK, markersize=11, markeredgewidth=1.8, zorder=5)
        shown += [*values, *(v * scale for v in (row.mean, row.paper) if math.isfinite(v))]
    if math.isfinite(floor):
        ax.axvline(floor * scale, color=FLOOR, linewidth=1.2, linestyle=(0, (4, 2)), zorder=2)
        shown.append(floor * scale)
    if shown:
        # A seed far off would press all others together; it leaves the figure and stands in the table.
        if report.lower_is_better:
            low, high = min(shown), min(max(shown), 2.5 * float(np.percentile(shown, 90)))
        else:
            low, high = least_shown(shown, 10), max(shown)
        margin = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
        ax.set_xlim(low - margin, high + margin)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_yticks(range(len(rows)), [row.label for row in rows])
    for label in ax.get_yticklabels():
        label.set_parse_math(False)
    ax.grid(False, axis="y")
    ax.set_xlabel(axis_label(report.metric_name, report.metric_unit))
    words = [_words(row, scale) for row in rows]
    if math.isfinite(floor):
        words.append(f"floor {measured(floor * scale)}")
    return Panel("", figure, f"{report.metric_name} of every seed, by row. " + "; ".join(words) + ".")


def _words(row: Row, scale: float) -> str:
    ours = measured(row.mean * scale) if math.isfinite(row.mean) else "diverged"
    paper = f", paper {printed(row.paper * scale)}" if math.isfinite(row.paper) else ""
    return f"{row.label}: ours {ours}{paper}"
