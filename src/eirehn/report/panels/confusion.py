"""Confusion matrices: of each class, what part was taken for which."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..classification import Confusion
from ..palette import FLOOR, GRID, INK, MUTED, Palette
from .panel import LARGE, Floats, Panel, canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUMBERED = 12
"""Classes up to which the number fits into its cell."""
WRONG = FLOOR
# Ink stays readable on the strongest tint, in both schemes.
FAINT, STRONG = 0.07, 0.5


def confusion_panels(confusions: Sequence[Confusion], palette: Palette) -> list[Panel]:
    """Mistakes are tinted on a scale of their own, the same in all: on that of what is right none would be seen."""
    worst = worst_mistake(confusions)
    return [_panel(each, worst, palette) for each in confusions]


def worst_mistake(confusions: Sequence[Confusion]) -> float:
    """The largest share of a class that is taken for another, where the scale ends; it does not end below 5 %."""
    return max(0.05, *(float(np.nanmax(mistakes(each), initial=0.0)) for each in confusions))


def mistakes(confusion: Confusion) -> Floats:
    """`confusion.shares` with zeros for what is right."""
    return confusion.shares * (1 - np.eye(len(confusion.classes)))


def overall(confusion: Confusion) -> float:
    total = confusion.summed.sum()
    return float(confusion.summed.trace() / total) if total else math.nan


def largest_mistakes(confusion: Confusion, number: int) -> list[tuple[str, str, float]]:
    """What is taken for what, and the share of it that is, the largest first."""
    wrong = np.nan_to_num(mistakes(confusion))
    order = np.argsort(-wrong, axis=None, kind="stable")[:number]
    pairs = [divmod(int(index), len(confusion.classes)) for index in order]
    return [(confusion.classes[i], confusion.classes[j], float(wrong[i, j])) for i, j in pairs if wrong[i, j] > 0]


def share_text(share: float) -> str:
    if not share >= 0.0005:
        return ""
    return "100" if share == 1 else f"{100 * share:.1f}"


def _panel(confusion: Confusion, worst: float, palette: Palette) -> Panel:
    from matplotlib.patches import Rectangle

    number = len(confusion.classes)
    figure, (ax,) = canvas((LARGE[0], min(0.95 + 0.43 * number, LARGE[0])), font=8.0)
    shares = confusion.shares
    colour = palette[confusion.label].colour
    for true in range(number):
        for taken in range(number):
            share, right = float(shares[true, taken]), true == taken
            ax.add_patch(
                Rectangle(
                    (taken - 0.47, true - 0.47),
                    0.94,
                    0.94,
                    facecolor=(colour if right else WRONG) if share > 0 else GRID,
                    alpha=strength(share if right else share / worst) if share > 0 else 0.5,
                    linewidth=0,
                )
            )
            if number <= NUMBERED:
                weight = "bold" if right else "normal"
                text = share_text(share)
                ax.text(
                    taken, true, text, ha="center", va="center_baseline", fontsize=8, color=INK, fontweight=weight
                )
    _name_axes(ax, confusion.classes)
    accuracy = overall(confusion)
    words = [
        f"{name} {share_text(float(share)) or '0'} % right"
        for name, share in zip(confusion.classes, shares.diagonal(), strict=True)
        if math.isfinite(share)
    ]
    words += [
        f"{true} taken for {taken}: {100 * share:.1f} %" for true, taken, share in largest_mistakes(confusion, 4)
    ]
    title = f"{confusion.label}: {100 * accuracy:.2f} % right" if math.isfinite(accuracy) else confusion.label
    return Panel(title, figure, f"Confusion matrix of {confusion.label}. " + "; ".join(words) + ".")


def strength(share: float) -> float:
    return FAINT + (STRONG - FAINT) * min(share, 1.0)


def _name_axes(ax: Axes, classes: Sequence[str]) -> None:
    number = len(classes)
    names = [wrapped(name) for name in classes]
    ax.set(xlim=(-0.5, number - 0.5), ylim=(number - 0.5, -0.5), xlabel="taken for", ylabel="true class")
    ax.set_yticks(range(number), names)
    # Words that are broader than their cell stand upright.
    broad = max(len(line) for name in names for line in name.split("\n")) * number > 66
    ax.set_xticks(range(number), list(classes) if broad else names, rotation=90 if broad else 0)
    for label in (*ax.get_xticklabels(), *ax.get_yticklabels()):
        label.set(parse_math=False, fontsize=7.5 if number <= NUMBERED else 6.0, color=MUTED, linespacing=1.0)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.grid(False)


def wrapped(name: str) -> str:
    """In two lines where it has a space, broken where these come out shortest."""
    spaces = [index for index, letter in enumerate(name) if letter == " "]
    if not spaces:
        return name
    middle = min(spaces, key=lambda index: max(index, len(name) - index - 1))
    return name[:middle] + "\n" + name[middle + 1 :]
