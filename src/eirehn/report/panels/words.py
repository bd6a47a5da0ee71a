"""Depth by groups of words: how often each depth is taken, its mean, and how well the words are told."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..language import WordGroups
from ..numbers import measured
from ..palette import INK, MUTED, PAPER, Palette
from .depth import FEW
from .panel import Panel, array, canvas, positive, scale_y

OWN, NEXT = "solid", (0, (3, 1.5))
OPEN = (0, (1, 1))


def word_panels(parts: Sequence[WordGroups], xlabel: str, palette: Palette) -> list[Panel]:
    """All on one scale."""
    deepest = max(len(part.counts[0]) for part in parts) - 1
    values = positive(
        float(value) for part in parts for value in (*array(part.perplexity), *array(part.next_perplexity))
    )
    limits = (0.8 * min(values), 1.25 * max(values)) if values else (math.nan, math.nan)
    return [_panel(part, xlabel, deepest, limits, palette) for part in parts]


def _panel(part: WordGroups, xlabel: str, deepest: int, limits: tuple[float, float], palette: Palette) -> Panel:
    figure, (above, below) = canvas((4.6, 4.1), (1.25, 1.0), 8.5)
    colour, marker = palette[part.label]
    places = np.arange(len(part.names))
    for depth, shares in enumerate(part.shares.T):
        for place, share in zip(places, shares, strict=True):
            if share > 0:
                above.bar(place, 0.9, 0.86, depth - 0.45, color=colour, alpha=0.75 * float(share), linewidth=0)
    mean, std = part.mean, part.std
    above.vlines(places, mean - std, mean + std, color=INK, linewidth=1.0)
    above.plot(places, mean, color=INK, linewidth=1.2)
    if part.effective is not None:
        above.plot(places, array(part.effective), color=INK, linewidth=1.2, linestyle=OPEN)
    above.set(ylabel="inner steps", ylim=(-0.5, deepest + 0.5))
    above.set_yticks(range(deepest + 1))
    own, follows = array(part.perplexity), array(part.next_perplexity)
    below.plot(places, own, color=colour, linewidth=1.6, linestyle=OWN)
    below.plot(places, follows, color=MUTED, linewidth=1.4, linestyle=NEXT)
    below.set_ylabel("perplexity")
    scale_y(below, *limits, log=True)
    for few, faces in ((False, (INK, colour, MUTED)), (True, (PAPER, PAPER, PAPER))):
        chosen = (np.array(part.words) < FEW) == few
        for ax, values, edge, shape, face in (
            (above, mean, INK, "o", faces[0]),
            (below, own, colour, marker, faces[1]),
            (below, follows, MUTED, "o", faces[2]),
        ):
            ax.plot(places[chosen], values[chosen], shape, color=edge, markerfacecolor=face, markersize=4)
    for ax in (above, below):
        ax.set_xlim(-0.6, len(places) - 0.4)
        ax.grid(False, axis="x")
        ax.set_xticks(places, part.ticks)
        for text in ax.get_xticklabels():
            text.set_parse_math(False)
    above.tick_params(bottom=False, labelbottom=False)
    below.set_xlabel(xlabel)
    figure.align_ylabels()
    words = "; ".join(
        f"{name}: {m:.2f} inner steps, perplexity {measured(p)}"
        for name, m, p in zip(part.names, mean, own, strict=True)
    )
    return Panel(part.label, figure, f"Inner steps and perplexity by {xlabel}, {part.label}. {words}.")
