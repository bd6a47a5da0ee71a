"""How much depth is spent, and on what."""

from __future__ import annotations

from ..content import DepthHistogram, Report, TrueDepth
from ..elements import figure_block, fold, key, model_key, table
from ..numbers import as_float, count, with_spread
from ..palette import INK, LINE, Palette
from ..panels.depth import DASHES, FEW, histogram_panels, mean_depth, true_depth_panel


def histogram(report: Report, palette: Palette) -> str:
    parts = "; ".join(
        f"{part.label} spends {mean_depth(part):.2f} inner steps on average, {_busiest(part)}"
        for part in report.histograms
    )
    caption = (
        "How many inner steps the time steps of the test data took. A single bar is a model that spends the same "
        f"on everything; a spread of bars is one that tells some steps from others. {parts}."
    )
    if any(part.layers > 1 for part in report.histograms):
        caption += " Where a network has several layers, each counts by itself."
    if report.measured_on:
        caption += f" {report.measured_on}"
    keys = [key("mean", INK, dash="", marker="^")]
    return figure_block(
        "histogram", histogram_panels(report.histograms, palette), caption, keys=keys, layout="many"
    )


def true_depth(report: Report, palette: Palette) -> str:
    caption = (
        "Inner steps the model spent on a time step, by those the generator had taken for it, which the model "
        "never sees: mean and standard deviation. A rising line is a model that found out by itself which steps "
        "are hard; a flat one spends the same on all. "
        + " ".join(filter(None, map(_rise, report.true_depth)))
        + f" Hollow points rest on fewer than {FEW} time steps; on the dotted line the two would be equal."
    )
    keys = [
        model_key(line.label, palette[line.label], dash=DASHES[index % len(DASHES)])
        for index, line in enumerate(report.true_depth)
    ]
    keys.append(key("as many as the generator", LINE, dash=(0, (2, 2))))
    rows = [
        [line.label, str(taken), with_spread(as_float(mean), as_float(std)), count(int(number))]
        for line in report.true_depth
        for taken, mean, std, number in zip(line.taken, line.spent_mean, line.spent_std, line.count, strict=True)
    ]
    head = ["model", "generator took", "model spent", "time steps"]
    data = fold("The points as a table", table(head, rows, "Depth spent by true depth"))
    panel = true_depth_panel(report.true_depth, palette)
    return figure_block("true-depth", [panel], caption, keys=keys, data=data, layout="one")


def _busiest(part: DepthHistogram) -> str:
    depth = max(range(len(part.counts)), key=lambda d: part.counts[d])
    return f"most often {depth} ({100 * part.counts[depth] / sum(part.counts):.0f} %)"


def _rise(line: TrueDepth) -> str:
    sure = [
        (taken, as_float(mean))
        for taken, mean, number in zip(line.taken, line.spent_mean, line.count, strict=True)
        if number >= FEW
    ]
    if len(sure) < 2:
        return ""
    (low, first), (high, last) = sure[0], sure[-1]
    return f"{line.label}: {first:.1f} inner steps where the generator took {low}, {last:.1f} where it took {high}."
