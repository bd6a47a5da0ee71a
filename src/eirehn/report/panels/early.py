"""The early-improving curve: the metric when depth is capped at inference."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..content import EarlyCurve, Report
from ..numbers import measured
from ..palette import FLOOR, Palette
from .depth import DASHES
from .panel import LARGE, Panel, array, axis_label, canvas, positive, scale_y, whole_x


def early_panel(curves: Sequence[EarlyCurve], floor: float, report: Report, palette: Palette) -> Panel:
    figure, (ax,) = canvas(LARGE)
    words = []
    for index, curve in enumerate(curves):
        colour, marker = palette[curve.label]
        caps, mean = array(curve.caps), array(curve.mean) * report.scale
        if curve.std is not None:
            std = np.nan_to_num(array(curve.std)) * report.scale
            # On a log scale a band that reaches below zero has no lower edge to draw.
            low = np.maximum(mean - std, 0.2 * mean) if report.lower_is_better else mean - std
            ax.fill_between(caps, low, mean + std, color=colour, alpha=0.16, linewidth=0)
        dash = DASHES[index % len(DASHES)]
        ax.plot(caps, mean, color=colour, linewidth=1.8, linestyle=dash)
        ax.plot(caps, mean, marker, color=colour, markersize=5)
        words.append(
            f"{curve.label}: {measured(mean[0])} with at most {curve.caps[0]}, "
            f"{measured(mean[-1])} with at most {curve.caps[-1]}"
        )
    if math.isfinite(floor):
        ax.axhline(floor * report.scale, color=FLOOR, linewidth=1.0, linestyle=(0, (1, 1.5)))
    values = positive(value * report.scale for curve in curves for value in array(curve.mean))
    if values and report.lower_is_better and max(values) > 4 * min(values):
        least = min([*values, *positive([floor * report.scale])])
        scale_y(ax, 0.85 * least, 1.25 * max(values), log=True)
    if report.metric_unit == "%":
        ax.set_ylim(max(ax.get_ylim()[0], 0.0), min(ax.get_ylim()[1], 100.0))
    ax.set(xlabel="inner steps allowed at most", ylabel=axis_label(report.metric_name, report.metric_unit))
    whole_x(ax)
    return Panel("", figure, f"{report.metric_name} against the cap on depth. " + "; ".join(words) + ".")
