"""The paper's experiments from nothing to a table and a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..data.language import TextData
from ..data.own import FileData
from ..files import RunError, write_json
from ..report.page import write_report
from ..training.folder import RunFolder
from ..training.progress import Event
from ..training.provenance import provenance
from ..training.recipe import Recipe
from ..training.workers import train_all
from . import analysis, classified, language_report, synthetic_report
from .experiments import Cut, Experiment
from .results import row

VIEWS: dict[str, Any] = {
    "synthetic": synthetic_report,
    "har": classified,
    "files": classified,
    "ptb": language_report,
    "text": language_report,
}


def reproduce(
    experiment: Experiment,
    folder: Path,
    *,
    command: str,
    only: Sequence[str] | None = None,
    cut: Cut = Cut(),  # noqa: B008  # it cannot be changed
    jobs: int | None = None,
    tell: Callable[[Event], None] = lambda event: None,
    ended: Callable[[Recipe, dict[str, Any]], None] = lambda recipe, result: None,
) -> dict[str, Any]:
    """Trains all rows, or those called in `only`, and returns the results of these and of what had ended before,
    which it writes to `folder`, with a report beside them."""
    rows = [cut(recipe) for recipe in experiment.rows]
    rows = [each for each in rows if only is None or each.name in only or _has_ended(folder / each.name, each)]
    view = _view(rows)
    trained = train_all(_longest_first(rows), folder, jobs=jobs, tell=tell, ended=ended)
    by_name = {result["recipe"]: result for result in trained}
    results = {
        "experiment": experiment.name,
        "command": command,
        **provenance(),
        "quick": cut != Cut(),
        **view.about(rows),
        "rows": [row(recipe, by_name[recipe.name]) for recipe in rows],
    }
    write_json(folder / "results.json", results)
    runs = [analysis.Trained(folder / recipe.name) for recipe in rows]
    view.complete(results, runs)
    page = view.content(experiment.title, experiment.summary, results, runs, notice=_notice(cut.notice(rows), runs))
    write_report(folder / "report.html", page)
    results["figures"] = {name: [asdict(each) for each in getattr(page, name)] for name in view.figures}
    write_json(folder / "results.json", results)
    return results


def _has_ended(folder: Path, recipe: Recipe) -> bool:
    run = RunFolder(folder)
    return run.result.exists() and not run.recipe().differences(recipe)


def _view(recipes: Sequence[Recipe]) -> Any:
    """What makes the report of these trainings, by the kind of their data."""
    kinds = {recipe.data.kind for recipe in recipes}
    if len(kinds) > 1:
        raise ValueError(f"a report is about runs on one kind of data, not on {' and '.join(sorted(kinds))}")
    if kinds == {"files"} and any(recipe.data.task == "regression" for recipe in recipes):
        raise ValueError("there is no report of numbers of your own sequences; eirehn evaluate gives the figures")
    return VIEWS[kinds.pop()]


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
    view = _view([run.recipe for run in runs])
    if len(runs) > 1:
        _check_same(runs)
    results = {
        "experiment": "runs",
        "command": command,
        **provenance(),
        "quick": False,
        **view.about([run.recipe for run in runs]),
        "rows": rows,
    }
    title = runs[0].recipe.name if len(runs) == 1 else f"{len(runs)} runs"
    return write_report(path, view.content(title, view.task, results, runs, notice=_notice(None, runs)))


def _check_same(runs: Sequence[analysis.Trained]) -> None:
    """That figures of your own data are of the same cases: they are set side by side."""
    first, *others = ((run.folder, _cases(run.recipe.data)) for run in runs)
    for folder, cases in others:
        differing = [name for name in cases if cases[name] != first[1][name]]
        if differing:
            raise ValueError(
                f"a report is about runs on the same data, and {folder} has others than {first[0]}: "
                f"{', '.join(differing)}"
            )


def _cases(data: Any) -> dict[str, Any]:
    """What says which cases figures are of; of the data that come with the library nothing does."""
    if isinstance(data, TextData):
        return {"text": data.pinned().sha256, "level": data.level, "words known": data.most}
    if isinstance(data, FileData):
        tested = data.division.test.tolist()
        return {"file": data.pinned().sha256, "target": data.target, "sequences to test on": tested}
    return {}


def _notice(said: str | None, runs: Sequence[analysis.Trained]) -> str | None:
    """And of which rows there are no figures that take the models themselves."""
    without = [run.label for run in runs if not run.has_weights]
    if not without:
        return said
    own = f"The weights of {', '.join(without)} were not kept: figures that take them are left out."
    return own if said is None else f"{said} {own}"


def _longest_first(rows: Sequence[Recipe]) -> list[Recipe]:
    """So that no long run is left for the end, where it would run alone."""
    cost = {"RNN": 1, "LSTM": 1, "ACT": 40}

    def work(recipe: Recipe) -> float:
        network = recipe.network
        steps = cost.get(network.kind, network.max_depth * (2 if network.kind == "EIREHN" else 1))
        basis = 10 if recipe.optimisation.optimizer == "soap" else 1
        return basis * steps * network.hidden_size * recipe.optimisation.epochs

    return sorted(rows, key=work, reverse=True)
