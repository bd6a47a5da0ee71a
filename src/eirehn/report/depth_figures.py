"""Plots of depth: its distribution, its relation to the input, its cost, and results with a cap."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .content import DepthHistogram, EarlyCurve, Example, Passage, Report, Saving, TrueDepth, WordGroups
from .figures import (
    DASHED,
    DASHES,
    FEW,
    LARGE,
    SMALL,
    SPENT,
    TAKEN,
    Floats,
    Panel,
    array,
    axis_label,
    canvas,
    draw_floor,
    from_to,
    positive,
    readable_on,
    scale_y,
    shade,
    whole_x,
)
from .palette import INK, LINE, MUTED, PAPER, style_of, tint
from .tables import Metric, as_float, measured

NUMBERED = 26
"""Largest number of time steps with numbers in the cells."""
OPEN, FIXED = (0, (1, 1)), (0, (1.5, 2))
SAME = 0.05
"""A difference of inner steps that is not visible."""
_FAMILY = re.compile(r"[\s,(]+(?=(?:penalty|depth)\b)", re.IGNORECASE)
_POWERS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def differs(report: Report) -> bool:
    """Whether depth differs visibly within a sequence that the report shows."""
    spent: list[Sequence[float]] = [example.spent for example in report.examples]
    spent += [window.depth for window in report.windows]
    spent += [passage.depth for passage in report.passages if passage.taken is None]
    return any(max(depths) - min(depths) >= SAME for depths in spent)


def mean_depth(histogram: DepthHistogram) -> float:
    counts = array(histogram.counts)
    return float((counts * np.arange(len(counts))).sum() / counts.sum())


def spent_in_words(histogram: DepthHistogram) -> str:
    depth, most = max(enumerate(histogram.counts), key=lambda each: each[1])
    return (
        f"{histogram.label} takes {mean_depth(histogram):.2f} inner steps on average, most often {depth} "
        f"({100 * most / sum(histogram.counts):.0f} %)"
    )


def histogram_panels(histograms: Sequence[DepthHistogram]) -> list[Panel]:
    deepest = max(len(histogram.counts) for histogram in histograms) - 1
    return [_histogram(histogram, deepest) for histogram in histograms]


def _histogram(histogram: DepthHistogram, deepest: int) -> Panel:
    figure, (ax,) = canvas(SMALL)
    counts = array(histogram.counts)
    shares = 100 * counts / counts.sum()
    taken = [(depth, float(share)) for depth, share in enumerate(shares) if share > 0]
    ax.bar(range(len(shares)), shares, width=0.78, color=style_of(histogram.label).colour)
    for depth, share in taken if deepest <= 12 else ():
        text = f"{share:.0f}" if share >= 1 else "<1"
        ax.text(depth, share + 1.5, text, ha="center", va="bottom", fontsize=7.5, color=MUTED)
    mean = mean_depth(histogram)
    ax.plot(mean, 0, "^", color=INK, markeredgecolor=PAPER, markersize=7, clip_on=False, zorder=5)
    ax.set(xlabel="inner steps", ylabel="time steps (%)", xlim=(-0.6, deepest + 0.6), ylim=(0, 112))
    ax.set_yticks([0, 25, 50, 75, 100])
    ax.grid(False, axis="x")
    whole_x(ax)
    words = ", ".join(f"{depth}: {share:.1f} %" for depth, share in taken)
    alt = f"Share of time steps by inner steps, {histogram.label}: {words}."
    return Panel(f"{histogram.label}: mean {mean:.2f}", figure, alt)


def true_depth_panel(lines: Sequence[TrueDepth]) -> Panel:
    """Depth of the model against that of the generator."""
    figure, (ax,) = canvas(LARGE)
    words, top = [], 1.0
    for index, line in enumerate(lines):
        colour, marker = style_of(line.label)
        taken, mean, std, count = map(array, (line.taken, line.spent_mean, line.spent_std, line.count))
        ax.fill_between(taken, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)
        ax.plot(taken, mean, color=colour, linewidth=1.7, linestyle=DASHES[index % len(DASHES)])
        for few, face in ((False, colour), (True, PAPER)):
            chosen = (count < FEW) == few
            ax.plot(taken[chosen], mean[chosen], marker, color=colour, markerfacecolor=face, markersize=5)
        top = max(top, float(np.nanmax(mean + np.nan_to_num(std), initial=0.0)))
        points = [f"{m:.1f} at {t}" for t, m in zip(line.taken, mean, strict=True) if math.isfinite(m)]
        words.append(f"{line.label}: {', '.join(points)}")
    deepest = max(max(line.taken) for line in lines)
    diagonal = min(float(deepest), top)
    ax.plot([0, diagonal], [0, diagonal], color=LINE, linewidth=1.0, linestyle=(0, (2, 2)), zorder=1)
    ax.set(xlabel="inner steps of the generator", ylabel="inner steps of the model")
    ax.set(xlim=(0.5, deepest + 0.5), ylim=(0, math.ceil(top * 10) / 10 + 0.2))
    whole_x(ax)
    return Panel("", figure, f"Mean inner steps of the model against those of the generator. {'; '.join(words)}.")


def rise(line: TrueDepth) -> str:
    points = zip(line.taken, array(line.spent_mean), line.count, strict=True)
    sure = [(taken, mean) for taken, mean, number in points if number >= FEW]
    if len(sure) < 2:
        return ""
    (low, first), (high, last) = sure[0], sure[-1]
    return (
        f"{line.label}: {first:.1f} inner steps where the generator takes {low}, {last:.1f} where it takes {high}."
    )


def early_panel(curves: Sequence[EarlyCurve], floor: float, metric: Metric) -> Panel:
    """The metric when depth is capped at inference."""
    figure, (ax,) = canvas(LARGE)
    words = []
    for index, curve in enumerate(curves):
        colour, marker = style_of(curve.label)
        caps, mean = array(curve.caps), array(curve.mean) * metric.scale
        if curve.std is not None:
            std = np.nan_to_num(array(curve.std)) * metric.scale
            # The lower edge must be positive on a log scale.
            low = np.maximum(mean - std, 0.2 * mean) if metric.lower_is_better else mean - std
            ax.fill_between(caps, low, mean + std, color=colour, alpha=0.16, linewidth=0)
        ax.plot(caps, mean, color=colour, linewidth=1.8, linestyle=DASHES[index % len(DASHES)])
        ax.plot(caps, mean, marker, color=colour, markersize=5)
        ends = [f"{measured(mean[end])} with at most {curve.caps[end]}" for end in (0, -1)]
        words.append(f"{curve.label}: {', '.join(ends)}")
    draw_floor(ax, floor * metric.scale)
    values = positive(value * metric.scale for curve in curves for value in array(curve.mean))
    if values and metric.lower_is_better and max(values) > 4 * min(values):
        least = min([*values, *positive([floor * metric.scale])])
        scale_y(ax, 0.85 * least, 1.25 * max(values), log=True)
    if metric.metric_unit == "%":
        ax.set_ylim(max(ax.get_ylim()[0], 0.0), min(ax.get_ylim()[1], 100.0))
    ax.set(xlabel="cap on inner steps", ylabel=axis_label(metric.metric_name, metric.metric_unit))
    whole_x(ax)
    return Panel("", figure, f"{metric.metric_name} against the cap on depth. {'; '.join(words)}.")


def savings_panels(savings: Sequence[Saving], floor: float, metric: Metric) -> list[Panel]:
    """The metric against the cost, in inner steps and in time."""
    drawn = [saving for saving in savings if math.isfinite(as_float(saving.mean))]

    def panel(title: str, cost: Callable[[Saving], float], xlabel: str) -> Panel:
        figure, (ax,) = canvas(LARGE)
        for group in dict.fromkeys(map(family, drawn)):
            members = sorted((saving for saving in drawn if family(saving) == group), key=cost)
            _draw_family(ax, members, cost, metric)
        draw_floor(ax, floor * metric.scale)
        ax.margins(x=0.1, y=0.14)
        ax.set(xlabel=xlabel, ylabel=axis_label(metric.metric_name, metric.metric_unit))
        ax.set_xlim(left=0)
        words = "; ".join(f"{s.label}: {measured(float(s.mean) * metric.scale)} at {cost(s):.3g}" for s in drawn)
        return Panel(title, figure, f"{metric.metric_name} against {xlabel}. {words}.")

    return [
        panel("Against inner steps", lambda saving: float(saving.depth), "mean inner steps a time step"),
        panel("Against time", lambda saving: float(saving.milliseconds), "milliseconds, measured"),
    ]


def _draw_family(ax: Axes, members: Sequence[Saving], cost: Callable[[Saving], float], metric: Metric) -> None:
    elastic = members[0].group == "elastic"
    colour, marker = style_of(members[0].label)
    x = array(cost(saving) for saving in members)
    y, std = (array(getattr(saving, name) for saving in members) * metric.scale for name in ("mean", "std"))
    ax.errorbar(x, y, np.nan_to_num(std, posinf=0.0), fmt="none", ecolor=colour, elinewidth=0.9, alpha=0.6)
    dash, width, face = ("solid", 1.8, colour) if elastic else (FIXED, 1.1, PAPER)
    ax.plot(x, y, color=colour, linestyle=dash, linewidth=width, zorder=3)
    ax.plot(x, y, marker, color=colour, markerfacecolor=face, markersize=6, markeredgewidth=1.4, zorder=4)
    # Labels of elastic models are on the better side of their line, those of fixed ones on the other.
    down = elastic == metric.lower_is_better
    left = elastic or down  # the side away from the line, which gets better with cost
    place: dict[str, Any] = {"xytext": (-4 if left else 4, -5 if down else 5), "ha": "right" if left else "left"}
    place["va"] = "top" if down else "bottom"
    for saving, point in zip(members, zip(x, y, strict=True), strict=True):
        text = ax.annotate(beside(saving), point, textcoords="offset points", fontsize=8, color=colour, **place)
        text.set_parse_math(False)


def family(saving: Saving) -> tuple[str, str]:
    """The line that a point belongs to: its label up to penalty or depth, `RHN-20` of `RHN-20, depth 3`."""
    return saving.group, _FAMILY.split(saving.label, maxsplit=1)[0].strip() or saving.label


def families(savings: Sequence[Saving]) -> list[tuple[str, Saving]]:
    """The name of each, and its first point."""
    first = {family(saving): saving for saving in reversed(savings)}
    return [(group[1], first[group]) for group in dict.fromkeys(map(family, savings))]


def beside(saving: Saving) -> str:
    """The label of a point: the depth penalty, or the rest of its label after the family, such as its depth."""
    if saving.penalty is not None:
        return penalty_text(saving.penalty) if saving.penalty else "no penalty"
    return saving.label.removeprefix(family(saving)[1]).strip(" ,()").removeprefix("depth ") or saving.label


def penalty_text(penalty: float) -> str:
    if penalty == 0 or 1e-2 <= penalty < 1e4:
        return f"{penalty:g}"
    digits, power = f"{penalty:.2e}".split("e")
    head = "" if float(digits) == 1 else f"{float(digits):g}·"
    return f"{head}10{str(int(power)).translate(_POWERS)}"


def deepest_of(examples: Sequence[Example]) -> tuple[int, int]:
    """The largest depth of the model and of the generator."""
    return max(max(example.spent) for example in examples), max(max(example.taken) for example in examples)


def example_panels(examples: Sequence[Example], scale: float) -> list[Panel]:
    """Test sequences, with the depth of the model and of the generator at each time step."""
    deepest = deepest_of(examples)
    top = max(float(np.nanmax(array(example.error), initial=0.0)) for example in examples) * scale
    return [_example(index, example, deepest, top, scale) for index, example in enumerate(examples, 1)]


def _example(index: int, example: Example, deepest: tuple[int, int], top: float, scale: float) -> Panel:
    rows = (3.2, 0.55, 0.55, 0.9)
    figure, axes = canvas((4.6, 0.45 + 0.48 * sum(rows)), rows, 8.5)
    curve, model, generator, error = axes
    points, steps = np.array(example.x, np.float64), array(range(1, len(example.x) + 1))  # (T, 2), (T,)
    colours = [shade(SPENT, depth, deepest[0]) for depth in example.spent]
    _draw_points(curve, points, steps, colours)
    _draw_cells(model, steps, example.spent, colours, "model")
    _draw_cells(generator, steps, example.taken, [shade(TAKEN, d, deepest[1]) for d in example.taken], "generator")
    error.bar(steps, array(example.error) * scale, width=0.8, color=MUTED)
    error.set_ylabel("error", rotation=0, ha="right", va="center")
    error.set_ylim(0, top * 1.05 or 1.0)
    error.set_yticks([0, top] if top else [0], ["0", f"{top:.2g}"] if top else ["0"])
    error.grid(False, axis="x")
    for ax in axes:
        ax.set_xlim(0.4, len(steps) + 0.6)
    for ax in axes[:-1]:
        ax.tick_params(bottom=False, labelbottom=False)
    error.set_xticks([step for step in steps if step == 1 or step % (5 if len(steps) <= 40 else 20) == 0])
    error.set_xlabel("time step")
    spent, taken = (", ".join(map(str, each)) for each in (example.spent, example.taken))
    words = f"Example sequence {index} over {len(steps)} time steps. Inner steps of the model: {spent}."
    return Panel(f"Example {index}", figure, f"{words} Of the generator: {taken}.")


def _draw_points(ax: Axes, points: Floats, steps: Floats, colours: list[str]) -> None:
    for column, (name, style, marker) in enumerate((("x₁", "solid", "o"), ("x₂", DASHED, "s"))):
        y = points[:, column]
        ax.plot(steps, y, color=MUTED, linewidth=0.9, linestyle=style, zorder=2)
        ax.scatter(steps, y, c=colours, s=24, marker=marker, edgecolors=INK, linewidths=0.6, zorder=3)
        # Keeps the two names apart if the lines end close together.
        va = "bottom" if y[-1] > points[-1, 1 - column] else "top"
        end = (float(steps[-1]), float(y[-1]))
        ax.annotate(name, end, (6, 0), textcoords="offset points", va=va, fontsize=8.5, color=MUTED)
    ax.set_ylabel("x", rotation=0, ha="right", va="center")
    ax.margins(y=0.1)


def _draw_cells(ax: Axes, steps: Floats, depths: Sequence[int], colours: list[str], name: str) -> None:
    ax.bar(steps, 1.0, width=1.0, color=colours, edgecolor=PAPER, linewidth=0.8)
    if len(steps) <= NUMBERED:
        for step, depth, colour in zip(steps, depths, colours, strict=True):
            ax.text(step, 0.47, str(depth), ha="center", va="center", fontsize=7.5, color=readable_on(colour))
    ax.set_ylabel(name, rotation=0, ha="right", va="center")
    ax.set_yticks([])
    ax.set_ylim(0, 1)
    ax.spines[:].set_visible(False)


def word_panels(parts: Sequence[WordGroups], xlabel: str) -> list[Panel]:
    """By groups of words: how often each depth is taken, its mean, and the perplexity; all on one scale."""
    deepest = max(len(part.counts[0]) for part in parts) - 1
    values = positive(
        float(value) for part in parts for value in (*array(part.perplexity), *array(part.next_perplexity))
    )
    limits = (0.8 * min(values), 1.25 * max(values)) if values else (math.nan, math.nan)
    return [_words(part, xlabel, deepest, limits) for part in parts]


def _words(part: WordGroups, xlabel: str, deepest: int, limits: tuple[float, float]) -> Panel:
    figure, (above, below) = canvas((4.6, 4.1), (1.25, 1.0), 8.5)
    colour, marker = style_of(part.label)
    places, mean = np.arange(len(part.names)), part.mean
    own, follows = array(part.perplexity), array(part.next_perplexity)
    _draw_spent(above, part, colour, deepest)
    below.plot(places, own, color=colour, linewidth=1.6)
    below.plot(places, follows, color=MUTED, linewidth=1.4, linestyle=DASHED)
    below.set_ylabel("perplexity")
    scale_y(below, *limits, log=True)
    for few in (False, True):
        chosen = (np.array(part.words) < FEW) == few
        marks = ((above, mean, INK, "o"), (below, own, colour, marker), (below, follows, MUTED, "o"))
        for ax, values, edge, shape in marks:
            face = PAPER if few else edge
            ax.plot(places[chosen], values[chosen], shape, color=edge, markerfacecolor=face, markersize=4)
    for ax in (above, below):
        ax.set_xlim(-0.6, len(places) - 0.4)
        ax.grid(False, axis="x")
        ax.set_xticks(places, part.ticks, parse_math=False)
    above.tick_params(bottom=False, labelbottom=False)
    below.set_xlabel(xlabel)
    figure.align_ylabels()
    words = "; ".join(
        f"{name}: {m:.2f} inner steps, perplexity {measured(p)}"
        for name, m, p in zip(part.names, mean, own, strict=True)
    )
    return Panel(part.label, figure, f"Inner steps and perplexity by {xlabel}, {part.label}. {words}.")


def _draw_spent(ax: Axes, part: WordGroups, colour: str, deepest: int) -> None:
    for (place, depth), share in np.ndenumerate(part.shares):
        if share > 0:
            ax.bar(place, 0.9, 0.86, depth - 0.45, color=colour, alpha=0.75 * float(share), linewidth=0)
    places, mean, std = np.arange(len(part.names)), part.mean, part.std
    ax.vlines(places, mean - std, mean + std, color=INK, linewidth=1.0)
    ax.plot(places, mean, color=INK, linewidth=1.2)
    if part.effective is not None:
        ax.plot(places, array(part.effective), color=INK, linewidth=1.2, linestyle=OPEN)
    ax.set(ylabel="inner steps", ylim=(-0.5, deepest + 0.5))
    ax.set_yticks(range(deepest + 1))


def extremes(part: WordGroups) -> str:
    sure = [index for index, words in enumerate(part.words) if words >= FEW]
    if len(sure) < 2:
        return ""
    spent = {part.names[index]: float(part.mean[index]) for index in sure}
    most = max(spent.values())
    if most - min(spent.values()) >= SAME:
        return f"{part.label} takes {from_to(spent)}."
    same = f"{part.label} takes nearly the same in each group, {most:.2f}"
    if part.effective is None:
        return f"{same}."
    return f"{same}; effective depth is {from_to({part.names[i]: float(part.effective[i]) for i in sure})}."


def passage_scale(passages: Sequence[Passage]) -> list[float]:
    """The depths in the legend, in ascending order: all of them if they are whole numbers."""
    depths = [float(depth) for passage in passages for depth in passage.depth]
    low, high = min(depths), max(depths)
    if all(depth.is_integer() for depth in depths):
        return [float(depth) for depth in range(int(low), int(high) + 1)]
    return [float(depth) for depth in np.linspace(low, high, 8)]


def depth_tint(depth: float, low: float, high: float, colour: str) -> str:
    share = (depth - low) / (high - low) if high > low else 0.5
    return tint(colour, 0.04 + 0.46 * share)  # ink stays readable on the strongest, in both schemes
