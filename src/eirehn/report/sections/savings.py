"""What elastic depth saves."""

from __future__ import annotations

import math

from ..content import Report
from ..elements import figure_block, fold, key, model_key, table
from ..numbers import MISSING, as_float, or_diverged
from ..palette import FLOOR, Palette
from ..panels.panel import axis_label
from ..panels.savings import family, price_text, savings_panels
from ..table import floor_of


def savings(report: Report, palette: Palette) -> str:
    floor = floor_of(report.results)
    panels = savings_panels(report.savings, floor, report, palette)
    caption = (
        f"Every point is a trained model. {'Lower' if report.lower_is_better else 'Higher'} is better, and further "
        "left is cheaper. Filled points are elastic: the line joins them from one price on depth to the next, and "
        "the price stands beside each. Hollow points have a fixed depth. Elastic depth pays where its line runs "
        f"{'below' if report.lower_is_better else 'above'} the hollow points of the same cost; bars are one "
        "standard deviation over the seeds."
    )
    keys = {}
    for saving in report.savings:
        fixed = saving.group == "fixed"
        name = f"{family(saving)[1]}, {'fixed depth' if fixed else 'elastic'}"
        dash = (0, (1.5, 2)) if fixed else "solid"
        keys[name] = model_key(name, palette[saving.label], dash=dash, hollow=fixed)
    if math.isfinite(floor):
        keys["floor"] = key("floor", FLOOR, dash=(0, (1, 1.5)))
    rows = [
        [
            saving.label,
            saving.group,
            MISSING if saving.price is None else price_text(saving.price),
            f"{saving.depth:.2f}",
            f"{saving.milliseconds:.3g}",
            or_diverged(as_float(saving.mean) * report.scale, as_float(saving.std) * report.scale),
        ]
        for saving in report.savings
    ]
    head = ["model", "depth", "price", "inner steps", "ms", axis_label(report.metric_name, report.metric_unit)]
    data = fold("The points as a table", table(head, rows, "What elastic depth saves"))
    return figure_block("savings", panels, caption, keys=keys.values(), data=data)
