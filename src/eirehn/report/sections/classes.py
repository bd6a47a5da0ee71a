"""Classification: what is taken for what, and the depth spent on each class."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..classification import ClassDepth
from ..content import Report
from ..elements import figure_block, fold, key, ramp_key, table, tint
from ..numbers import MISSING, as_float, count, with_spread
from ..palette import INK, Palette
from ..panels.classes import class_depth_panels, class_marker, varies
from ..panels.confusion import (
    WRONG,
    confusion_panels,
    largest_mistakes,
    share_text,
    strength,
    worst_mistake,
)
from ..panels.examples import SPENT, shade
from ..panels.windows import COLOURS, MOST_GROUPS, STYLES, deepest, groups, shared_names, window_panels


def confusion(report: Report, palette: Palette) -> str:
    seeds = max(len(each.counts) for each in report.confusions)
    caption = (
        "A row is a true class, and its numbers say what percentage of it was taken for which"
        + (f", over all {seeds} seeds" if seeds > 1 else "")
        + ". What is right stands on the diagonal; the stronger the other tint, the more common the mistake, on "
        "one scale in all panels. "
    )
    for each in report.confusions:
        if found := largest_mistakes(each, 2):
            listed = " and ".join(f"{true} for {taken} ({100 * share:.1f} % of it)" for true, taken, share in found)
            caption += f"{each.label} most often takes {listed}. "
    shades = [tint(WRONG, strength(share / 6)) for share in range(7)]
    worst = 100 * worst_mistake(report.confusions)
    keys = [ramp_key("mistakes", shades, 0, float(f"{worst:.3g}"), "% of the class")]
    rows = [
        [
            f"{each.label}: {name}",
            *(count(int(number)) for number in numbers),
            share_text(float(share)) or ("0" if math.isfinite(share) else MISSING),
            share_text(float(precision)) or ("0" if math.isfinite(precision) else MISSING),
        ]
        for each in report.confusions
        for name, numbers, share, precision in zip(
            each.classes, each.summed, each.shares.diagonal(), each.precision, strict=True
        )
    ]
    data = ""
    if len({tuple(each.classes) for each in report.confusions}) == 1:
        head = ["true class", *report.confusions[0].classes, "recall (%)", "precision (%)"]
        data = fold("The counts as a table", table(head, rows, "How many of each class were taken for which"))
    panels = confusion_panels(report.confusions, palette)
    return figure_block("confusion", panels, caption.strip(), keys=keys, data=data)


def class_depth(report: Report, palette: Palette) -> str:
    # Marks on one upright line would show nothing that the words do not say.
    drawn = [part for part in report.class_depths if varies(part)] or report.class_depths[:1]
    caption = (
        "Each mark is a class: how much of it is told, against the inner steps spent on its windows. Bars are one "
        "standard deviation over the seeds. "
        + " ".join(filter(None, map(_range, drawn)))
        + _rest([part for part in report.class_depths if not any(part is each for each in drawn)])
        + _layers(max(part.layers for part in report.class_depths))
    )
    classes = list(dict.fromkeys(name for part in report.class_depths for name in part.classes))
    keys = [key(name, INK, dash="", marker=class_marker(index)) for index, name in enumerate(classes)]
    rows = []
    for part in report.class_depths:
        nothing = [math.nan] * len(part.classes)
        for name, accuracy, accuracy_std, depth, depth_std, number in zip(
            part.classes,
            part.accuracy,
            nothing if part.accuracy_std is None else part.accuracy_std,
            part.depth,
            nothing if part.depth_std is None else part.depth_std,
            part.count,
            strict=True,
        ):
            rows.append(
                [
                    f"{part.label}: {name}",
                    with_spread(100 * as_float(accuracy), 100 * as_float(accuracy_std)),
                    with_spread(as_float(depth), as_float(depth_std)),
                    count(int(number)),
                ]
            )
    head = ["class", "right (%)", "inner steps", "sequences"]
    data = fold("The points as a table", table(head, rows, "Accuracy and depth by class"))
    panels = class_depth_panels(drawn, palette)
    layout = "two" if len(panels) > 1 else "one"
    return figure_block("class-depth", panels, caption.strip(), keys=keys, data=data, layout=layout)


def windows(report: Report, palette: Palette) -> str:
    top = deepest(report.windows)
    found = groups(report.windows[0].names)
    names = shared_names(found)
    keys = [key(name, colour, dash=style) for name, colour, style in zip(names, COLOURS, STYLES, strict=False)]
    whole = math.ceil(top)
    keys.append(ramp_key("depth", [shade(SPENT, depth, whole) for depth in range(whole + 1)], 0, whole))
    model = " and ".join(dict.fromkeys(window.label for window in report.windows))
    caption = (
        f"Windows of the test data as {model} reads them, from left to right: the signals, and at the foot the "
        "inner steps it spends on each time step. A tick is a window it tells rightly, a cross one that it does "
        "not, with the probability it gives its answer. Scales are the same in all."
    )
    if len(found) > MOST_GROUPS:
        shown = sum(len(members) for _, members in found[:MOST_GROUPS])
        caption += f" Drawn are the first {shown} of {len(report.windows[0].names)} signals."
    if frames := sorted({window.frame for window in report.windows} - {1}):
        caption += f" It reads {' or '.join(map(str, frames))} of the time steps at once."
    if report.windows_chosen:
        caption += f" {report.windows_chosen}"
    caption += _layers(max(window.layers for window in report.windows))
    return figure_block("windows", window_panels(report.windows), caption, keys=keys)


def _range(part: ClassDepth) -> str:
    known = [(as_float(depth), name) for name, depth in zip(part.classes, part.depth, strict=True)]
    known = [(depth, name) for depth, name in known if math.isfinite(depth)]
    if len(known) < 2:
        return ""
    (least, lowest), (most, highest) = min(known), max(known)
    if not varies(part):
        return f"{part.label} spends the same on every class, {most:.2f}."
    return f"{part.label} spends from {least:.2f} ({lowest}) to {most:.2f} ({highest})."


def _rest(parts: Sequence[ClassDepth]) -> str:
    if not parts:
        return ""
    names = "; ".join(part.label for part in parts)
    return f" Only in the table, for spending the same on every class: {names}."


def _layers(layers: int) -> str:
    return " Where a network has several layers, depth is the mean over them." if layers > 1 else ""
