"""The report of trained language models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..report.content import Report
from ..report.metric import METRICS
from ..training.recipe import Recipe
from . import analysis

task = "Trained to model language."
figures: tuple[str, ...] = ()
"""Those of a report that the results file keeps."""


def about(recipes: Sequence[Recipe]) -> dict[str, Any]:
    """What there is to say of the data in a results file: how a figure of theirs is come by."""
    return {"evaluation": "perplexity of the whole text, read from end to end in one column"}


def content(
    title: str, summary: str, results: dict[str, Any], runs: Sequence[analysis.Trained], notice: str | None = None
) -> Report:
    return Report(
        title=title,
        summary=summary,
        results=results,
        notice=notice,
        curves=[analysis.learning_curve(run.folder) for run in runs],
        loss_name="training loss (nats a token, with dropout)",
        **METRICS["perplexity"]._asdict(),
    )


def complete(results: dict[str, Any], runs: Sequence[analysis.Trained]) -> None:
    """The results need nothing from the models themselves."""
