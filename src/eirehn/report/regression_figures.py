"""Figures of regression: predicted against true numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .content import Predictions
from .figures import DOTTED, LARGE, Panel, array, canvas
from .palette import LINE, style_of

POINTS = 500
"""Sequences drawn at most: more would make the page large."""


def prediction_panels(parts: Sequence[Predictions]) -> list[Panel]:
    """The predictions of the first model of each."""
    return [_predictions(part) for part in parts]


def _predictions(part: Predictions) -> Panel:
    figure, (ax,) = canvas(LARGE)
    colour, marker = style_of(part.label)
    true, predicted = array(part.true), array(part.predicted[0])
    ends = [float(np.nanmin([true, predicted])), float(np.nanmax([true, predicted]))]
    ax.plot(ends, ends, color=LINE, linewidth=1.2, linestyle=DOTTED, zorder=1)
    points: dict[str, Any] = {
        "linestyle": "none",
        "marker": marker,
        "markersize": 4.5,
        "alpha": 0.6,
        "markeredgewidth": 0,
    }
    ax.plot(true[:POINTS], predicted[:POINTS], color=colour, **points)
    ax.set(xlabel=f"true {part.target}", ylabel=f"predicted {part.target}")
    words = (
        f"Predicted against true {part.target}, {part.label}: mean absolute error {part.mae[0]:.4g}, "
        f"R² {part.r2[0]:.3f}, {len(true)} test sequences."
    )
    return Panel(f"{part.label}: {part.target}", figure, words)
