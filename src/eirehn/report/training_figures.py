"""Plots of results and training: every seed, and learning curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from .content import Curve
from .figures import (
    DASHED,
    DASHES,
    LARGE,
    SMALL,
    Floats,
    Panel,
    array,
    axis_label,
    canvas,
    draw_floor,
    least_shown,
    positive,
    scale_y,
    whole_x,
)
from .palette import FLOOR, INK, MUTED, PAPER, style_of
from .tables import Metric, Row, duration, measured, printed

POINTS = 60
"""Most epochs drawn of a curve: more would not be visible and make the page large."""
LABEL = 36
"""Letters in a line of a label."""
UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


def seeds_panel(rows: Sequence[Row], floor: float, metric: Metric, baseline: float = math.nan) -> Panel:
    """Every seed of every row, with the paper's result, the floor and the baseline where there are such."""
    labels = [fill(row.label, LABEL) for row in rows]
    lines = sum(1 + label.count("\n") for label in labels)
    figure, (ax,) = canvas((LARGE[0], 0.75 + 0.235 * lines), font=9.0)
    scale = metric.scale
    shown: list[float] = []
    for y, row in enumerate(rows):
        colour, marker = style_of(row.model)
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
        # A seed far off would compress all others; it is cut off, and in the table.
        if metric.lower_is_better:
            low, high = min(shown), min(max(shown), 2.5 * float(np.percentile(shown, 90)))
        else:
            low, high = least_shown(shown, 10), max(shown)
        if math.isfinite(baseline):  # never cut off
            ax.axvline(baseline * scale, color=MUTED, linewidth=1.2, linestyle=DASHED, zorder=2)
            low, high = min(low, baseline * scale), max(high, baseline * scale)
        margin = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
        ax.set_xlim(low - margin, high + margin)
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_yticks(range(len(rows)), labels, parse_math=False)
    ax.grid(False, axis="y")
    ax.set_xlabel(axis_label(metric.metric_name, metric.metric_unit))
    words = [_row_in_words(row, scale) for row in rows]
    if math.isfinite(floor):
        words.append(f"floor {measured(floor * scale)}")
    if math.isfinite(baseline):
        words.append(f"baseline {measured(baseline * scale)}")
    return Panel("", figure, f"{metric.metric_name} of every seed, by row. {'; '.join(words)}.")


def _row_in_words(row: Row, scale: float) -> str:
    ours = measured(row.mean * scale) if math.isfinite(row.mean) else "diverged"
    paper = f", paper {printed(row.paper * scale)}" if math.isfinite(row.paper) else ""
    return f"{row.label}: {ours}{paper}"


def curve_panels(curves: Sequence[Curve], floor: float, metric: Metric, loss_name: str) -> list[Panel]:
    """One panel for each row of the table, all on one scale."""
    limits, losses = _limits(curves, floor, metric), _loss_limits(curves)
    panels = []
    for curve in curves:
        # A loss that is not the metric has its own scale and is drawn below.
        metric_drawn = curve.validation is not None or curve.train is not None
        both = metric_drawn and curve.loss is not None
        figure, axes = canvas((SMALL[0], 3.1 if both else 2.15), (1.9, 1.0) if both else (1.0,))
        kept = thinned(len(curve.epochs))
        epochs = array(curve.epochs)[kept]
        colour = style_of(curve.label).colour
        if metric_drawn:
            _draw_metric(axes[0], epochs, curve, kept, metric.scale, colour)
            draw_floor(axes[0], floor * metric.scale)
            scale_y(axes[0], *limits, log=metric.lower_is_better)
            axes[0].set_ylabel(axis_label(metric.on_validation, metric.metric_unit))
        if curve.loss is not None:
            style = {"linewidth": 1.3, "linestyle": DASHED} if both else {}
            _draw_seeds(axes[-1], epochs, seeds_of(curve.loss, kept), MUTED if both else colour, **style)
            scale_y(axes[-1], *losses, log=True)
            axes[-1].set_ylabel("loss" if both else loss_name)
        for ax in axes:
            whole_x(ax)
        if both:
            axes[0].tick_params(labelbottom=False)
            figure.align_ylabels()
        axes[-1].set_xlabel("epoch")
        lost = f": {curve.diverged} of {len(curve.seeds)} seeds diverged" if curve.diverged else ""
        panels.append(Panel(curve.label + lost, figure, _curve_in_words(curve, metric.scale)))
    return panels


def depth_panels(curves: Sequence[Curve]) -> list[Panel]:
    spent = [(curve, curve.depth) for curve in curves if curve.depth is not None]
    top = max(float(np.nanmax(array(seed), initial=1.0)) for _, depth in spent for seed in depth)
    panels = []
    for curve, seeds in spent:
        figure, (ax,) = canvas((SMALL[0], 1.5))
        kept = thinned(len(curve.epochs))
        mean = _draw_seeds(ax, array(curve.epochs)[kept], seeds_of(seeds, kept), style_of(curve.label).colour)
        ax.set(xlabel="epoch", ylabel="inner steps", ylim=(0, 1.08 * top))
        whole_x(ax)
        words = f"Mean inner steps a time step of {curve.label} during training: {mean[0]:.2f} to {mean[-1]:.2f}."
        panels.append(Panel(curve.label, figure, words))
    return panels


def time_panel(curves: Sequence[Curve], metric: Metric) -> Panel:
    """The metric on validation data by time, all curves in one plot."""
    figure, (ax,) = canvas(LARGE)
    longest = max(float(curve.seconds[-1]) for curve in curves if curve.seconds is not None)
    name, unit = next((name, unit) for name, unit in UNITS if longest >= 2 * unit or unit == 1.0)
    words = []
    for index, curve in enumerate(curves):
        assert curve.seconds is not None
        assert curve.validation is not None
        kept = thinned(len(curve.epochs))
        time = array(curve.seconds)[kept] / unit
        mean = mean_of_finite(seeds_of(curve.validation, kept) * metric.scale)
        colour, marker = style_of(curve.label)
        ax.plot(time, mean, color=colour, linewidth=1.7, linestyle=DASHES[index % len(DASHES)])
        ax.plot(time[-1], mean[-1], marker, color=colour, markersize=6)
        words.append(f"{curve.label}: {measured(mean[-1])} after {duration(float(curve.seconds[-1]))}")
    scale_y(ax, *_limits(curves, math.nan, metric), log=metric.lower_is_better)
    ax.set_xlim(left=0)
    ax.set(xlabel=f"{name} of training", ylabel=axis_label(metric.on_validation, metric.metric_unit))
    return Panel("", figure, f"{metric.on_validation} on validation data by training time. {'; '.join(words)}.")


def thinned(length: int) -> list[int]:
    """At most `POINTS` indices, the first and last of all among them, denser at the start."""
    if length <= POINTS:
        return list(range(length))
    spread = np.linspace(0.0, 1.0, POINTS) ** 1.4 * (length - 1)
    return sorted({round(float(index)) for index in spread})


def seeds_of(seeds: Sequence[Sequence[float]], kept: list[int]) -> Floats:
    return np.stack([array(seed) for seed in seeds])[:, kept]  # (S, E)


def mean_of_finite(values: Floats) -> Floats:
    """Mean over the seeds (S, E) that have not diverged, NaN if all have."""
    finite = np.isfinite(values)
    number = finite.sum(0)
    total = np.where(finite, values, 0.0).sum(0)
    return np.where(number > 0, total / np.maximum(number, 1), math.nan)


def _draw_seeds(ax: Axes, epochs: Floats, seeds: Floats, colour: str, **mean_style: Any) -> Floats:
    """Draws thin lines and their mean, which it returns."""
    for seed in seeds:
        ax.plot(epochs, seed, color=colour, linewidth=0.6, alpha=0.5)
    mean = mean_of_finite(seeds)
    ax.plot(epochs, mean, color=colour, **{"linewidth": 2.0, **mean_style})
    return mean


def _draw_metric(ax: Axes, epochs: Floats, curve: Curve, kept: list[int], scale: float, colour: str) -> None:
    if curve.validation is not None:
        _draw_seeds(ax, epochs, seeds_of(curve.validation, kept) * scale, colour)
    if curve.train is not None:
        train = mean_of_finite(seeds_of(curve.train, kept) * scale)
        ax.plot(epochs, train, color=MUTED, linewidth=1.1, linestyle=DASHED)


def _limits(curves: Sequence[Curve], floor: float, metric: Metric) -> tuple[float, float]:
    parts = [seeds for curve in curves for seeds in (curve.validation, curve.train) if seeds is not None]
    values = positive(float(value) * metric.scale for seeds in parts for seed in seeds for value in array(seed))
    if not values:
        return math.nan, math.nan
    if not metric.lower_is_better:
        low, high = least_shown(values, 10), max(values)
        margin = 0.05 * (high - low) or 0.05 * high
        return low - margin, high + margin
    # Diverging seeds are cut off: they would compress all others.
    high = min(max(values), 1.5 * float(np.percentile(values, 98)))
    low = min([min(values), *positive([floor * metric.scale])])
    return low * 0.92, high * 1.05


def _loss_limits(curves: Sequence[Curve]) -> tuple[float, float]:
    losses = [curve.loss for curve in curves if curve.loss is not None]
    values = positive(float(value) for seeds in losses for seed in seeds for value in array(seed))
    return (0.9 * min(values), 1.1 * max(values)) if values else (math.nan, math.nan)


def _curve_in_words(curve: Curve, scale: float) -> str:
    parts = []
    if curve.validation is not None:
        parts.append("mean validation from {} to {}".format(*_ends(curve.validation, scale)))
    if curve.train is not None:
        parts.append(f"training at the end {_ends(curve.train, scale)[1]}")
    if curve.loss is not None:
        parts.append("training loss from {} to {}".format(*_ends(curve.loss, 1.0)))
    lost = curve.diverged
    return (
        f"Learning curves of {curve.label}, {len(curve.seeds)} seeds, epochs {curve.epochs[0]} to "
        f"{curve.epochs[-1]}: {', '.join(parts)}." + (f" {lost} diverged." if lost else "")
    )


def _ends(seeds: Sequence[Sequence[float]], scale: float) -> tuple[str, str]:
    mean = mean_of_finite(seeds_of(seeds, [0, len(seeds[0]) - 1]) * scale)
    return measured(mean[0]), measured(mean[1])
