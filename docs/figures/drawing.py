"""Boxes, nodes and arrows on an empty figure: what drawings of a network are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from eirehn.report.palette import INK, MUTED, PAPER

Point = tuple[float, float]


class Drawing:
    """In units of a tenth of an inch, from the lower left corner on."""

    def __init__(self, width: float, height: float) -> None:
        # White of its own, so that it can be read on a dark page too.
        self.figure: Figure = Figure(figsize=(width / 10, height / 10), facecolor="#ffffff")
        self.ax = self.figure.add_axes((0, 0, 1, 1))
        self.ax.set(xlim=(0, width), ylim=(0, height))
        self.ax.set_axis_off()

    def box(self, left: float, low: float, right: float, high: float, colour: str, **options: Any) -> None:
        """A box with round corners; `strength` of its filling, and `dashed` for a region around other things."""
        dashed = options.pop("dashed", False)
        strength = options.pop("strength", 0.05 if dashed else 0.16)
        self.ax.add_patch(
            FancyBboxPatch(
                (left, low),
                right - left,
                high - low,
                boxstyle=f"round,pad=0,rounding_size={2.0 if dashed else 0.8}",
                facecolor=to_rgba(colour, strength),
                edgecolor=colour,
                linewidth=1.0,
                linestyle=(0, (3, 2)) if dashed else "solid",
                zorder=0 if dashed else 2,
                **options,
            )
        )

    def text(self, x: float, y: float, text: str, size: float = 9.0, **options: Any) -> None:
        options = {"ha": "center", "va": "center", "color": INK, **options}
        self.ax.text(x, y, text, fontsize=size, zorder=6, **options)

    def note(self, x: float, y: float, text: str, **options: Any) -> None:
        self.text(x, y, text, **{"size": 7.5, "color": MUTED, **options})

    def node(self, x: float, y: float, sign: str, colour: str = INK) -> None:
        """An element-wise operation: "×", "+" or "1−"."""
        self.ax.plot(x, y, "o", markersize=15, color=PAPER, markeredgecolor=colour, markeredgewidth=1.2, zorder=4)
        self.text(x, y, sign, 9.5 if len(sign) == 1 else 7.0)

    def dot(self, x: float, y: float, colour: str = INK) -> None:
        """Where a line branches; lines that cross without one do not meet."""
        self.ax.plot(x, y, "o", markersize=3.2, color=colour, zorder=5)

    def line(self, points: Sequence[Point], colour: str = INK, *, arrow: bool = True, **options: Any) -> None:
        options = {"linewidth": 1.1, **options}
        xs, ys = zip(*points, strict=True)
        self.ax.plot(xs, ys, color=colour, solid_joinstyle="round", zorder=3, **options)
        if arrow:
            self.ax.annotate(
                "",
                points[-1],
                points[-2],
                arrowprops={
                    "arrowstyle": "-|>,head_width=0.22,head_length=0.42",
                    "color": colour,
                    "linewidth": options["linewidth"],
                    "linestyle": "none" if "linestyle" in options else "solid",
                    "shrinkA": 0,
                    "shrinkB": 0,
                },
                zorder=3,
            )
