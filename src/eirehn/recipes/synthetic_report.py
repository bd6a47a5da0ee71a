"""The report of trainings on the synthetic task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..data.synthetic import SyntheticData, bayes_floor
from ..models import ELASTIC
from ..report.content import Report
from ..training.config import Recipe
from . import analysis

task = "Trained on the synthetic task."
figures = ("early", "savings", "histograms", "true_depth")
"""Those of a report that the results file keeps."""


def about(recipes: Sequence[Recipe]) -> dict[str, Any]:
    """The noise and the floor, where all have the same."""
    noises = {recipe.data.noise_std for recipe in recipes if isinstance(recipe.data, SyntheticData)}
    if len(noises) != 1:
        return {"noise_std": None, "bayes_floor": None}
    noise = noises.pop()
    return {"noise_std": noise, "bayes_floor": bayes_floor(SyntheticData(noise))}


def complete(results: dict[str, Any], runs: Sequence[analysis.Trained]) -> None:
    """There is nothing to say of a regression beyond its figures."""


def content(
    title: str, summary: str, results: dict[str, Any], runs: Sequence[analysis.Trained], notice: str | None = None
) -> Report:
    """The report of these runs, with as many of its figures as they allow."""
    alive = [run for run in runs if run.models]
    elastic = [run for run in alive if run.recipe.network.kind in ELASTIC]
    priced = [run for run in elastic if run.recipe.optimisation.price]
    family = [run for run in elastic if priced and run.recipe.network == priced[0].recipe.network]
    fixed = [run for run in alive if run.recipe.network.kind == "SRHN"]
    return Report(
        title=title,
        summary=summary,
        results=results,
        notice=notice,
        curves=[analysis.learning_curve(run.folder) for run in runs],
        histograms=[analysis.histogram(run) for run in family or elastic],
        examples=analysis.examples(_most_varied(elastic)) if elastic else (),
        savings=analysis.savings([*family, *fixed]) if family and fixed else (),
        early=[analysis.early_curve(run) for run in _one_of_each(alive)],
        true_depth=[analysis.true_depth(run) for run in family or elastic],
    )


def _one_of_each(runs: Sequence[analysis.Trained]) -> list[analysis.Trained]:
    """The largest network of each kind that has a depth to cap, trained without a price on it."""
    largest: dict[str, analysis.Trained] = {}
    for run in runs:
        network = run.recipe.network
        if network.kind not in ("RHN", *ELASTIC) or run.recipe.optimisation.price:
            continue
        if network.kind not in largest or network.hidden_size > largest[network.kind].recipe.network.hidden_size:
            largest[network.kind] = run
    return list(largest.values())


def _most_varied(runs: Sequence[analysis.Trained]) -> analysis.Trained:
    """The run whose depths differ most: the one worth looking at sequence by sequence."""
    return max(runs, key=lambda run: analysis.squared_errors(run.models[0], run.data)[1].double().std().item())
