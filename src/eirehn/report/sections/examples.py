"""Single sequences."""

from __future__ import annotations

from ..content import Report
from ..elements import figure_block, ramp_key
from ..palette import Palette
from ..panels.examples import SPENT, TAKEN, example_panels, ranges, shade


def examples(report: Report, palette: Palette) -> str:
    spent, taken = ranges(report.examples)
    keys = [ramp_key("model", [shade(SPENT, depth, spent) for depth in range(spent + 1)], 0, spent)]
    if taken:
        keys.append(ramp_key("generator", [shade(TAKEN, depth, taken) for depth in range(taken + 1)], 0, taken))
    caption = (
        "Test sequences as the model reads them: the two coordinates over time, each point in the colour of the "
        "inner steps the model spent on it. Beneath, the same as numbers"
    )
    if taken:
        caption += (
            ", and under them the inner steps the generator itself took, in grey and on a scale of its own. Where "
            "bright colour stands above dark grey, the model thought longer where the generator had worked harder"
        )
    if any(example.error is not None for example in report.examples):
        unit = f" ({report.metric_unit})" if report.metric_unit else ""
        caption += f"; the bars at the foot are its error at each step{unit}"
    return figure_block("examples", example_panels(report.examples, report.scale), caption + ".", keys=keys)
