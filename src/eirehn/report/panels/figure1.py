"""Figure 1 of the paper: how far a unit's elastic gate lets it go."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch

from ...cells import elastic_gate
from ...cells.gate import depth_bound
from ..palette import INK, PAPER
from .panel import LARGE, Floats, Panel, canvas, dress

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BY_ALPHA = tuple((alpha, 0.95) for alpha in (0.05, 0.1, 0.2, 0.5))
BY_BETA = tuple((0.1, beta) for beta in (0.95, 0.7, 0.4, 0.1))
BY_INPUT = (0.0, 0.05, 0.12, 0.3)
UNIT = (0.05, 0.95)
COLOURS = ("#0072b2", "#d55e00", "#00875f", "#b5558f")
MARKERS = ("o", "s", "^", "D")
LEVELS = (1, 2, 3, 5, 10, 20, 40)
DEEPEST = 15


def figure1() -> Figure:
    """The elastic gate of units of different α and β, the depth these bound, and what αₜ leaves of it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 7.2), layout="constrained")
    for ax, letter, (title, draw) in zip(figure.subplots(2, 2).flat, "abcd", _PARTS, strict=True):
        dress(ax, 9.5)
        draw(ax)
        ax.set_title(f"{letter}  {title}", fontsize=11, loc="left", color=INK)
    return figure


def figure1_panels() -> list[Panel]:
    panels = []
    for title, draw in _PARTS:
        figure, (ax,) = canvas(LARGE)
        draw(ax)
        panels.append(Panel(title, figure, _WORDS[draw]))
    return panels


def _draw_by_alpha(ax: Axes) -> None:
    _draw_gates(ax, [(alpha, beta, 0.0, f"α = {alpha:g}") for alpha, beta in BY_ALPHA])


def _draw_by_beta(ax: Axes) -> None:
    _draw_gates(ax, [(alpha, beta, 0.0, f"β = {beta:g}") for alpha, beta in BY_BETA])


def _draw_by_input(ax: Axes) -> None:
    _draw_gates(ax, [(*UNIT, alpha_t, f"αₜ = {alpha_t:g}") for alpha_t in BY_INPUT])


def _draw_gates(ax: Axes, units: list[tuple[float, float, float, str]]) -> None:
    r = np.arange(1, DEEPEST + 1)
    for (alpha, beta, alpha_t, label), colour, marker in zip(units, COLOURS, MARKERS, strict=True):
        gate = gate_values(alpha, beta, alpha_t)
        depth = int((gate > 0).sum())
        shut = min(math.log(beta + math.exp(alpha)) / (alpha + alpha_t), DEEPEST)
        smooth = beta + np.exp(alpha) - np.exp((alpha + alpha_t) * np.linspace(1.0, shut, 60))
        ax.plot(np.linspace(1.0, shut, 60), smooth, color=colour, linewidth=1.1, alpha=0.6)
        ax.plot(r[:depth], gate[:depth], marker, color=colour, markersize=4.5, label=f"{label}: depth {depth}")
        ax.plot(
            r[depth : depth + 1],
            gate[depth : depth + 1],
            marker,
            color=colour,
            markersize=4.5,
            markerfacecolor=PAPER,
        )
    ax.set(xlabel="inner step r", ylabel="elastic gate dʳ", xlim=(0.5, DEEPEST + 0.5), ylim=(-0.03, 1.02))
    ax.set_xticks(range(1, DEEPEST + 1, 2))
    ax.legend(frameon=False, fontsize=9, labelcolor=INK, handlelength=1.0)


def gate_values(alpha: float, beta: float, alpha_t: float) -> Floats:
    """`d^r` for r = 1, 2, … (DEEPEST,)."""
    a, b, t = (torch.tensor(value, dtype=torch.float64) for value in (alpha, beta, alpha_t))
    return np.array([elastic_gate(a, b, t, r).item() for r in range(1, DEEPEST + 1)])


def _draw_bounds(ax: Axes) -> None:
    from matplotlib import colormaps

    alpha, beta = np.geomspace(0.005, 1.0, 240), np.linspace(0.0, 1.0, 90)
    bound = unrounded_bound(alpha[None, :], beta[:, None])
    shades = colormaps["viridis"](np.linspace(0.12, 0.98, len(LEVELS)))
    bands = ax.contourf(alpha, beta, bound, [*LEVELS, 1000], colors=list(shades), antialiased=True)
    bands.set_edgecolor("face")
    ax.set_xscale("log")
    for level, after, shade in zip(LEVELS, [*LEVELS[1:], None], shades, strict=True):
        text = f"{level}+" if after is None else f"{level}" if after == level + 1 else f"{level}–{after - 1}"
        bright = shade[:3] @ np.array([0.2126, 0.7152, 0.0722]) > 0.45
        ax.text(
            _middle(level, after),
            0.5,
            text,
            ha="center",
            va="center",
            fontsize=8.5,
            color="#101418" if bright else "#f8f9fa",
        )
    for units in (BY_BETA, BY_ALPHA):  # the unit that both have looks as in the first panel
        for (a, b), colour, marker in zip(units, COLOURS, MARKERS, strict=True):
            ax.plot(a, b, marker, color=colour, markersize=7.5, markeredgecolor=PAPER)
    ax.grid(False)
    ax.set(xlabel="global decay α", ylabel="bias β")
    ax.set_xticks([0.01, 0.03, 0.1, 0.3, 1.0], ["0.01", "0.03", "0.1", "0.3", "1"])
    ax.minorticks_off()


def unrounded_bound(alpha: Floats, beta: Floats) -> Floats:
    """`log(β + e^α) / α`, of which `depth_bound` takes the floor: its whole numbers are the edges of the bands."""
    bound: Floats = 1.0 + np.log1p(beta * np.exp(-alpha)) / alpha
    return bound


def _middle(level: int, after: int | None) -> float:
    """The middle of a band at β = 1/2, on the log scale."""
    alpha = np.geomspace(0.005, 1.0, 2000)
    bound = depth_bound(torch.from_numpy(alpha), torch.tensor(0.5)).numpy()
    inside = alpha[(bound >= level) & (bound < (after or np.inf))]
    return float(np.sqrt(inside[0] * inside[-1]))


_PARTS: tuple[tuple[str, Callable[[Axes], None]], ...] = (
    ("A smaller α goes deeper (β = 0.95, αₜ = 0)", _draw_by_alpha),
    ("A bigger β goes deeper (α = 0.1, αₜ = 0)", _draw_by_beta),
    ("The deepest a unit can go, whatever the input", _draw_bounds),
    ("An input takes less of it (α = 0.05, β = 0.95)", _draw_by_input),
)


def _in_words(units: list[tuple[float, float, float, str]]) -> str:
    depths = [f"{name}: {int((gate_values(a, b, t) > 0).sum())}" for a, b, t, name in units]
    return (
        "The elastic gate falls with the inner step r and stays at zero once there. Depth for "
        + ", ".join(depths)
        + "."
    )


_WORDS: dict[Callable[[Axes], None], str] = {
    _draw_by_alpha: _in_words([(a, b, 0.0, f"α {a:g}") for a, b in BY_ALPHA]),
    _draw_by_beta: _in_words([(a, b, 0.0, f"β {b:g}") for a, b in BY_BETA]),
    _draw_by_input: _in_words([(*UNIT, t, f"αₜ {t:g}") for t in BY_INPUT]),
    _draw_bounds: "Map of the depth bound over α and β: 1 or 2 inner steps where α is above a third, more than 20 "
    "where α is below 0.02, and at every α more the larger β is.",
}
