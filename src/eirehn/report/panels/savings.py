"""What elastic depth saves: the metric against what it costs, in inner steps and in time."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from ..content import Report, Saving
from ..numbers import as_float, measured
from ..palette import FLOOR, PAPER, Palette
from .labels import Label, Point, place_labels
from .panel import LARGE, Panel, axis_label, canvas

_FAMILY = re.compile(r"[\s,(]+(?=(?:price|depth)\b)", re.IGNORECASE)
SHORT = 0.1
"""A bar of at most this share of the figure is all but hidden by its mark, and no label need avoid it."""
_POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def savings_panels(savings: Sequence[Saving], floor: float, report: Report, palette: Palette) -> list[Panel]:
    drawn = [saving for saving in savings if math.isfinite(as_float(saving.mean))]
    return [
        _panel("Against inner steps", drawn, _depth, "mean inner steps a time step", floor, report, palette),
        _panel("Against time", drawn, _time, "milliseconds, measured", floor, report, palette),
    ]


def price_text(price: float) -> str:
    if price == 0 or 1e-2 <= price < 1e4:
        return f"{price:g}"
    digits, power = f"{price:.2e}".split("e")
    head = "" if float(digits) == 1 else f"{float(digits):g}·"
    return f"{head}10{str(int(power)).translate(_POWERS)}"


def _depth(saving: Saving) -> float:
    return float(saving.depth)


def _time(saving: Saving) -> float:
    return float(saving.milliseconds)


def _panel(
    title: str,
    savings: Sequence[Saving],
    cost: Callable[[Saving], float],
    xlabel: str,
    floor: float,
    report: Report,
    palette: Palette,
) -> Panel:
    figure, (ax,) = canvas(LARGE)
    lines: list[list[Point]] = []
    height = np.ptp([float(saving.mean) * report.scale for saving in savings]) if savings else 0.0
    for group in dict.fromkeys(map(family, savings)):
        members = sorted((saving for saving in savings if family(saving) == group), key=cost)
        elastic = group[0] == "elastic"
        colour, marker = palette[members[0].label]
        points = [(cost(saving), float(saving.mean) * report.scale) for saving in members]
        x, y = zip(*points, strict=True)
        lines.append(points)
        for saving, point in zip(members, points, strict=True):
            std = as_float(saving.std) * report.scale
            if math.isfinite(std):
                bar = [(point[0], point[1] - std), (point[0], point[1] + std)]
                ax.plot(*zip(*bar, strict=True), color=colour, linewidth=0.9, alpha=0.6)
                if std > SHORT * height:
                    lines.append(bar)
        dash = "solid" if elastic else (0, (1.5, 2))
        ax.plot(x, y, color=colour, linestyle=dash, linewidth=1.8 if elastic else 1.1, zorder=3)
        face = colour if elastic else PAPER
        ax.plot(x, y, marker, color=colour, markerfacecolor=face, markersize=6, markeredgewidth=1.4, zorder=4)
    if math.isfinite(floor):
        ax.axhline(floor * report.scale, color=FLOOR, linewidth=1.0, linestyle=(0, (1, 1.5)))
    ax.margins(x=0.1, y=0.14)
    ax.set(xlabel=xlabel, ylabel=axis_label(report.metric_name, report.metric_unit))
    ax.set_xlim(left=0)
    if savings:
        below = {"elastic": report.lower_is_better, "fixed": not report.lower_is_better}
        labels = [
            Label(
                _beside(saving),
                (cost(saving), float(saving.mean) * report.scale),
                palette[saving.label].colour,
                below[saving.group],
            )
            for saving in sorted(savings, key=lambda saving: saving.group)
        ]
        place_labels(ax, labels, lines)
    words = "; ".join(f"{s.label}: {measured(float(s.mean) * report.scale)} at {cost(s):.3g}" for s in savings)
    return Panel(title, figure, f"{report.metric_name} against {xlabel}. {words}.")


def family(saving: Saving) -> tuple[str, str]:
    """What a point is joined to: its label up to price or depth, `RHN-20` of `RHN-20, depth 3`."""
    return saving.group, _FAMILY.split(saving.label, maxsplit=1)[0].strip() or saving.label


def _beside(saving: Saving) -> str:
    """What stands at a point: the price, or what its label says beyond its family, which the colour tells."""
    if saving.price is not None:
        return price_text(saving.price) if saving.price else "no price"
    return saving.label.removeprefix(family(saving)[1]).strip(" ,()") or saving.label
