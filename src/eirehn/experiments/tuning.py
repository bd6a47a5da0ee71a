"""Layers of equal size, each tuned on validation data in as many trials."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
import torch

from ..data.dataset import Data
from ..data.table import FileData
from ..models import ELASTIC, FIXED, SHALLOW
from ..report.tables import NAMES
from ..training.config import LanguageOptimisation, Optimisation, Recipe
from ..training.trainer import TASKS, make_model
from .search_space import HIGHEST, LOWEST, Settings, Space, ranges, suggest
from .trained import Trained, learning_curve

LAYERS = (*SHALLOW[1:], *FIXED, *ELASTIC)
"""The default layers: not ACT, which takes ten times as long, nor the plain RNN."""
TOLERANCE = 0.03
"""The number of parameters may be larger than asked for by at most this share."""
AT_ONCE = 5
"""Trials of a layer that run at once, before the next ones are chosen."""
BANDS = 3
"""Parts of the range of learning rates, of equal log width."""


@dataclass(frozen=True)
class Comparison:
    """`base` with each layer, of equal size and tuned in as many trials."""

    name: str
    base: Recipe
    tuning_data: Data
    """`base.data` with sequences held out for validation, to choose settings by."""
    tuning_epochs: int
    parameters: int
    trials: int = 20
    layers: tuple[str, ...] = LAYERS
    quick: bool = False

    @property
    def language(self) -> bool:
        return self.base.data.task == "language"

    def smaller(self) -> Comparison:
        """A reduced comparison that takes minutes."""
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
    """The recipe with the largest hidden size that has at most `TOLERANCE` more than `parameters`."""
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
    """The recipe of a row: `base` with this layer, its default initialisation and these settings."""
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
    if kind not in (*ELASTIC, "ACT"):
        ours["depth_penalty"] = 0.0
    if isinstance(base.optimisation, LanguageOptimisation) and kind in SHALLOW:
        ours["recurrent_rate"] = 1.0  # less is for weights that several inner steps share
    optimisation = replace(base.optimisation, **ours)
    name = NAMES.get(kind, kind).lower()
    return sized(replace(base, name=name, network=network, optimisation=optimisation), compared.parameters)


def space_of(compared: Comparison, kind: str) -> Space:
    """What is tuned; for a language model only the learning rate."""
    rate = compared.base.optimisation.learning_rate
    if compared.language:
        return {"learning_rate": optuna.distributions.CategoricalDistribution(rates_around(rate))}
    return ranges(kind, rate)


class Search:
    """The trials of one layer. Their settings depend only on the results of earlier ones, so a repeated command
    finds its earlier trials trained."""

    def __init__(self, compared: Comparison, kind: str) -> None:
        self.compared, self.kind, self.asked = compared, kind, 0
        self.full: list[tuple[Settings, Recipe]] = []
        rate = compared.base.optimisation.learning_rate
        sampler = optuna.samplers.TPESampler(seed=0, constant_liar=True)
        self.sign = TASKS[compared.base.data.task].sign
        self.study = optuna.create_study(direction="minimize" if self.sign > 0 else "maximize", sampler=sampler)
        for each in rates_around(rate) if compared.language else ():
            self.study.enqueue_trial({"learning_rate": each})

    def next(self, folder: Path) -> list[Recipe]:
        """Recipes of the next trials; call `tell` once they have been trained in `folder`."""
        self.waiting = []
        for _ in range(min(AT_ONCE, self.compared.trials - self.asked)):
            trial = self.study.ask()
            recipe = self._recipe(suggest(trial, space_of(self.compared, self.kind)), f"{trial.number:02}")
            optimisation = replace(recipe.optimisation, epochs=self.compared.tuning_epochs)
            recipe = replace(recipe, optimisation=optimisation, seeds=recipe.seeds[:1])
            self.waiting.append((trial, folder / recipe.name, recipe))
            self.asked += 1
        return [recipe for _, _, recipe in self.waiting]

    def tell(self) -> None:
        for trial, folder, _ in self.waiting:
            value = last_validation(folder)[0]
            if math.isfinite(value):
                self.study.tell(trial, value)
            else:
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)

    def finalists(self) -> list[Recipe]:
        """The best trial of each band of learning rates, to be trained at full length with three seeds: the best
        in a short training may fail in a long one. Not for language models, which take hours."""
        ended = [trial for trial in self.study.trials if trial.value is not None]
        if not ended:
            raise ValueError(f"no trial of {self.kind} gave a finite result: try a lower learning rate")
        best: dict[int, optuna.trial.FrozenTrial] = {}
        for trial in sorted(ended, key=lambda trial: self.sign * (trial.value or 0.0)):
            rate = trial.params["learning_rate"] / self.compared.base.optimisation.learning_rate
            band = math.floor(BANDS * math.log(rate / LOWEST) / math.log(HIGHEST / LOWEST))
            best.setdefault(min(band, BANDS - 1), trial)
        for _, trial in [] if self.compared.language else sorted(best.items()):
            recipe = self._recipe(trial.params, f"{trial.number:02}-full")
            self.full.append((dict(trial.params), replace(recipe, seeds=recipe.seeds[:3])))
        return [recipe for _, recipe in self.full]

    def choose(self, folder: Path) -> Settings:
        """The settings with the best mean over the seeds, once the `finalists` have been trained in `folder`."""
        if not self.full:
            return dict(self.study.best_params)
        means = [statistics.fmean(values) for _, values in self.finals(folder)]
        finite = [(self.sign * mean, number) for number, mean in enumerate(means) if math.isfinite(mean)]
        if not finite:
            raise ValueError(f"{self.kind} diverged at every learning rate: try a lower one")
        return self.full[min(finite)[1]][0]

    def finals(self, folder: Path) -> list[tuple[Settings, list[float]]]:
        """Settings of the `finalists`, and the metric of each seed."""
        return [(settings, last_validation(folder / recipe.name)) for settings, recipe in self.full]

    def _recipe(self, settings: Settings, suffix: str) -> Recipe:
        recipe = with_layer(self.compared, self.kind, settings)
        return replace(recipe, name=f"{recipe.name}-{suffix}", data=self.compared.tuning_data)

    def trials(self) -> list[dict[str, Any]]:
        return [
            {"settings": trial.params, "value": math.nan if trial.value is None else trial.value}
            for trial in self.study.trials
        ]


def rates_around(rate: float) -> list[float]:
    return [rate / 2, rate, 2 * rate]


def last_validation(folder: Path) -> list[float]:
    """The metric of each seed on validation data after the last epoch."""
    curve = learning_curve(Trained(folder))
    assert curve.validation is not None  # trials hold data out
    return [values[-1] for values in curve.validation]
