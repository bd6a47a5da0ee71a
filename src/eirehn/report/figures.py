"""Shared parts of plots, and the plots of the elastic gate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .._internal.extras import need
from .palette import FLOOR, GRID, INK, LINE, MUTED, PAPER

need("matplotlib")

# The object interface, not pyplot: no window system and no global state.
from matplotlib import colormaps  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.colors import to_hex  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator  # noqa: E402

SMALL, LARGE = (3.4, 2.3), (4.5, 3.2)  # inches; a phone is about 4.6 of them wide
COLOURS = ("#0072b2", "#d55e00", "#00875f", "#b5558f")
DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
DASHED, DOTTED = (0, (3, 1.5)), (0, (1, 1.5))
SPENT, TAKEN = "viridis", "Greys"
FEW = 20
"""A mean over fewer time steps or words is drawn hollow, as it is unreliable."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """A small figure, its heading and what it shows in words. The heading is HTML, so that it can wrap."""

    title: str
    figure: Figure
    alt: str


def canvas(
    size: tuple[float, float], height_ratios: Sequence[float] = (1,), font: float | None = None
) -> tuple[Figure, list[Axes]]:
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


def array(values: Iterable[object]) -> Floats:
    return np.array(list(values), np.float64)  # NaN for None


def positive(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value) and value > 0]


def axis_label(metric: str, unit: str) -> str:
    return f"{metric} ({unit})" if unit else metric


def from_to(values: Mapping[str, float]) -> str:
    low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    return f"from {values[low]:.2f} ({low}) to {values[high]:.2f} ({high})"


def draw_floor(ax: Axes, floor: float) -> None:
    if math.isfinite(floor):
        ax.axhline(floor, color=FLOOR, linewidth=1.0, linestyle=DOTTED)


def whole_x(ax: Axes) -> None:
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))


def least_shown(values: Sequence[float], rank: float) -> float:
    """The lower end of a scale where higher is better: values far below this percentile are cut off, as they would
    compress all others."""
    high = max(values)
    return max(min(values), high - 2.5 * (high - float(np.percentile(values, rank))))


def scale_y(ax: Axes, low: float, high: float, *, log: bool) -> None:
    """A scale with a few plain numbers, also for a log scale of less than a decade."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        return
    ax.set_ylim(low, high)
    if log:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(FixedLocator(_log_ticks(low, high)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}" if y < 1e6 else f"{y / 1e6:g}M"))
        ax.yaxis.set_minor_locator(NullLocator())


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)):
        ticks = [round(step * 10.0**power, 12) for power in powers for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 3:
            return ticks
    return [float(tick) for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]


def shade(name: str, depth: float, deepest: float) -> str:
    """The colour of a depth, from dark at zero to bright at the deepest (grey: the reverse)."""
    share = depth / max(deepest, 1)
    return to_hex(colormaps[name](0.1 + 0.85 * share if name == SPENT else 0.12 + 0.6 * share))


def shades(name: str, deepest: int) -> list[str]:
    return [shade(name, depth, deepest) for depth in range(deepest + 1)]


def readable_on(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "#101418" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45 else "#f8f9fa"


def depth_figure(x: npt.ArrayLike, spent: npt.ArrayLike, taken: npt.ArrayLike) -> Figure:
    """Sequences coloured by the depth of a model, and that depth against the generator's.

    `x` (N, T, 2) are points in the plane, `spent` and `taken` (N, T) the inner steps of model and generator.
    """
    points, depth, true = np.asarray(x).reshape(-1, 2), np.asarray(spent).ravel(), np.asarray(taken).ravel()
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    plane, against = figure.subplots(1, 2)
    dress(plane)
    dress(against)
    top = int(depth.max())
    picture = plane.scatter(*points.T, c=depth, s=6, cmap=SPENT, vmin=0, vmax=top, linewidths=0)
    figure.colorbar(picture, ax=plane, label="inner steps")
    plane.set(xlabel="x₁", ylabel="x₂")
    plane.set_title("Depth of the model by position", fontsize=11, loc="left")
    depths = np.unique(true)
    groups = [depth[true == each].astype(np.float64) for each in depths]
    means, spread = np.array([group.mean() for group in groups]), np.array([group.std() for group in groups])
    against.fill_between(depths, means - spread, means + spread, color=COLOURS[0], alpha=0.2, linewidth=0)
    against.plot(depths, means, "o-", color=COLOURS[0], markersize=4)
    against.set(xlabel="inner steps of the generator", ylabel="inner steps of the model", ylim=(0, top + 0.3))
    against.set_title("Mean and standard deviation", fontsize=11, loc="left")
    return figure


MARKERS = ("o", "s", "^", "D")
LEVELS = (1, 2, 3, 5, 10, 20, 40)
DEEPEST = 15

Unit = tuple[float, float, float, str]
"""α, β, αₜ and the label."""
BY_ALPHA: list[Unit] = [(alpha, 0.95, 0.0, f"α = {alpha:g}") for alpha in (0.05, 0.1, 0.2, 0.5)]
BY_BETA: list[Unit] = [(0.1, beta, 0.0, f"β = {beta:g}") for beta in (0.95, 0.7, 0.4, 0.1)]
BY_INPUT: list[Unit] = [(0.05, 0.95, alpha_t, f"αₜ = {alpha_t:g}") for alpha_t in (0.0, 0.05, 0.12, 0.3)]
BY_BOTH: list[Unit] = [
    (alpha, beta, 0.0, f"α = {alpha:g}, β = {beta:g}")
    for alpha, beta in ((0.05, 0.95), (0.1, 0.95), (0.2, 0.95), (0.1, 0.5))
]


def gate_values(alpha: float, beta: float, alpha_t: float) -> Floats:
    """The elastic gate `max(β + e^α − e^((α + αₜ) r), 0)` for r = 1, 2, … (DEEPEST,)."""
    r = np.arange(1, DEEPEST + 1)
    gate: Floats = np.maximum(beta + np.exp(alpha) - np.exp((alpha + alpha_t) * r), 0.0)
    return gate


def depth_bound(alpha: Floats, beta: Floats) -> Floats:
    """`log(β + e^α) / α`, the inner step at which the gate closes; rounded down, the largest depth of a unit."""
    bound: Floats = 1.0 + np.log1p(beta * np.exp(-alpha)) / alpha
    return bound


def figure1() -> Figure:
    """Figure 1 of the paper: the gate of units of different α and β, their largest depth, and the effect of αₜ."""
    return _side_by_side([(title, draw) for title, draw, _ in _FIGURE1], rows=2)


def figure1_panels() -> list[Panel]:
    panels = []
    for title, draw, words in _FIGURE1:
        figure, (ax,) = canvas(LARGE)
        draw(ax)
        panels.append(Panel(title, figure, words))
    return panels


def gate_figure() -> Figure:
    """How the elastic gate falls with depth: the largest depth of a unit, and its reduction by the input."""
    bounds = ("Largest depth of a unit (αₜ = 0)", _gates(BY_BOTH))
    return _side_by_side([bounds, ("Reduction by the input (α = 0.05, β = 0.95)", _gates(BY_INPUT))], rows=1)


def _side_by_side(parts: Sequence[tuple[str, Callable[[Axes], None]]], rows: int) -> Figure:
    figure = Figure(figsize=(9.6, 3.6 * rows), layout="constrained")
    for ax, letter, (title, draw) in zip(figure.subplots(rows, 2).flat, "abcd", parts, strict=False):
        dress(ax, 9.5)
        draw(ax)
        ax.set_title(f"{letter}  {title}", fontsize=11, loc="left", color=INK)
    return figure


def _gates(units: Sequence[Unit]) -> Callable[[Axes], None]:
    def draw(ax: Axes) -> None:
        r = np.arange(1, DEEPEST + 1)
        for (alpha, beta, alpha_t, label), colour, marker in zip(units, COLOURS, MARKERS, strict=True):
            gate = gate_values(alpha, beta, alpha_t)
            depth = int((gate > 0).sum())
            steps = np.linspace(1.0, min(math.log(beta + math.exp(alpha)) / (alpha + alpha_t), DEEPEST), 60)
            smooth = beta + np.exp(alpha) - np.exp((alpha + alpha_t) * steps)
            ax.plot(steps, smooth, color=colour, linewidth=1.1, alpha=0.6)
            mark: dict[str, Any] = {"marker": marker, "color": colour, "markersize": 4.5, "linestyle": "none"}
            ax.plot(r[:depth], gate[:depth], label=f"{label}: depth {depth}", **mark)
            ax.plot(r[depth : depth + 1], gate[depth : depth + 1], markerfacecolor=PAPER, **mark)
        ax.set(xlabel="inner step r", ylabel="elastic gate dʳ", xlim=(0.5, DEEPEST + 0.5), ylim=(-0.03, 1.02))
        ax.set_xticks(range(1, DEEPEST + 1, 2))
        ax.legend(frameon=False, fontsize=9, labelcolor=INK, handlelength=1.0)

    return draw


def _draw_bounds(ax: Axes) -> None:
    alpha, beta = np.geomspace(0.005, 1.0, 240), np.linspace(0.0, 1.0, 90)
    shades = [to_hex(colour) for colour in colormaps["viridis"](np.linspace(0.12, 0.98, len(LEVELS)))]
    bound = depth_bound(alpha[None, :], beta[:, None])
    bands = ax.contourf(alpha, beta, bound, [*LEVELS, 1000], colors=shades, antialiased=True)
    bands.set_edgecolor("face")
    ax.set_xscale("log")
    for level, after, colour in zip(LEVELS, [*LEVELS[1:], 1000], shades, strict=True):
        text = f"{level}+" if after == 1000 else f"{level}" if after == level + 1 else f"{level}–{after - 1}"
        inside = alpha[
            (depth_bound(alpha, np.array(0.5)) // 1 >= level) & (depth_bound(alpha, np.array(0.5)) < after)
        ]
        middle = float(np.sqrt(inside[0] * inside[-1]))
        ax.text(middle, 0.5, text, ha="center", va="center", fontsize=8.5, color=readable_on(colour))
    for units in (BY_BETA, BY_ALPHA):  # a unit in both looks as in the first panel
        for (a, b, _, _), colour, marker in zip(units, COLOURS, MARKERS, strict=True):
            ax.plot(a, b, marker, color=colour, markersize=7.5, markeredgecolor=PAPER)
    ax.grid(False)
    ax.set(xlabel="global decay α", ylabel="bias β")
    ax.set_xticks([0.01, 0.03, 0.1, 0.3, 1.0], ["0.01", "0.03", "0.1", "0.3", "1"])
    ax.minorticks_off()


def _gates_in_words(units: Sequence[Unit]) -> str:
    depths = [f"{name}: {int((gate_values(a, b, t) > 0).sum())}" for a, b, t, name in units]
    return (
        f"The elastic gate falls with the inner step r and stays at zero once there. Depth for {', '.join(depths)}."
    )


_FIGURE1: tuple[tuple[str, Callable[[Axes], None], str], ...] = (
    ("Depth grows with smaller α (β = 0.95, αₜ = 0)", _gates(BY_ALPHA), _gates_in_words(BY_ALPHA)),
    ("Depth grows with larger β (α = 0.1, αₜ = 0)", _gates(BY_BETA), _gates_in_words(BY_BETA)),
    (
        "Largest depth of a unit, for any input",
        _draw_bounds,
        "Map of the depth bound over α and β: 1 or 2 inner steps where α is above a third, more than 20 where α is "
        "below 0.02, and more with larger β at every α.",
    ),
    ("Reduction of depth by the input (α = 0.05, β = 0.95)", _gates(BY_INPUT), _gates_in_words(BY_INPUT)),
)
