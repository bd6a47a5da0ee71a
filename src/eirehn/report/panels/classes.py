"""How well each class is told against the depth spent on it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..classification import ClassDepth
from ..palette import PAPER, Palette
from .labels import Label, place_labels
from .panel import LARGE, Floats, Panel, array, canvas

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
NARROWEST = 0.2
"""Inner steps that a scale covers at least, so that classes that are all but equal look it."""


def class_marker(index: int) -> str:
    return MARKERS[index % len(MARKERS)]


def class_depth_panels(parts: Sequence[ClassDepth], palette: Palette) -> list[Panel]:
    """All on one scale."""
    accuracy = np.concatenate([_reach(part.accuracy, part.accuracy_std) for part in parts])
    low = max(100 * float(np.nanmin(accuracy, initial=1.0)), 0.0)
    depth = np.concatenate([_reach(part.depth, part.depth_std) for part in parts])
    least, most = float(np.nanmin(depth, initial=math.inf)), float(np.nanmax(depth, initial=-math.inf))
    half = max(0.6 * (most - least), NARROWEST / 2)
    centre = (least + most) / 2 if least <= most else 0.0
    margin = 0.12 * (100 - low) or 1.0
    limits = (max(centre - half, 0.0), centre + half), (low - margin, 100 + margin)
    return [_panel(part, limits, palette) for part in parts]


def varies(part: ClassDepth) -> bool:
    """Whether a reader could see that the classes differ in depth."""
    depth = array(part.depth)
    return bool(np.nanmax(depth, initial=-math.inf) - np.nanmin(depth, initial=math.inf) >= 0.05)


def _reach(mean: Sequence[float], std: Sequence[float] | None) -> Floats:
    """Means and the ends of their bars."""
    middle = array(mean)
    spread = np.zeros_like(middle) if std is None else np.nan_to_num(array(std))
    return np.concatenate([middle - spread, middle, middle + spread])


def _panel(part: ClassDepth, limits: tuple[tuple[float, float], tuple[float, float]], palette: Palette) -> Panel:
    figure, (ax,) = canvas(LARGE)
    colour = palette[part.label].colour
    accuracy, depth = 100 * array(part.accuracy), array(part.depth)
    shown = [index for index in range(len(depth)) if math.isfinite(accuracy[index]) and math.isfinite(depth[index])]
    spreads = [
        np.zeros_like(depth) if std is None else np.nan_to_num(array(std))
        for std in (part.depth_std, part.accuracy_std)
    ]
    lines = []
    for index in shown:
        x, y, dx, dy = depth[index], accuracy[index], spreads[0][index], 100 * spreads[1][index]
        for line in ([(x - dx, y), (x + dx, y)], [(x, y - dy), (x, min(y + dy, 100.0))]):
            ax.plot(*zip(*line, strict=True), color=colour, linewidth=1.0, alpha=0.55, zorder=3)
            lines.append(line)
        marker = class_marker(index)
        ax.plot(x, y, marker, color=colour, markeredgecolor=PAPER, markersize=8, markeredgewidth=0.8, zorder=4)
    ax.set(xlim=limits[0], ylim=limits[1])
    ax.set(xlabel="mean inner steps a time step", ylabel="right (% of the class)")
    if shown:
        labels = [Label(part.classes[i], (depth[i], accuracy[i]), colour, False) for i in shown]
        place_labels(ax, labels, lines)
    words = "; ".join(f"{part.classes[i]}: {accuracy[i]:.1f} % at {depth[i]:.2f}" for i in shown)
    return Panel(part.label, figure, f"Accuracy of each class against its mean inner steps, {part.label}. {words}.")
