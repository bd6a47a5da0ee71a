"""Plots of a search for settings."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from .content import Searched, Tried
from .figures import COLOURS, LARGE, SMALL, Panel, axis_label, canvas, least_shown, scale_y, whole_x
from .palette import INK, MUTED
from .tables import measured, shown, title

TRIAL, PRUNED = COLOURS[0], MUTED


def progress_panel(search: Searched) -> Panel:
    """The metric of each trial, and the best so far."""
    figure, (ax,) = canvas(LARGE)
    scale, metric = search.metric.scale, search.metric
    _draw(ax, search, {each.number: float(each.number) for each in search.trials})
    better = min if metric.lower_is_better else max
    numbers: list[int] = []
    best: list[float] = []
    for each in _complete(search):
        numbers.append(each.number)
        best.append(better([*best[-1:], scale * _value(each)]))
    end = search.trials[-1].number
    ax.step([*numbers, end], [*best, best[-1]], where="post", color=INK, linewidth=1.4, zorder=2)
    ax.set(xlabel="trial", ylabel=axis_label(metric.on_validation, metric.metric_unit))
    whole_x(ax)
    words = f"Best {metric.on_validation} on validation data so far: {measured(best[0])} after the first complete "
    return Panel("", figure, f"{words}trial, {measured(best[-1])} after trial {end}.")


def field_panels(search: Searched) -> list[Panel]:
    """The metric by the value of each field."""
    panels = []
    for name, words in search.fields.items():
        figure, (ax,) = canvas(SMALL)
        values = {each.number: each.settings[name] for each in search.trials if name in each.settings}
        numeric = ":" in words
        if numeric:
            _draw(ax, search, {number: float(value) for number, value in values.items()})
            if words.endswith(":log"):
                ax.set_xscale("log")
                ax.xaxis.set_minor_locator(NullLocator())
        else:
            choices = words.split(",")
            _draw(ax, search, {number: float(choices.index(shown(each))) for number, each in values.items()})
            ax.set_xticks(range(len(choices)), choices, parse_math=False)
            ax.set_xlim(-0.5, len(choices) - 0.5)
        metric = search.metric
        ax.set_ylabel(axis_label(metric.on_validation, metric.metric_unit))
        best = next(each for each in search.trials if each.number == search.best)
        alt = f"{metric.on_validation} on validation data by {title(name)}, from {words}; the best: "
        panels.append(Panel(title(name), figure, f"{alt}{shown(best.settings[name])}."))
    return panels


def _draw(ax: Axes, search: Searched, places: dict[int, float]) -> None:
    """The trials at these places, the best with a ring."""
    scale = search.metric.scale
    for state, marker, colour in (("complete", "o", TRIAL), ("pruned", "x", PRUNED)):
        drawn = [each for each in search.trials if each.state == state and each.value is not None]
        drawn = [each for each in drawn if each.number in places]
        x, y = [places[each.number] for each in drawn], [scale * _value(each) for each in drawn]
        ax.scatter(x, y, s=18, marker=marker, color=colour, linewidths=1.0 if marker == "x" else 0, zorder=3)
        for each in drawn:
            if each.number == search.best:
                at = places[each.number], scale * _value(each)
                ax.plot(*at, "o", markersize=9, markerfacecolor="none", markeredgecolor=INK, zorder=4)
    values = [scale * _value(each) for each in _complete(search)]
    if search.metric.lower_is_better:
        low, high = 0.9 * min(values), 1.1 * min(max(values), 3.0 * float(np.median(values)))
        scale_y(ax, low, high, log=low > 0)
    else:
        low, high = least_shown(values, 25), max(values)
        margin = 0.06 * (high - low) or 0.05 * abs(high)
        scale_y(ax, low - margin, high + margin, log=False)


def _complete(search: Searched) -> list[Tried]:
    return [each for each in search.trials if each.state == "complete"]


def _value(each: Tried) -> float:
    return math.nan if each.value is None else each.value
