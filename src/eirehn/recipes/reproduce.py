"""The paper's synthetic experiment from nothing to a table and a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..data.floor import bayes_floor
from ..files import RunError, write_json
from ..models import ELASTIC
from ..report.content import Report
from ..report.html import write_report
from ..training.folder import RunFolder
from ..training.progress import Event
from ..training.provenance import provenance
from ..training.recipe import Recipe
from ..training.workers import train_all
from . import analysis, synthetic
from .results import row


@dataclass(frozen=True)
class Experiment:
    """Rows to train together, and what to say of them."""

    name: str
    title: str
    summary: str
    rows: Sequence[Recipe]


def experiments() -> dict[str, Experiment]:
    whole = Experiment(
        "synthetic",
        "Synthetic regression: Table 1 and the ablation of depth",
        "Each model reads points in the plane and predicts the next one. The generator repeats a noisy rotation as "
        "often as its hidden state says, so how much there is to compute changes from step to step. No predictor "
        "that sees only the points can fall below the floor.",
        [
            *synthetic.table1(),
            *synthetic.ablation(),
            synthetic.adaptive_computation_time(),
            synthetic.best(),
            *synthetic.priced(),
        ],
    )
    updates = Experiment(
        "weight-updates",
        "Ways to change the weights with depth",
        "EI-REHN with 20 units on the synthetic task, for each way its hypernetwork may change the weights.",
        synthetic.weight_updates(),
    )
    return {each.name: each for each in (whole, updates)}


@dataclass(frozen=True)
class Cut:
    """An experiment made smaller. Its figures do not compare with the paper's, and its report says so."""

    epochs: int | None = None
    seeds: int | None = None
    sequences: int | None = None
    """Training sequences."""

    def __call__(self, recipe: Recipe) -> Recipe:
        epochs = self.epochs or recipe.optimisation.epochs
        return replace(
            recipe,
            optimisation=replace(recipe.optimisation, epochs=epochs),
            seeds=recipe.seeds[: self.seeds],
            data=replace(recipe.data, train=self.sequences or recipe.data.train),
        )

    def notice(self, rows: Sequence[Recipe]) -> str | None:
        if self == Cut():
            return None
        epochs = sorted({recipe.optimisation.epochs for recipe in rows})
        shown = f"{epochs[0]} to {epochs[-1]}" if len(epochs) > 1 else f"{epochs[0]}"
        seeds, sequences = len(rows[0].seeds), rows[0].data.train
        return (
            f"Changed: epochs {shown}, seeds {seeds}, training sequences {sequences}. "
            "The figures do not compare with the paper's."
        )


QUICK = Cut(epochs=3, seeds=2)


def reproduce(
    experiment: Experiment,
    folder: Path,
    *,
    command: str,
    cut: Cut = Cut(),  # noqa: B008  # it cannot be changed
    jobs: int | None = None,
    tell: Callable[[Event], None] = lambda event: None,
    ended: Callable[[Recipe, dict[str, Any]], None] = lambda recipe, result: None,
) -> dict[str, Any]:
    """Trains all rows and returns the results, which it writes to `folder`, with a report beside them."""
    rows = [cut(recipe) for recipe in experiment.rows]
    trained = train_all(_longest_first(rows), folder, jobs=jobs, tell=tell, ended=ended)
    by_name = {result["recipe"]: result for result in trained}
    results = {
        "experiment": experiment.name,
        "command": command,
        **provenance(),
        "quick": cut != Cut(),
        **_about_data(rows),
        "rows": [row(recipe, by_name[recipe.name]) for recipe in rows],
    }
    write_json(folder / "results.json", results)
    runs = [analysis.Trained(folder / recipe.name) for recipe in rows]
    page = content(experiment.title, experiment.summary, results, runs, notice=cut.notice(rows))
    write_report(folder / "report.html", page)
    results["figures"] = {
        name: [asdict(each) for each in getattr(page, name)]
        for name in ("early", "savings", "histograms", "true_depth")
    }
    write_json(folder / "results.json", results)
    return results


def _about_data(recipes: Sequence[Recipe]) -> dict[str, Any]:
    """The noise and the floor, where all have the same."""
    noises = {recipe.data.noise_std for recipe in recipes}
    noise = noises.pop() if len(noises) == 1 else None
    return {"noise_std": noise, "bayes_floor": None if noise is None else bayes_floor(noise).mean}


def report_on(folders: Sequence[Path], path: Path, *, command: str) -> Path:
    """A report of any runs that have ended."""
    runs, rows = [], []
    for folder in folders:
        result = RunFolder(folder).read_result()
        if result is None:
            RunFolder(folder).recipe()  # says so where it is no run at all
            raise RunError(f"{folder} has not ended: it has no result.json")
        runs.append(analysis.Trained(folder))
        rows.append(row(runs[-1].recipe, result))
    results = {
        "experiment": "runs",
        "command": command,
        **provenance(),
        "quick": False,
        **_about_data([run.recipe for run in runs]),
        "rows": rows,
    }
    title = runs[0].recipe.name if len(runs) == 1 else f"{len(runs)} runs"
    return write_report(path, content(title, "Trained on the synthetic task.", results, runs))


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
    return max(
        runs, key=lambda run: analysis.squared_errors(run.models[0], run.recipe.data)[1].double().std().item()
    )


def _longest_first(rows: Sequence[Recipe]) -> list[Recipe]:
    """So that no long run is left for the end, where it would run alone."""
    cost = {"RNN": 1, "LSTM": 1, "ACT": 40}

    def work(recipe: Recipe) -> float:
        network = recipe.network
        steps = cost.get(network.kind, network.max_depth * (2 if network.kind == "EIREHN" else 1))
        basis = 10 if recipe.optimisation.optimizer == "soap" else 1
        return basis * steps * network.hidden_size * recipe.optimisation.epochs

    return sorted(rows, key=work, reverse=True)
