"""Comparison of layers of equal size on given data, with equal tuning."""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import torch

from .._internal.files import write_json
from ..data.har import HarData
from ..data.table import FileData
from ..models.io import read_values
from ..recipes import har, own, ptb, synthetic
from ..report.page import write_report
from ..report.tables import NAMES, verdict
from ..training.config import Recipe
from ..training.loaders import training_batches
from ..training.provenance import cores, provenance
from ..training.trainer import make_task, precision
from .parallel import Ended, Tell, train_all
from .reproduce import page
from .results import row, spread
from .trained import Trained, milliseconds
from .tuning import Comparison, Search, size_of, with_layer


def comparison(name: str) -> Comparison:
    """One of the tasks of the paper."""
    if name == "synthetic":
        recipe = synthetic.compared()
        return Comparison(name, recipe, recipe.data, 20, size_of(synthetic.best()))
    if name == "har":
        recipe = har.best()
        assert isinstance(recipe.data, HarData)
        return Comparison(name, recipe, replace(recipe.data, held_out=6), 20, size_of(recipe))
    recipe = ptb.compared()
    return Comparison("ptb", recipe, recipe.data, 10, size_of(recipe), trials=3)


def comparison_on(data: FileData) -> Comparison:
    """A file of your own. Trials use a fifth of it for validation, unless the file or `data.validation` says
    otherwise."""
    recipe = own.classify() if data.task == "classification" else own.regress()
    recipe = replace(recipe, data=data, seeds=(0, 1, 2, 3, 4))
    held_out = data if len(data.division.validation) else replace(data, validation=0.2)
    return Comparison(Path(data.path).stem, recipe, held_out, recipe.optimisation.epochs // 2, size_of(recipe))


def compare(
    compared: Comparison,
    folder: Path,
    *,
    command: str,
    jobs: int | None = None,
    tell: Tell = lambda event: None,
    ended: Ended = lambda recipe, result: None,
) -> dict[str, Any]:
    """Tunes and trains all layers in `folder` and returns the results, which it writes there, with a report."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    searches = {kind: Search(compared, kind) for kind in compared.layers}
    while trials := [recipe for search in searches.values() for recipe in search.next(folder / "tuning")]:
        train_all(trials, folder / "tuning", jobs=jobs, tell=tell, ended=ended)
        for search in searches.values():
            search.tell()
    finalists = [recipe for search in searches.values() for recipe in search.finalists()]
    train_all(finalists, folder / "tuning", jobs=jobs, tell=tell, ended=ended)
    chosen = {kind: search.choose(folder / "tuning") for kind, search in searches.items()}
    recipes = [with_layer(compared, kind, settings) for kind, settings in chosen.items()]
    train_all(recipes, folder, jobs=jobs, tell=tell, ended=ended)
    runs = [Trained(folder / recipe.name) for recipe in recipes]
    results = {
        "experiment": f"compare-{compared.name}",
        "command": command,
        **provenance(),
        "quick": compared.quick,
        "parameters": compared.parameters,
        "epochs": compared.base.optimisation.epochs,
        "tuning_epochs": compared.tuning_epochs,
        "rows": [
            {
                **row(run.recipe, run.result),
                "label": f"{NAMES.get(kind, kind)}-{run.recipe.network.hidden_size}",
                "settings": chosen[kind],
                "trials": search.trials(),
                "finals": [
                    {"settings": settings, "values": values}
                    for settings, values in search.finals(folder / "tuning")
                ],
            }
            for run, (kind, search) in zip(runs, searches.items(), strict=True)
        ],
    }
    for line, times in zip(results["rows"], step_times(runs), strict=True):
        line["step_ms"] = times
    results["references"] = [] if compared.quick else references(compared.base)
    write_json(folder / "results.json", results)
    if has_report(compared.base):
        title = f"Layers compared: {compared.name}"
        write_report(folder / "report.html", page(title, verdict(results), results, runs))
    return results


def has_report(recipe: Recipe) -> bool:
    """Not for regression on your own data: its metrics are shown by `eirehn evaluate`."""
    return not (isinstance(recipe.data, FileData) and recipe.data.task == "regression")


def step_times(runs: Sequence[Trained]) -> list[dict[str, float]]:
    """Milliseconds of one training step, forward and backward, of one seed of each trained model, by device."""
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    found: list[dict[str, float]] = [{} for _ in runs]
    for device in devices:
        steps = [_step(run, torch.device(device)) for run in runs]
        for each, time_of_step in zip(found, milliseconds(steps, rounds=7, patience=60.0), strict=True):
            each[device] = round(time_of_step, 2)
    return found


def _step(run: Trained, device: torch.device) -> Callable[[], None]:
    recipe = replace(run.recipe, seeds=run.recipe.seeds[:1])
    task = make_task(recipe)
    values = read_values(run.folder / "best.safetensors")
    task.ensemble.load({name: value[:1] for name, value in values.items()})
    task.to(device)
    task.sums = task.sums.to(device)
    given = next(iter(training_batches(recipe, recipe.data.load().train)))
    batch = tuple(each.to(device) if isinstance(each, torch.Tensor) else each for each in given)

    def step() -> None:
        with precision(recipe, device):
            loss = task.loss(batch)
        loss.backward()
        if device.type == "cuda":
            torch.cuda.synchronize()

    return step


def references(recipe: Recipe, seeds: Sequence[int] = (0, 1, 2)) -> list[dict[str, Any]]:
    """MiniRocket (Dempster et al. 2021) with a ridge classifier, if aeon is installed and sequences have
    equal lengths. It is not a recurrent network and is trained in minutes on a CPU."""
    data = recipe.data
    if data.task != "classification" or importlib.util.find_spec("aeon") is None:
        return []
    from aeon.classification.convolution_based import MiniRocketClassifier  # type: ignore[import-not-found,import-untyped,unused-ignore]

    splits = (replace(data, frame=1) if isinstance(data, HarData) else data).load()
    if splits.train.lengths is not None:
        return []
    (x, y), (x_test, y_test) = (
        (part.x.transpose(1, 2).numpy(), part.target.numpy()) for part in (splits.train, splits.test)
    )
    began, values = time.monotonic(), []
    for seed in seeds:
        classifier = MiniRocketClassifier(random_state=seed, n_jobs=cores()).fit(x, y)
        values.append(float((classifier.predict(x_test) == y_test).mean()))
    return [
        {
            "label": "MiniRocket + ridge (aeon)",
            "metric": "accuracy",
            "values": values,
            "mean": statistics.fmean(values),
            "std": spread(values),
            "seconds": round((time.monotonic() - began) / len(values), 1),
        }
    ]
