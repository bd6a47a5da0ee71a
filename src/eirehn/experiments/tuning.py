"""Layers of equal size, each tuned on validation data in as many trials."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
import torch

from ..data.dataset import Data
from ..data.table import FileData
from ..models import ELASTIC, FIXED, SHALLOW
from ..report.tables import NAMES
from ..training.config import Optimisation, Recipe
from ..training.run import RunFolder
from ..training.trainer import TASKS, make_model

LAYERS = (*SHALLOW[1:], *FIXED, *ELASTIC)
"""What is compared unless asked otherwise: not ACT, which takes ten times as long, nor the plain RNN."""
TOLERANCE = 0.03
"""A layer has at most this share of parameters more than asked for; the next larger one would have more."""
AT_ONCE = 5
"""Trials of a layer between two looks at what the earlier ones found."""

Settings = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """`base` with each layer in the place of its own, of the same size and tuned in as many trials."""

    name: str
    base: Recipe
    tuning_data: Data
    """`base.data` with sequences held out for validation, by which settings are chosen."""
    tuning_epochs: int
    parameters: int
    trials: int = 20
    layers: tuple[str, ...] = LAYERS
    quick: bool = False

    @property
    def language(self) -> bool:
        return self.base.data.task == "language"

    def smaller(self) -> Comparison:
        """A look at how it goes, in minutes."""
        optimisation = replace(self.base.optimisation, epochs=2)
        data, tuning_data = self.base.data, self.tuning_data
        if not isinstance(data, FileData):
            number = 20_000 if self.language else 500
            data, tuning_data = data.smaller(number), tuning_data.smaller(number)
        base = replace(self.base, data=data, optimisation=optimisation, seeds=self.base.seeds[:2])
        return replace(self, base=base, tuning_data=tuning_data, tuning_epochs=1, trials=2, quick=True)


def size_of(recipe: Recipe) -> int:
    """Trainable parameters of the recipe's model."""
    with torch.device("meta"):
        return sum(each.numel() for each in make_model(recipe).parameters() if each.requires_grad)


def sized(recipe: Recipe, parameters: int) -> Recipe:
    """With the largest hidden size that gives at most `TOLERANCE` more than so many parameters."""
    most = math.floor(parameters * (1 + TOLERANCE))

    def of(hidden: int) -> Recipe:
        return replace(recipe, network=replace(recipe.network, hidden_size=hidden, hyper_size=None))

    low, high = 1, 2
    if size_of(of(low)) > most:
        least = size_of(of(low))
        raise ValueError(f"parameters must be at least {least} for {recipe.network.kind}, got {parameters}")
    while size_of(of(high)) <= most:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size_of(of(middle)) <= most else (low, middle)
    return of(low)


def with_layer(compared: Comparison, kind: str, settings: Settings) -> Recipe:
    """The recipe of a row: `base` with this layer, from its default initialisation, by these settings."""
    base, network = compared.base, compared.base.network
    fits_dropout = kind in FIXED + ELASTIC or (compared.language and kind in SHALLOW)
    network = replace(
        network,
        kind=kind,
        max_depth=settings.get("max_depth", 1 if kind in SHALLOW else network.max_depth),
        weight_update=settings.get("weight_update", "bounded"),
        input_dropout=network.input_dropout if fits_dropout else 0.0,
        hidden_dropout=network.hidden_dropout if kind in FIXED + ELASTIC else 0.0,
        start={name: value for name, value in network.start.items() if name == "weight_bound"},
    )
    ours = {name: value for name, value in settings.items() if name in Optimisation.__dataclass_fields__}
    penalty = base.optimisation.price if kind in (*ELASTIC, "ACT") else 0.0
    optimisation = replace(base.optimisation, price=penalty, **ours)
    name = NAMES.get(kind, kind).lower()
    return sized(replace(base, name=name, network=network, optimisation=optimisation), compared.parameters)


def suggest(trial: optuna.Trial, kind: str, compared: Comparison) -> Settings:
    """What a trial tries. Of a language model it is the learning rate alone."""
    rate = compared.base.optimisation.learning_rate
    if compared.language:
        return {"learning_rate": trial.suggest_categorical("learning_rate", rates_around(rate))}
    found: Settings = {
        "learning_rate": trial.suggest_float("learning_rate", rate / 10, 3 * rate, log=True),
        "weight_decay": trial.suggest_float("weight_decay", 1e-4, 0.3, log=True),
    }
    if kind not in SHALLOW:
        found["max_depth"] = trial.suggest_int("max_depth", 2, 5)
    if kind == "EIREHN":
        found["weight_update"] = trial.suggest_categorical("weight_update", ["bounded", "scaling", "paper"])
    return found


class Search:
    """The trials of one layer. Their settings depend on the results of earlier ones and on nothing else, so a
    command that was stopped asks for the same trials again and finds them trained."""

    def __init__(self, compared: Comparison, kind: str) -> None:
        self.compared, self.kind, self.asked = compared, kind, 0
        rate = compared.base.optimisation.learning_rate
        sampler: optuna.samplers.BaseSampler = optuna.samplers.TPESampler(seed=0, constant_liar=True)
        if compared.language:
            sampler = optuna.samplers.GridSampler({"learning_rate": rates_around(rate)}, seed=0)
        lower = TASKS[compared.base.data.task].sign > 0
        self.study = optuna.create_study(direction="minimize" if lower else "maximize", sampler=sampler)

    def next(self, folder: Path) -> list[Recipe]:
        """Recipes of the next trials; call `tell` once they have been trained in `folder`."""
        self.waiting = []
        for _ in range(min(AT_ONCE, self.compared.trials - self.asked)):
            trial = self.study.ask()
            settings = suggest(trial, self.kind, self.compared)
            recipe = with_layer(self.compared, self.kind, settings)
            recipe = replace(
                recipe,
                name=f"{recipe.name}-{trial.number:02}",
                data=self.compared.tuning_data,
                optimisation=replace(recipe.optimisation, epochs=self.compared.tuning_epochs),
                seeds=recipe.seeds[:1],
            )
            self.waiting.append((trial, folder / recipe.name, recipe))
            self.asked += 1
        return [recipe for _, _, recipe in self.waiting]

    def tell(self) -> None:
        for trial, folder, _ in self.waiting:
            value = last_validation(folder)
            if math.isfinite(value):
                self.study.tell(trial, value)
            else:
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)

    def best(self) -> Settings:
        if not any(math.isfinite(trial["value"]) for trial in self.trials()):
            raise ValueError(f"no trial of {self.kind} gave a finite result: try a lower learning rate")
        return dict(self.study.best_params)

    def trials(self) -> list[dict[str, Any]]:
        return [
            {"settings": trial.params, "value": math.nan if trial.value is None else trial.value}
            for trial in self.study.trials
        ]


def rates_around(rate: float) -> list[float]:
    return [rate / 2, rate, 2 * rate]


def last_validation(folder: Path) -> float:
    """The metric of the first seed on validation data after the last epoch."""
    run = RunFolder(folder)
    result = run.read_result()
    assert result is not None
    with open(run.metrics, encoding="utf-8", newline="") as file:
        *_, last = csv.DictReader(file)
    return float(last[result["metric"]])
