"""Plots of classification: confusion matrices, recall and depth by class, and single test sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from .content import ClassDepth, Confusion, Window
from .figures import COLOURS, LARGE, SPENT, Floats, Panel, array, canvas, from_to, shade, whole_x
from .palette import FLOOR, GRID, INK, MUTED, PAPER, style_of, tint
from .tables import MISSING

NUMBERED = 12
"""Largest number of classes with numbers in the cells."""
WIDEST = 0.7
"""Mean width of a letter in wide fonts, as a share of the font size."""
LONGEST = 30
"""Letters of a class's name in a figure; tables have all of it."""
CELLS = 250
"""Points that all cells of a confusion matrix are wide, together."""
WRONG = FLOOR
# Ink stays readable on the strongest tint, in both schemes.
FAINT, STRONG = 0.07, 0.5
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
NARROWEST = 0.2
"""Least inner steps that a scale covers, so that nearly equal classes look equal."""
STYLES = ("solid", (0, (4, 1)), (0, (1.2, 0.8)), (0, (5, 1, 1, 1)))
MOST_GROUPS = 4

Limits = tuple[float, float]
Group = tuple[str, list[tuple[str, int]]]
"""A heading, and the name and column of each of its signals."""


def confusion_panels(confusions: Sequence[Confusion]) -> list[Panel]:
    """Mistakes have their own colour scale, the same in all panels, as they are rare."""
    worst = worst_mistake(confusions)
    return [_confusion(each, worst) for each in confusions]


def worst_mistake(confusions: Sequence[Confusion]) -> float:
    """The end of the scale of mistakes: the largest share of a class predicted as another, at least 5 %."""
    return max(0.05, *(float(np.nanmax(mistakes(each), initial=0.0)) for each in confusions))


def mistakes(confusion: Confusion) -> Floats:
    """`confusion.shares` with zeros for what is correct."""
    return confusion.shares * (1 - np.eye(len(confusion.classes)))


def largest_mistakes(confusion: Confusion, number: int) -> list[tuple[str, str, float]]:
    """True class, predicted class, and the share of the true one that this is, the largest first."""
    wrong = np.nan_to_num(mistakes(confusion))
    order = np.argsort(-wrong, axis=None, kind="stable")[:number]
    pairs = [divmod(int(index), len(confusion.classes)) for index in order]
    return [(confusion.classes[i], confusion.classes[j], float(wrong[i, j])) for i, j in pairs if wrong[i, j] > 0]


def share_text(share: float) -> str:
    if not share >= 0.0005:
        return ""
    return "100" if share == 1 else f"{100 * share:.1f}"


def percentage(share: float) -> str:
    return share_text(share) or ("0" if math.isfinite(share) else MISSING)


def strength(share: float) -> float:
    return FAINT + (STRONG - FAINT) * min(share, 1.0)


def mistake_tints() -> list[str]:
    return [tint(WRONG, strength(step / 6)) for step in range(7)]


def _confusion(confusion: Confusion, worst: float) -> Panel:
    number = len(confusion.classes)
    figure, (ax,) = canvas((LARGE[0], min(0.95 + 0.43 * number, LARGE[0])), font=8.0)
    for (true, predicted), share in np.ndenumerate(confusion.shares):
        right = true == predicted
        colour, tint = (style_of(confusion.label).colour, share) if right else (WRONG, share / worst)
        colour, alpha = (colour, strength(float(tint))) if share > 0 else (GRID, 0.5)
        cell = Rectangle((predicted - 0.47, true - 0.47), 0.94, 0.94, facecolor=colour, alpha=alpha, linewidth=0)
        ax.add_patch(cell)
        if number <= NUMBERED:
            text = ax.text(predicted, true, share_text(float(share)), ha="center", va="center_baseline", color=INK)
            text.set(fontsize=8, fontweight="bold" if right else "normal")
    _name_axes(ax, confusion.classes)
    words = [
        f"{name} {share_text(float(share)) or '0'} % correct"
        for name, share in zip(confusion.classes, confusion.shares.diagonal(), strict=True)
        if math.isfinite(share)
    ]
    words += [f"{true} predicted as {wrong}: {100 * s:.1f} %" for true, wrong, s in largest_mistakes(confusion, 4)]
    total = confusion.summed.sum()
    title = confusion.label + (f": {100 * confusion.summed.trace() / total:.2f} % correct" if total else "")
    return Panel(title, figure, f"Confusion matrix of {confusion.label}. {'; '.join(words)}.")


def _name_axes(ax: Axes, classes: Sequence[str]) -> None:
    number, size = len(classes), 7.5 if len(classes) <= NUMBERED else 6.0
    classes = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in classes]
    names = [wrapped(name) for name in classes]
    longest = max(len(line) for name in names for line in name.split("\n"))
    # A reader's font may be wider than the one that the layout is computed with.
    if longest * WIDEST * size > CELLS / number:
        shown, rows = (
            [str(place) for place in range(1, number + 1)],
            [f"{n}. {c}" for n, c in enumerate(classes, 1)],
        )
        longest = max(map(len, rows))
    else:
        shown = rows = names
    ax.set(xlim=(-0.5, number - 0.5), ylim=(number - 0.5, -0.5), xlabel="predicted class")
    ax.set_ylabel("true class", labelpad=4 + 0.12 * longest * size)
    ax.set_yticks(range(number), rows)
    ax.set_xticks(range(number), shown)
    for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
        label.set(parse_math=False, fontsize=size, color=MUTED)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.grid(False)


def wrapped(name: str) -> str:
    """In two lines if it has a space, broken so that the longer one is shortest."""
    spaces = [index for index, letter in enumerate(name) if letter == " "]
    if not spaces:
        return name
    middle = min(spaces, key=lambda index: max(index, len(name) - index - 1))
    return name[:middle] + "\n" + name[middle + 1 :]


def class_marker(index: int) -> str:
    return MARKERS[index % len(MARKERS)]


def varies(part: ClassDepth) -> bool:
    """Whether the classes differ visibly in depth."""
    depth = array(part.depth)
    return bool(np.nanmax(depth, initial=-math.inf) - np.nanmin(depth, initial=math.inf) >= 0.05)


def class_range(part: ClassDepth) -> str:
    known = {name: float(d) for name, d in zip(part.classes, array(part.depth), strict=True) if math.isfinite(d)}
    if len(known) < 2:
        return ""
    if not varies(part):
        return f"{part.label} takes {max(known.values()):.2f} inner steps for every class."
    return f"{part.label} takes {from_to(known)}."


def class_depth_panels(parts: Sequence[ClassDepth]) -> list[Panel]:
    """Recall of each class against its depth, all on one scale."""
    accuracy = np.concatenate([_reach(part.accuracy, part.accuracy_std) for part in parts])
    low = max(100 * float(np.nanmin(accuracy, initial=1.0)), 0.0)
    depth = np.concatenate([_reach(part.depth, part.depth_std) for part in parts])
    least, most = float(np.nanmin(depth, initial=math.inf)), float(np.nanmax(depth, initial=-math.inf))
    half = max(0.6 * (most - least), NARROWEST / 2)
    centre = (least + most) / 2 if least <= most else 0.0
    margin = 0.12 * (100 - low) or 1.0
    limits = (max(centre - half, 0.0), centre + half), (low - margin, 100 + margin)
    return [_class_depth(part, limits) for part in parts]


def _spread(mean: Floats, std: Sequence[float] | None) -> Floats:
    return np.zeros_like(mean) if std is None else np.nan_to_num(array(std))


def _reach(values: Sequence[float], std: Sequence[float] | None) -> Floats:
    """Means and the ends of their error bars."""
    mean = array(values)
    spread = _spread(mean, std)
    return np.concatenate([mean - spread, mean, mean + spread])


def _class_depth(part: ClassDepth, limits: tuple[Limits, Limits]) -> Panel:
    """The legend has the class of each marker."""
    figure, (ax,) = canvas(LARGE)
    colour = style_of(part.label).colour
    depth, accuracy = array(part.depth), 100 * array(part.accuracy)
    dx, dy = _spread(depth, part.depth_std), 100 * _spread(accuracy, part.accuracy_std)
    words = []
    for index, (name, x, y) in enumerate(zip(part.classes, depth, accuracy, strict=True)):
        if not math.isfinite(x + y):
            continue
        bar: dict[str, Any] = {"color": colour, "linewidth": 1.0, "alpha": 0.55, "zorder": 3}
        ax.plot([x - dx[index], x + dx[index]], [y, y], **bar)
        ax.plot([x, x], [y - dy[index], min(y + dy[index], 100.0)], **bar)
        marker = class_marker(index)
        ax.plot(x, y, marker, color=colour, markeredgecolor=PAPER, markersize=8, markeredgewidth=0.8, zorder=4)
        words.append(f"{name}: {y:.1f} % at {x:.2f}")
    ax.set(xlim=limits[0], ylim=limits[1])
    ax.set(xlabel="mean inner steps a time step", ylabel="recall (%)")
    alt = f"Recall of each class against its mean inner steps, {part.label}. {'; '.join(words)}."
    return Panel(part.label, figure, alt)


def signal_groups(names: Sequence[str]) -> list[Group]:
    """Signals that share a plot, as `body acceleration x`, `… y` and `… z`: those that differ in the last word
    alone. Otherwise each has its own, as units may differ."""
    words = [(*name.rpartition(" ")[::2], column) for column, name in enumerate(names)]
    found = [
        (heading, [(last, column) for _, last, column in members])
        for heading, members in groupby(words, key=lambda each: each[0])
    ]
    if not all(heading and 1 < len(members) <= len(COLOURS) for heading, members in found):
        found = [(name, [(name, column)]) for column, name in enumerate(names)]
    return found


def shared_names(found: Sequence[Group]) -> list[str]:
    """The names of the lines, if they are the same under all headings."""
    names = {tuple(name for name, _ in members) for _, members in found}
    return list(names.pop()) if len(names) == 1 and len(found) > 1 else []


def deepest(windows: Sequence[Window]) -> float:
    return max(1.0, *(float(np.max(array(window.depth))) for window in windows))


def window_panels(windows: Sequence[Window]) -> list[Panel]:
    """The signals, and below them the depth; groups of signals and depth have the same scales in all panels."""
    drawn = signal_groups(windows[0].names)[:MOST_GROUPS]
    every = np.concatenate([_signals(window) for window in windows])
    limits = []
    for _, members in drawn:
        part = every[:, [column for _, column in members]]
        finite = part[np.isfinite(part)]
        limits.append((float(finite.min()), float(finite.max())) if len(finite) else None)
    return [_window(window, drawn, limits, deepest(windows)) for window in windows]


def _signals(window: Window) -> Floats:
    return np.stack([array(step) for step in window.signals])  # (T, X)


def _window(window: Window, drawn: Sequence[Group], limits: Sequence[Limits | None], top: float) -> Panel:
    figure, axes = canvas((4.6, 0.55 + 0.82 * len(drawn) + 0.62), [1.0] * len(drawn) + [0.72], 8.0)
    x, steps = _signals(window), np.arange(1, len(window.signals) + 1)
    for ax, (heading, members), ends in zip(axes, drawn, limits, strict=False):
        for (_, column), colour, style in zip(members, COLOURS, STYLES, strict=False):
            ax.plot(steps, x[:, column], color=colour, linewidth=1.1, linestyle=style)
        if ends is not None:
            margin = 0.05 * (ends[1] - ends[0]) or 1.0
            ax.set_ylim(ends[0] - margin, ends[1] + margin)
        _head(ax, heading)
    depth = array(window.depth)
    _draw_depth(axes[-1], depth, top)
    _head(axes[-1], "inner steps" if window.layers == 1 else f"inner steps, mean of the {window.layers} layers")
    for ax in axes:
        ax.set_xlim(0.5, len(steps) + 0.5)
    for ax in axes[:-1]:
        ax.tick_params(bottom=False, labelbottom=False)
    whole_x(axes[-1])
    axes[-1].set_xlabel("time step")
    title = f"{window.true}, predicted as {window.predicted}"
    if window.probability is not None:
        title = f"✓ {window.true}" if window.right else f"✗ {title}"
        title += f" with probability {100 * window.probability:.0f} %"
    title += f": {depth.mean():.2f} inner steps a time step"
    words = (
        f"A test sequence, {title}. Its signals over {len(steps)} time steps, and the inner steps at each, from "
        f"{depth.min():.3g} to {depth.max():.3g}."
    )
    return Panel(title, figure, words)


def _head(ax: Axes, text: str) -> None:
    ax.set_title(text, loc="left", fontsize=8, color=MUTED, pad=2.5, parse_math=False)
    ax.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))


def _draw_depth(ax: Axes, depth: Floats, top: float) -> None:
    # One bar for each run of equal depths, to keep the page small.
    edges = [0, *(np.flatnonzero(np.diff(depth)) + 1).tolist(), len(depth)]
    starts, ends = np.array(edges[:-1]), np.array(edges[1:])
    heights = depth[starts]
    colours = [shade(SPENT, float(height), top) for height in heights]
    ax.bar(starts + 0.5, heights, width=ends - starts, align="edge", color=colours, linewidth=0)
    ax.set_ylim(0, 1.08 * top)
    ax.grid(False, axis="x")
