"""What the figures share: size, axes, ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..palette import GRID, INK, LINE, MUTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL, LARGE = (3.4, 2.3), (4.5, 3.2)  # inches; a phone is about 4.6 of them wide

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """A small figure, its heading and what it shows in words. Headings are no part of the figure: they can wrap."""

    title: str
    figure: Figure
    alt: str


def canvas(
    size: tuple[float, float], height_ratios: Sequence[float] = (1,), font: float | None = None
) -> tuple[Figure, list[Axes]]:
    # The object interface, not pyplot: no window system and no global state.
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02, hspace=0.02))
    axes = figure.subplots(len(height_ratios), 1, squeeze=False, height_ratios=height_ratios)
    for ax in axes[:, 0]:
        dress(ax, font or (8.5 if size[0] < 4 else 9.5))
    return figure, list(axes[:, 0])


def dress(ax: Axes, font: float = 9.0) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(LINE)
    ax.grid(True, color=GRID, linewidth=0.8)
    ax.set_axisbelow(True)
    ax.tick_params(which="both", color=LINE, labelcolor=MUTED, labelsize=font, length=3, width=0.8)
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set(color=INK, fontsize=font, parse_math=False)


def positive(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value) and value > 0]


def scale_y(ax: Axes, low: float, high: float, *, log: bool) -> None:
    """A scale with a handful of plain numbers on it, also where a log scale covers less than a decade."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        return
    ax.set_ylim(low, high)
    if not log:
        return
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(FixedLocator(_log_ticks(low, high)))
    ax.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:g}" if value < 1e6 else f"{value / 1e6:g}M")
    )
    ax.yaxis.set_minor_locator(NullLocator())


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)):
        ticks = [round(step * 10.0**power, 12) for power in powers for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 3:
            return ticks
    from matplotlib.ticker import MaxNLocator

    return [float(tick) for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]


def least_shown(values: Sequence[float], rank: float) -> float:
    """Where higher is better, the low end of a scale: what is far worse than the value of this percentile leaves
    it, as it would press all others together."""
    high = max(values)
    return max(min(values), high - 2.5 * (high - float(np.percentile(values, rank))))


def whole_x(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))


def array(values: Iterable[object]) -> Floats:
    return np.array([math.nan if value is None else value for value in values], np.float64)


def axis_label(metric: str, unit: str) -> str:
    return f"{metric} ({unit})" if unit else metric
