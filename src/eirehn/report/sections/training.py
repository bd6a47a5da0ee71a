"""How training went."""

from __future__ import annotations

import math

from ..content import Report
from ..elements import figure_block, key
from ..palette import FLOOR, INK, MUTED, Palette
from ..panels.curves import DASHED, curve_panels, depth_panels, diverged
from ..table import floor_of


def training(report: Report, palette: Palette) -> str:
    floor = floor_of(report.results)
    metric = report.metric_name.removeprefix("test ")
    caption = (
        "How training went, all rows on one scale. Thin lines are the seeds on validation data, the thick one is "
        "their mean"
    )
    trained = any(curve.train is not None for curve in report.curves)
    loss = any(curve.loss is not None for curve in report.curves)
    if trained:
        caption += (
            ", the dashed one the mean on training data: where the two part, the model learns its training data by "
            "heart"
        )
    caption += ". A line that leaves at the edge is worse than the scale shows."
    if loss:
        caption += f" Beneath, the {report.loss_name}, which training lowers."
    lost = sum(diverged(curve) for curve in report.curves)
    if lost:
        seeds = "1 seed diverged: its line ends" if lost == 1 else f"{lost} seeds diverged: their lines end"
        caption += f" {seeds} there, and the mean goes on over the rest."
    keys = [
        key("one seed, validation", INK, thin=True),
        key("mean, validation", INK),
    ]
    if trained:
        keys.append(key("mean, training", MUTED, dash=DASHED))
    if loss:
        keys.append(key(f"{report.loss_name}, mean", MUTED, dash=DASHED))
    if math.isfinite(floor):
        keys.append(key("floor", FLOOR, dash=(0, (1, 1.5))))
    panels = curve_panels(report.curves, floor, report, metric, palette)
    page = figure_block("curves", panels, caption, keys=keys, layout="many")
    elastic = [curve for curve in report.curves if curve.depth is not None]
    if elastic:
        caption = (
            "What depth did meanwhile, in the models that choose it: mean inner steps a time step. A line that "
            "falls is a model that learns to do with less; one that stays at the top spends all it is allowed."
        )
        page += figure_block("depth-curves", depth_panels(elastic, palette), caption, layout="many")
    return page
