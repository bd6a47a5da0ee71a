"""Test sequences of a classification: the signals, and beneath them the depth that the model spent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from ..classification import Window
from ..palette import MUTED
from .examples import SPENT, shade
from .panel import Floats, Panel, array, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#00875f", "#b5558f")
STYLES = ("solid", (0, (4, 1)), (0, (1.2, 0.8)), (0, (5, 1, 1, 1)))
MOST_GROUPS = 4

Group = tuple[str, list[tuple[str, int]]]
"""A heading, and of each signal under it the name and the column."""


def groups(names: Sequence[str]) -> list[Group]:
    """Signals that belong together, as `body_acc_x`, `body_acc_y`, …: those that differ in the last word alone."""
    parts = [re.match(r"(.+)[ _.]([^ _.]+)$", name) for name in names]
    found: list[Group] = []
    if all(parts):
        split = [(part[1], part[2], column) for column, part in enumerate(parts) if part]
        for heading, members in groupby(split, key=lambda each: each[0]):
            found.append((heading.replace("_", " "), [(last, column) for _, last, column in members]))
    if not found or not all(1 < len(members) <= len(COLOURS) for _, members in found):
        three = range(0, len(names), 3)
        columns = [range(start, min(start + 3, len(names))) for start in three]
        found = [(", ".join(names[c] for c in each), [(names[c], c) for c in each]) for each in columns]
    return found


def shared_names(found: Sequence[Group]) -> list[str]:
    """The names of the lines, where they are the same under each heading."""
    names = {tuple(name for name, _ in members) for _, members in found}
    return list(names.pop()) if len(names) == 1 and len(found) > 1 else []


def deepest(windows: Sequence[Window]) -> float:
    return max(1.0, *(float(np.max(array(window.depth))) for window in windows))


def window_panels(windows: Sequence[Window]) -> list[Panel]:
    """One scale a group of signals, and one of depth, in all of them."""
    top = deepest(windows)
    limits: dict[str, tuple[float, float]] = {}
    for window in windows:
        x = _signals(window)
        for heading, members in groups(window.names)[:MOST_GROUPS]:
            part = x[:, [column for _, column in members]]
            low, high = limits.get(heading, (np.inf, -np.inf))
            limits[heading] = (min(low, float(np.nanmin(part))), max(high, float(np.nanmax(part))))
    return [_panel(window, limits, top) for window in windows]


def _signals(window: Window) -> Floats:
    return np.stack([array(step) for step in window.signals])  # (T, X)


def _panel(window: Window, limits: dict[str, tuple[float, float]], top: float) -> Panel:
    drawn = groups(window.names)[:MOST_GROUPS]
    figure, axes = canvas((4.6, 0.55 + 0.82 * len(drawn) + 0.62), [1.0] * len(drawn) + [0.72], 8.0)
    x, steps = _signals(window), np.arange(1, len(window.signals) + 1)
    for ax, (heading, members) in zip(axes, drawn, strict=False):
        for (_, column), colour, style in zip(members, COLOURS, STYLES, strict=False):
            ax.plot(steps, x[:, column], color=colour, linewidth=1.1, linestyle=style)
        low, high = limits[heading]
        margin = 0.05 * (high - low) or 1.0
        ax.set_ylim(low - margin, high + margin)
        _head(ax, heading)
    depth = array(window.depth)
    _draw_depth(axes[-1], depth, top)
    _head(axes[-1], "inner steps" if window.layers == 1 else f"inner steps, mean of the {window.layers} layers")
    for ax in axes:
        ax.set_xlim(0.5, len(steps) + 0.5)
    for ax in axes[:-1]:
        ax.tick_params(bottom=False, labelbottom=False)
    axes[-1].set_xlabel("time step")
    mean = float(depth.mean())
    words = (
        f"A window of {window.true}, {'rightly told' if window.right else f'taken for {window.predicted}'} with "
        f"probability {window.probability:.2f}: {len(drawn)} groups of signals over {len(steps)} time steps, and "
        f"inner steps from {depth.min():.3g} to {depth.max():.3g}, {mean:.2f} on average."
    )
    sure = f"{100 * window.probability:.0f} % sure, {mean:.2f} inner steps"
    title = f"✓ {window.true}: {sure}" if window.right else f"✗ {window.true} taken for {window.predicted}: {sure}"
    return Panel(title, figure, words)


def _head(ax: Axes, text: str) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.set_title(text, loc="left", fontsize=8, color=MUTED, pad=2.5, parse_math=False)
    ax.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))


def _draw_depth(ax: Axes, depth: Floats, top: float) -> None:
    # One bar for each stretch of equal depth: a step each would make the page large.
    edges = [0, *(np.flatnonzero(np.diff(depth)) + 1).tolist(), len(depth)]
    starts, ends = np.array(edges[:-1]), np.array(edges[1:])
    heights = depth[starts]
    colours = [shade(SPENT, float(height), top) for height in heights]
    ax.bar(starts + 0.5, heights, width=ends - starts, align="edge", color=colours, linewidth=0)
    ax.set_ylim(0, 1.08 * top)
    ax.grid(False, axis="x")
