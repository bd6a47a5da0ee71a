"""Test sequences, with what the model and the generator spent on each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..content import Example
from ..palette import INK, MUTED, PAPER
from .panel import Floats, Panel, array, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPENT, TAKEN = "viridis", "Greys"
NUMBERED = 26
"""Time steps up to which the number fits into its cell."""


def ranges(examples: Sequence[Example]) -> tuple[int, int]:
    """The deepest the model went, and the generator."""
    spent = max(max(example.spent) for example in examples)
    taken = max((max(example.taken) for example in examples if example.taken is not None), default=0)
    return int(spent), int(taken)


def shade(name: str, depth: float, deepest: float) -> str:
    """The colour of a depth, dark for none and bright for the deepest (grey: the other way round)."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    share = depth / max(deepest, 1)
    return to_hex(colormaps[name](0.1 + 0.85 * share if name == SPENT else 0.12 + 0.6 * share))


def example_panels(examples: Sequence[Example], scale: float) -> list[Panel]:
    deepest = ranges(examples)
    error = max(
        (float(np.nanmax(array(e.error), initial=0.0)) for e in examples if e.error is not None), default=0.0
    )
    return [_panel(index, example, deepest, error * scale, scale) for index, example in enumerate(examples, 1)]


def _panel(index: int, example: Example, deepest: tuple[int, int], top: float, scale: float) -> Panel:
    rows = [3.2, 0.55]
    if example.taken is not None:
        rows.append(0.55)
    if example.error is not None:
        rows.append(0.9)
    figure, axes = canvas((4.6, 0.45 + 0.48 * sum(rows)), rows, 8.5)
    points, steps = np.array(example.x, np.float64), array(range(1, len(example.x) + 1))  # (T, 2), (T,)
    colours = [shade(SPENT, depth, deepest[0]) for depth in example.spent]
    _draw_points(axes[0], points, steps, colours)
    _draw_cells(axes[1], steps, example.spent, colours, "model")
    if example.taken is not None:
        greys = [shade(TAKEN, depth, deepest[1]) for depth in example.taken]
        _draw_cells(axes[2], steps, example.taken, greys, "generator")
    if example.error is not None:
        axes[-1].bar(steps, array(example.error) * scale, width=0.8, color=MUTED)
        axes[-1].set_ylabel("error", rotation=0, ha="right", va="center")
        axes[-1].set_ylim(0, top * 1.05 or 1.0)
        axes[-1].set_yticks([0, top] if top else [0], ["0", f"{top:.2g}"] if top else ["0"])
        axes[-1].grid(False, axis="x")
    for ax in axes:
        ax.set_xlim(0.4, len(steps) + 0.6)
    for ax in axes[:-1]:
        ax.tick_params(bottom=False, labelbottom=False)
    axes[-1].set_xticks([step for step in steps if step == 1 or step % (5 if len(steps) <= 40 else 20) == 0])
    axes[-1].set_xlabel("time step")
    spent = ", ".join(map(str, example.spent))
    words = f"Example sequence {index} over {len(steps)} time steps. Inner steps of the model: {spent}."
    if example.taken is not None:
        words += f" Of the generator: {', '.join(map(str, example.taken))}."
    return Panel(f"Example {index}", figure, words)


def _draw_points(ax: Axes, points: Floats, steps: Floats, colours: list[str]) -> None:
    for column, (name, style, marker) in enumerate((("x₁", "solid", "o"), ("x₂", (0, (3, 1.5)), "s"))):
        ax.plot(steps, points[:, column], color=MUTED, linewidth=0.9, linestyle=style, zorder=2)
        ax.scatter(
            steps,
            points[:, column],
            c=colours,
            s=24,
            marker=marker,
            edgecolors=INK,
            linewidths=0.6,
            zorder=3,
            label=name,
        )
        # The two names stand apart where the lines end close together.
        va = "bottom" if points[-1, column] > points[-1, 1 - column] else "top"
        end = (float(steps[-1]), float(points[-1, column]))
        ax.annotate(name, end, (6, 0), textcoords="offset points", va=va, fontsize=8.5, color=MUTED)
    ax.set_ylabel("x", rotation=0, ha="right", va="center")
    ax.margins(y=0.1)


def _draw_cells(ax: Axes, steps: Floats, depths: Sequence[int], colours: list[str], name: str) -> None:
    ax.bar(steps, 1.0, width=1.0, color=colours, edgecolor=PAPER, linewidth=0.8)
    if len(steps) <= NUMBERED:
        for step, depth, colour in zip(steps, depths, colours, strict=True):
            ax.text(step, 0.47, str(depth), ha="center", va="center", fontsize=7.5, color=_readable_on(colour))
    ax.set_ylabel(name, rotation=0, ha="right", va="center")
    ax.set_yticks([])
    ax.set_ylim(0, 1)
    ax.spines[:].set_visible(False)


def _readable_on(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "#101418" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45 else "#f8f9fa"
