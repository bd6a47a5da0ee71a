"""Labels beside points that do not lie on each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .panel import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

_ABOVE = (  # offset in points, horizontal and vertical alignment
    (0, 6, "center", "bottom"),
    (0, -6, "center", "top"),
    (7, 0, "left", "center"),
    (5, 5, "left", "bottom"),
    (-5, 5, "right", "bottom"),
    (5, -5, "left", "top"),
    (-5, -5, "right", "top"),
    (-7, 0, "right", "center"),
    (0, 13, "center", "bottom"),
    (0, -13, "center", "top"),
)
_BELOW = tuple((dx, -dy, ha, {"bottom": "top", "top": "bottom"}.get(va, va)) for dx, dy, ha, va in _ABOVE)

Point = tuple[float, float]


@dataclass(frozen=True)
class Label:
    text: str
    point: Point
    colour: str
    below: bool
    """Where it stands if it can."""


def place_labels(ax: Axes, labels: Sequence[Label], lines: Sequence[Sequence[Point]]) -> None:
    """Each label at the first place around its point where it hides no point, line or label; else none.

    Limits and scales of `ax` must be set before.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(ax.figure)  # type: ignore[arg-type]
    canvas.draw()
    frame = ax.get_window_extent()
    unit = ax.figure.dpi / 72
    marks = [_box(spot, 4 * unit) for spot in ax.transData.transform(np.array([label.point for label in labels]))]
    taken = [
        _box(spot, unit) for line in lines for spot in _along(ax.transData.transform(np.array(line)), 3 * unit)
    ]
    for index, label in enumerate(labels):
        others = taken + marks[:index] + marks[index + 1 :]
        for dx, dy, ha, va in _BELOW if label.below else _ABOVE:
            text = ax.annotate(
                label.text, label.point, (dx, dy), textcoords="offset points", ha=ha, va=va, fontsize=8.5
            )
            text.set(color=label.colour, zorder=6, parse_math=False, in_layout=False)
            box = text.get_window_extent(canvas.get_renderer()).padded(unit)
            if _inside(box, frame) and not any(box.overlaps(other) for other in others):
                taken.append(box)
                break
            text.remove()


def _inside(box: Bbox, frame: Bbox) -> bool:
    return bool(
        frame.x0 - 1 <= box.x0 and frame.y0 - 1 <= box.y0 and box.x1 <= frame.x1 + 1 and box.y1 <= frame.y1 + 1
    )


def _box(spot: Floats, reach: float) -> Bbox:
    from matplotlib.transforms import Bbox

    return Bbox([spot - reach, spot + reach])


def _along(corners: Floats, step: float) -> Floats:
    """Points on the polyline, no further apart than `step`."""
    parts = [corners[:1]]
    for start, end in pairwise(corners):
        number = int(np.ceil(np.linalg.norm(end - start) / step)) + 1
        parts.append(np.linspace(start, end, number))
    return np.concatenate(parts)
