"""How training went."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..content import Curve, Report
from ..elements import figure_block, key, model_key
from ..palette import FLOOR, INK, MUTED, Palette
from ..panels.curves import DASHED, curve_panels, depth_panels, diverged, time_panel
from ..panels.depth import DASHES
from ..table import floor_of


def training(report: Report, palette: Palette) -> str:
    floor = floor_of(report.results)
    metric = report.metric_name.removeprefix("test ")
    validated, trained, loss = (
        any(getattr(curve, name) is not None for curve in report.curves) for name in ("validation", "train", "loss")
    )
    seeds = "the seeds on validation data" if validated else "the seeds"
    caption = f"How training went, all rows on one scale. Thin lines are {seeds}, the thick one is their mean"
    if trained:
        caption += (
            ", the dashed one the mean on training data: where the two part, the model learns its training data by "
            "heart"
        )
    caption += ". A line that leaves at the edge is worse than the scale shows."
    if loss and validated:
        caption += f" Beneath, the {report.loss_name}, which training lowers."
    if not all(curve.validation is not None for curve in report.curves):
        caption += " Where nothing is held out to validate on, the last epoch counts, and only the loss is known."
    lost = sum(diverged(curve) for curve in report.curves)
    if lost:
        seeds = "1 seed diverged: its line ends" if lost == 1 else f"{lost} seeds diverged: their lines end"
        caption += f" {seeds} there, and the mean goes on over the rest."
    name = "validation" if validated else report.loss_name
    keys = [key(f"one seed, {name}", INK, thin=True), key(f"mean, {name}", INK)]
    if trained:
        keys.append(key("mean, training", MUTED, dash=DASHED))
    if loss and validated:
        keys.append(key(f"{report.loss_name}, mean", MUTED, dash=DASHED))
    if math.isfinite(floor):
        keys.append(key("floor", FLOOR, dash=(0, (1, 1.5))))
    panels = curve_panels(report.curves, floor, report, metric, palette)
    page = figure_block("curves", panels, caption, keys=keys, layout="many")
    timed = [curve for curve in report.curves if curve.seconds is not None and curve.validation is not None]
    if timed:
        page += _by_time(timed, report, metric, palette)
    elastic = [curve for curve in report.curves if curve.depth is not None]
    if elastic:
        caption = (
            "What depth did meanwhile, in the models that choose it: mean inner steps a time step. A line that "
            "falls is a model that learns to do with less; one that stays at the top spends all it is allowed."
        )
        page += figure_block("depth-curves", depth_panels(elastic, palette), caption, layout="many")
    return page


def _by_time(curves: Sequence[Curve], report: Report, metric: str, palette: Palette) -> str:
    caption = (
        f"The {metric} on validation data by time of training, on the machine where each was trained: the mean "
        "over the seeds. All epochs of a training are taken to last equally long."
    )
    keys = [
        model_key(curve.label, palette[curve.label], dash=DASHES[index % len(DASHES)])
        for index, curve in enumerate(curves)
    ]
    panel = time_panel(curves, report, metric, palette)
    return figure_block("time", [panel], caption, keys=keys, layout="one")
