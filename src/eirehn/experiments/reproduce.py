"""The paper's experiments: training, table and report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .._internal.files import write_json
from ..data.table import FileData
from ..data.text import TextData
from ..report.content import Report
from ..report.page import write_report
from ..training.config import Recipe
from ..training.provenance import provenance
from ..training.run import RunFolder
from . import FULL, Cut, Experiment, classification, language, own, regression, synthetic
from .parallel import Ended, Tell, train_all
from .results import is_own, label, row, short_label
from .trained import Trained

VIEWS = {"regression": synthetic, "classification": classification, "language": language}
"""The module that makes the report for each task; all have the same functions."""


def reproduce(
    experiment: Experiment,
    folder: Path,
    *,
    command: str,
    only: Sequence[str] | None = None,
    cut: Cut = FULL,
    jobs: int | None = None,
    tell: Tell = lambda event: None,
    ended: Ended = lambda recipe, result: None,
) -> dict[str, Any]:
    """Trains all rows, or those in `only`, and returns the results of these and of earlier ones, which it writes to
    `folder` with a report."""
    rows = [cut(recipe) for recipe in experiment.rows]
    rows = [each for each in rows if only is None or each.name in only or _has_ended(folder / each.name, each)]
    view = _view(rows)
    train_all(_longest_first(rows), folder, jobs=jobs, tell=tell, ended=ended)
    runs = [Trained(folder / recipe.name) for recipe in rows]
    results = _results(experiment.name, command, runs, cut)
    write_json(folder / "results.json", results)
    for line, run in zip(results["rows"], runs, strict=True):
        line.update(view.about_row(run))
    report = page(experiment.title, experiment.summary, results, runs, cut.notice(rows))
    write_report(folder / "report.html", report)
    results["figures"] = {name: [asdict(each) for each in getattr(report, name)] for name in view.KEPT}
    write_json(folder / "results.json", results)
    return results


def report_on(
    folders: Sequence[Path], path: Path, *, command: str, tell: Callable[[str], None] = lambda line: None
) -> Path:
    """A report of any runs that have ended. `tell` is called with a line of text for each part of the work."""
    runs = [Trained(folder, tell) for folder in folders]
    view = _view([run.recipe for run in runs])
    if len(runs) > 1:
        _check_same(runs)
    title, summary = runs[0].recipe.name if len(runs) == 1 else f"{len(runs)} runs", view.TASK
    if is_own(runs[0].recipe):
        _name(runs)
        title, summary = own.title(runs[0]), own.summary(runs)
    results = _results("runs", command, runs)
    if len(runs) == 1:  # where it was trained, not where it is reported
        results |= {name: runs[0].result[name] for name in provenance() if name in runs[0].result}
    results["trained_by"] = [line for run in runs for line in own.commands(run)]
    report = page(title, summary, results, runs)
    tell(f"drawing {path}")
    return write_report(path, report)


def _name(runs: Sequence[Trained]) -> None:
    """By their networks, and by their folders where these are the same."""
    several = len({run.folder.name for run in runs}) < len(runs)
    labels = [short_label(run.recipe) if len(runs) == 1 else label(run.recipe) for run in runs]
    times = Counter(labels)
    for run, text in zip(runs, labels, strict=True):
        run.label = text if times[text] == 1 else f"{text}, {run.folder if several else run.folder.name}"


def _results(name: str, command: str, runs: Sequence[Trained], cut: Cut = FULL) -> dict[str, Any]:
    return {
        "experiment": name,
        "command": command,
        **provenance(),
        "quick": cut != FULL,
        **_view([run.recipe for run in runs]).about(runs),
        "rows": [{**row(run.recipe, run.result), "label": run.label} for run in runs],
    }


def page(
    title: str, summary: str, results: dict[str, Any], runs: Sequence[Trained], notice: str | None = None
) -> Report:
    without = [run.label for run in runs if not run.has_weights]
    if without:
        text = f"The weights of {', '.join(without)} were not kept: plots that need them are missing."
        notice = text if notice is None else f"{notice} {text}"
    view = _view([run.recipe for run in runs])
    parts = view.parts(runs)
    if not is_own(runs[0].recipe):
        return Report(title, summary, results, notice, **parts)
    rows = [{**line, "more": view.more(run)} for line, run in zip(results["rows"], runs, strict=True)]
    results = {**results, "rows": rows, "baseline": view.baseline(runs[0]), "data": own.data(runs[0])}
    return Report(title, summary, results, notice, own=True, **parts)


def _has_ended(folder: Path, recipe: Recipe) -> bool:
    run = RunFolder(folder)
    return run.result.exists() and not run.recipe().differences(recipe)


def _view(recipes: Sequence[Recipe]) -> Any:
    """The module that makes the report of these trainings."""
    kinds = {recipe.data.kind for recipe in recipes}
    if len(kinds) > 1:
        raise ValueError(f"a report needs runs on one kind of data, got {' and '.join(sorted(kinds))}")
    task = recipes[0].data.task
    return regression if kinds == {"files"} and task == "regression" else VIEWS[task]


def _check_same(runs: Sequence[Trained]) -> None:
    """Raises an error if runs on your own data were not tested on the same sequences."""
    first, *others = ((run.folder, _cases(run.recipe.data)) for run in runs)
    for folder, cases in others:
        differing = [name for name in cases if cases[name] != first[1][name]]
        if differing:
            raise ValueError(
                f"a report needs runs on the same data; {folder} differs from {first[0]} in: {', '.join(differing)}"
            )


def _cases(data: Any) -> dict[str, Any]:
    """The identity of the test data; empty for data sets of the library."""
    if isinstance(data, TextData):
        return {"text": data.pinned().sha256, "level": data.level, "words known": data.most}
    if isinstance(data, FileData):
        tested = data.division.test.tolist()
        file = data.pinned().sha256
        return {"file": file, "task": data.task, "target": data.target, "sequences to test on": tested}
    return {}


def _longest_first(rows: Sequence[Recipe]) -> list[Recipe]:
    """So that no long run is left for the end."""
    cost = {"RNN": 1, "GRU": 1, "LSTM": 1, "ACT": 40}

    def work(recipe: Recipe) -> float:
        network = recipe.network
        steps = cost.get(network.kind, network.max_depth * (2 if network.kind == "EIREHN" else 1))
        basis = 10 if recipe.optimisation.optimizer == "soap" else 1
        return basis * steps * network.hidden_size * recipe.optimisation.epochs

    return sorted(rows, key=work, reverse=True)
