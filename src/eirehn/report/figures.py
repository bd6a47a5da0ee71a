"""Figures, each a function of data that returns a matplotlib figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from .panels.figure1 import figure1, gate_values
from .panels.figure2 import figure2
from .panels.figure3 import figure3

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["depth_figure", "figure1", "figure2", "figure3", "gate_figure"]

COLOURS = ("#0b6e99", "#d9730d", "#6940a5", "#0f7b6c")


def _figure(width: float, height: float, columns: int) -> tuple[Figure, list[Axes]]:
    # The object interface, not pyplot: no window system, no global state, and slow to import only when used.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(1, columns, squeeze=False)[0])
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(True, color="#e6e6e6", linewidth=0.8)
        ax.set_axisbelow(True)
    return figure, axes


def gate_figure() -> Figure:
    """How the elastic gate falls with depth: what a unit allows, and what an input takes of it."""
    figure, (bounds, local) = _figure(9.0, 3.4, 2)
    for colour, (alpha, beta) in zip(COLOURS, [(0.05, 0.95), (0.1, 0.95), (0.2, 0.95), (0.1, 0.5)], strict=True):
        _draw_gate(bounds, alpha, beta, 0.0, colour, f"α = {alpha:g}, β = {beta:g}")
    bounds.set_title("What a unit allows at most (αₜ = 0)", fontsize=11, loc="left")
    for colour, alpha_t in zip(COLOURS, [0.0, 0.05, 0.12, 0.3], strict=True):
        _draw_gate(local, 0.05, 0.95, alpha_t, colour, f"αₜ = {alpha_t:g}")
    local.set_title("What an input takes of it (α = 0.05, β = 0.95)", fontsize=11, loc="left")
    for ax in (bounds, local):
        ax.set(xlabel="inner step r", xlim=(0.6, 14.4), ylim=(-0.02, 1.0))
        ax.set_xticks(range(1, 15, 2))
        ax.legend(frameon=False, fontsize=9)
    bounds.set_ylabel("elastic gate dʳ")
    return figure


def _draw_gate(ax: Axes, alpha: float, beta: float, alpha_t: float, colour: str, label: str) -> None:
    values = gate_values(alpha, beta, alpha_t)
    depths = range(1, len(values) + 1)
    last = max((r for r, d in zip(depths, values, strict=True) if d > 0), default=0)
    ax.plot(depths, values, "o-", color=colour, markersize=4, linewidth=1.6, label=f"{label}: depth {last}")


def depth_figure(x: Tensor, spent: Tensor, taken: Tensor) -> Figure:
    """Sequences coloured by the depth a model spent on them, and that depth against the generator's own.

    `x` (N, T, 2) are points in the plane, `spent` and `taken` (N, T) the inner steps of model and generator.
    """
    figure, (plane, against) = _figure(9.0, 3.8, 2)
    top = int(spent.max())
    points = x.reshape(-1, 2)
    picture = plane.scatter(
        points[:, 0], points[:, 1], c=spent.flatten(), s=6, cmap="viridis", vmin=0, vmax=top, linewidths=0
    )
    figure.colorbar(picture, ax=plane, label="inner steps spent")
    plane.set(xlabel="x₁", ylabel="x₂")
    plane.set_title("Where the model thinks longer", fontsize=11, loc="left")
    depths = np.unique(taken.numpy())
    groups = [spent[taken == int(depth)].double() for depth in depths]
    means = np.array([group.mean().item() for group in groups])
    spread = np.array([group.std(correction=0).item() for group in groups])
    against.fill_between(depths, means - spread, means + spread, color=COLOURS[0], alpha=0.2, linewidth=0)
    against.plot(depths, means, "o-", color=COLOURS[0], markersize=4)
    against.set(xlabel="inner steps of the generator", ylabel="inner steps of the model", ylim=(0, top + 0.3))
    against.set_title("Mean and standard deviation", fontsize=11, loc="left")
    return figure
