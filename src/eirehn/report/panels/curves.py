"""Learning curves: one panel a row of the table, all on one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..content import Curve, Report
from ..numbers import measured
from ..palette import FLOOR, MUTED, Palette
from .panel import SMALL, Floats, Panel, array, axis_label, canvas, least_shown, positive, scale_y, whole_x

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 60
"""Epochs drawn of a curve at most: more cannot be told apart at this size, and make the page large."""
DASHED = (0, (3, 1.5))


def curve_panels(
    curves: Sequence[Curve], floor: float, report: Report, metric: str, palette: Palette
) -> list[Panel]:
    limits = _limits(curves, floor, report)
    losses = _loss_limits(curves)
    panels = []
    for curve in curves:
        # The loss is drawn beneath where it is not the metric: it has a scale of its own.
        parts, height = ((1.0,), 2.15) if curve.loss is None else ((1.9, 1.0), 3.1)
        figure, (ax, *beneath) = canvas((SMALL[0], height), parts)
        kept = thinned(len(curve.epochs))
        epochs = array(curve.epochs)[kept]
        colour = palette[curve.label].colour
        validation = _seeds(curve.validation, kept) * report.scale
        train = None if curve.train is None else _seeds(curve.train, kept) * report.scale
        for seed in validation:
            ax.plot(epochs, seed, color=colour, linewidth=0.6, alpha=0.5)
        ax.plot(epochs, mean_of_finite(validation), color=colour, linewidth=2.0)
        if train is not None:
            ax.plot(epochs, mean_of_finite(train), color=MUTED, linewidth=1.1, linestyle=DASHED)
        if math.isfinite(floor):
            ax.axhline(floor * report.scale, color=FLOOR, linewidth=1.0, linestyle=(0, (1, 1.5)))
        scale_y(ax, *limits, log=report.lower_is_better)
        ax.set(xlabel="" if beneath else "epoch", ylabel=axis_label(metric, report.metric_unit))
        whole_x(ax)
        if curve.loss is not None:
            ax.tick_params(labelbottom=False)
            _draw_loss(beneath[0], epochs, _seeds(curve.loss, kept), losses)
            figure.align_ylabels()
        panels.append(Panel(_title(curve), figure, _words(curve, validation, train)))
    return panels


def depth_panels(curves: Sequence[Curve], palette: Palette) -> list[Panel]:
    spent = [(curve, curve.depth) for curve in curves if curve.depth is not None]
    top = max(float(np.nanmax(array(seed), initial=1.0)) for _, depth in spent for seed in depth)
    panels = []
    for curve, seeds in spent:
        figure, (ax,) = canvas((SMALL[0], 1.5))
        kept = thinned(len(curve.epochs))
        epochs, depth = array(curve.epochs)[kept], _seeds(seeds, kept)
        colour = palette[curve.label].colour
        for seed in depth:
            ax.plot(epochs, seed, color=colour, linewidth=0.6, alpha=0.5)
        mean = mean_of_finite(depth)
        ax.plot(epochs, mean, color=colour, linewidth=2.0)
        ax.set(xlabel="epoch", ylabel="inner steps", ylim=(0, 1.08 * top))
        whole_x(ax)
        words = f"Mean inner steps a time step of {curve.label} during training: {mean[0]:.2f} to {mean[-1]:.2f}."
        panels.append(Panel(curve.label, figure, words))
    return panels


def thinned(length: int) -> list[int]:
    """At most `POINTS` indices, the first and last of all among them, denser at the start where curves fall."""
    if length <= POINTS:
        return list(range(length))
    spread = np.linspace(0.0, 1.0, POINTS) ** 1.4 * (length - 1)
    return sorted({round(float(index)) for index in spread})


def mean_of_finite(values: Floats) -> Floats:
    """Mean over the seeds (S, E) that have not diverged, NaN where all have."""
    finite = np.isfinite(values)
    number = finite.sum(0)
    total = np.where(finite, values, 0.0).sum(0)
    return np.where(number > 0, total / np.maximum(number, 1), math.nan)


def diverged(curve: Curve) -> int:
    return sum(not np.isfinite(array(seed)).all() for seed in curve.validation)


def _seeds(seeds: Sequence[Sequence[float]], kept: list[int]) -> Floats:
    return np.stack([array(seed) for seed in seeds])[:, kept]  # (S, E)


def _draw_loss(ax: Axes, epochs: Floats, loss: Floats, limits: tuple[float, float]) -> None:
    for seed in loss:
        ax.plot(epochs, seed, color=MUTED, linewidth=0.5, alpha=0.5)
    ax.plot(epochs, mean_of_finite(loss), color=MUTED, linewidth=1.3, linestyle=DASHED)
    scale_y(ax, *limits, log=True)
    ax.set(xlabel="epoch", ylabel="loss")
    whole_x(ax)


def _title(curve: Curve) -> str:
    lost = diverged(curve)
    return f"{curve.label}: {lost} of {len(curve.validation)} seeds diverged" if lost else curve.label


def _limits(curves: Sequence[Curve], floor: float, report: Report) -> tuple[float, float]:
    scale = report.scale
    values = positive(
        float(value) * scale
        for curve in curves
        for seeds in (curve.validation, curve.train)
        if seeds is not None
        for seed in seeds
        for value in array(seed)
    )
    if not values:
        return math.nan, math.nan
    if not report.lower_is_better:
        low, high = least_shown(values, 10), max(values)
        margin = 0.05 * (high - low) or 0.05 * high
        return low - margin, high + margin
    # Diverging seeds leave the panel: they would press all others into a line.
    high = min(max(values), 1.5 * float(np.percentile(values, 98)))
    low = min([min(values), *positive([floor * scale])])
    return low * 0.92, high * 1.05


def _loss_limits(curves: Sequence[Curve]) -> tuple[float, float]:
    losses = [curve.loss for curve in curves if curve.loss is not None]
    values = positive(float(value) for seeds in losses for seed in seeds for value in array(seed))
    return (0.9 * min(values), 1.1 * max(values)) if values else (math.nan, math.nan)


def _words(curve: Curve, validation: Floats, train: Floats | None) -> str:
    mean = mean_of_finite(validation)
    lost = diverged(curve)
    words = (
        f"Learning curves of {curve.label}, {len(validation)} seeds, epochs {curve.epochs[0]} to "
        f"{curve.epochs[-1]}: mean validation from {measured(mean[0])} to {measured(mean[-1])}"
    )
    if train is not None:
        words += f", training at the end {measured(mean_of_finite(train)[-1])}"
    if curve.loss is not None:
        loss = mean_of_finite(np.stack([array(seed) for seed in curve.loss]))
        words += f", training loss from {measured(loss[0])} to {measured(loss[-1])}"
    return words + "." + (f" {lost} diverged." if lost else "")
