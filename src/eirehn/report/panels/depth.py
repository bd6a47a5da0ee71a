"""How much depth a model spends: how often, and where the generator had needed it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..content import DepthHistogram, TrueDepth
from ..palette import INK, LINE, MUTED, PAPER, Palette
from .panel import LARGE, SMALL, Panel, array, canvas, whole_x

DASHES = ("solid", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
FEW = 20
"""Time steps below which a mean is drawn hollow: too few to lean on."""


def mean_depth(histogram: DepthHistogram) -> float:
    counts = array(histogram.counts)
    return float((counts * np.arange(len(counts))).sum() / counts.sum())


def histogram_panels(histograms: Sequence[DepthHistogram], palette: Palette) -> list[Panel]:
    deepest = max(len(histogram.counts) for histogram in histograms) - 1
    return [_histogram(histogram, deepest, palette) for histogram in histograms]


def _histogram(histogram: DepthHistogram, deepest: int, palette: Palette) -> Panel:
    figure, (ax,) = canvas(SMALL)
    counts = array(histogram.counts)
    shares = 100 * counts / counts.sum()
    depths = np.arange(len(shares))
    ax.bar(depths, shares, width=0.78, color=palette[histogram.label].colour)
    if deepest <= 12:
        for depth, share in zip(depths, shares, strict=True):
            if share > 0:
                text = f"{share:.0f}" if share >= 1 else "<1"
                ax.text(float(depth), share + 1.5, text, ha="center", va="bottom", fontsize=7.5, color=MUTED)
    mean = mean_depth(histogram)
    ax.plot(mean, 0, "^", color=INK, markeredgecolor=PAPER, markersize=7, clip_on=False, zorder=5)
    ax.set(xlabel="inner steps spent", ylabel="time steps (%)", xlim=(-0.6, deepest + 0.6), ylim=(0, 112))
    ax.set_yticks([0, 25, 50, 75, 100])
    ax.grid(False, axis="x")
    whole_x(ax)
    words = ", ".join(f"{depth}: {share:.1f} %" for depth, share in zip(depths, shares, strict=True) if share > 0)
    return Panel(
        f"{histogram.label}: mean {mean:.2f}",
        figure,
        f"Share of time steps by inner steps spent, {histogram.label}: {words}.",
    )


def true_depth_panel(lines: Sequence[TrueDepth], palette: Palette) -> Panel:
    figure, (ax,) = canvas(LARGE)
    words, top = [], 1.0
    for index, line in enumerate(lines):
        colour, marker = palette[line.label]
        taken, mean, std, count = map(array, (line.taken, line.spent_mean, line.spent_std, line.count))
        ax.fill_between(taken, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)
        ax.plot(taken, mean, color=colour, linewidth=1.7, linestyle=DASHES[index % len(DASHES)])
        for few, face in ((False, colour), (True, PAPER)):
            chosen = (count < FEW) == few
            ax.plot(taken[chosen], mean[chosen], marker, color=colour, markerfacecolor=face, markersize=5)
        top = max(top, float(np.nanmax(mean + np.nan_to_num(std), initial=0.0)))
        words.append(
            f"{line.label}: "
            + ", ".join(f"{m:.1f} at {t}" for t, m in zip(line.taken, mean, strict=True) if math.isfinite(m))
        )
    deepest = max(max(line.taken) for line in lines)
    diagonal = min(float(deepest), top)
    ax.plot([0, diagonal], [0, diagonal], color=LINE, linewidth=1.0, linestyle=(0, (2, 2)), zorder=1)
    ax.set(
        xlabel="inner steps the generator took",
        ylabel="inner steps the model spent",
        ylim=(0, math.ceil(top * 10) / 10 + 0.2),
    )
    ax.set_xlim(0.5, deepest + 0.5)
    whole_x(ax)
    return Panel("", figure, "Mean inner steps spent against those the generator took. " + "; ".join(words) + ".")
