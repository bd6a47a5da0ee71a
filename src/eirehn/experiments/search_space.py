"""The fields of a recipe that a search changes, and their ranges."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import optuna
import torch
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from .._internal.checks import nearest
from ..models import ELASTIC, FIXED, SHALLOW
from ..report.tables import shown
from ..training.config import Recipe
from ..training.trainer import make_model

LOWEST, HIGHEST = 0.1, 3.0
"""Range of learning rates as factors on that of the base recipe."""
DECOUPLED, COUPLED = (1e-4, 0.3), (1e-6, 1e-2)
"""Weight decay of adamw and soap, and of the other optimizers."""
PENALTY = 10.0
"""The depth penalty of a recipe is divided and multiplied by up to this."""
DROPOUT = 0.5

Space: TypeAlias = dict[str, BaseDistribution]
Settings: TypeAlias = dict[str, Any]


def ranges(kind: str, rate: float) -> Space:
    """The fields that depend on the layer and its learning rate."""
    found: Space = {
        "learning_rate": FloatDistribution(LOWEST * rate, HIGHEST * rate, log=True),
        "weight_decay": FloatDistribution(*DECOUPLED, log=True),
    }
    if kind not in SHALLOW:
        found["max_depth"] = IntDistribution(2, 5)
    if kind == "EIREHN":
        found["weight_update"] = CategoricalDistribution(["bounded", "scaling", "paper"])
    return found


def suggest(trial: optuna.Trial, space: Space) -> Settings:
    """The settings of a trial."""
    return {name: _suggest(trial, name, each) for name, each in space.items()}


def _suggest(trial: optuna.Trial, name: str, each: BaseDistribution) -> Any:
    if isinstance(each, FloatDistribution):
        return trial.suggest_float(name, each.low, each.high, log=each.log)
    if isinstance(each, IntDistribution):
        return trial.suggest_int(name, each.low, each.high, log=each.log)
    assert isinstance(each, CategoricalDistribution)
    return trial.suggest_categorical(name, each.choices)


def default_space(recipe: Recipe, given: Collection[str] = ()) -> Space:
    """What is searched for a recipe, without the fields `given`."""
    network, optimisation = recipe.network, recipe.optimisation
    found = ranges(network.kind, optimisation.learning_rate)
    if optimisation.optimizer not in ("adamw", "soap"):
        found["weight_decay"] = FloatDistribution(*COUPLED, log=True)
    if optimisation.depth_penalty:
        penalty = optimisation.depth_penalty
        found["depth_penalty"] = FloatDistribution(penalty / PENALTY, penalty * PENALTY, log=True)
    found |= {name: FloatDistribution(0.0, DROPOUT) for name in _dropouts(recipe)}
    full = {f"{_part(recipe, name)}.{name}": each for name, each in found.items()}
    return {name: each for name, each in full.items() if name not in given}


def _dropouts(recipe: Recipe) -> Iterable[str]:
    """Those that the network has."""
    network, language = recipe.network, recipe.data.task == "language"
    if network.num_layers > 1:
        yield "dropout"
    if network.kind in FIXED + ELASTIC or (language and network.kind in SHALLOW):
        yield "input_dropout"
    if network.kind in FIXED + ELASTIC:
        yield "hidden_dropout"
    if language:
        yield from ("word_dropout", "output_dropout")


def _part(recipe: Recipe, name: str) -> str:
    return "optimisation" if hasattr(recipe.optimisation, name) else "network"


def read_space(recipe: Recipe, lines: Iterable[str], short: Mapping[str, str], given: Collection[str]) -> Space:
    """The fields and ranges of `--search`: `FIELD=LOW:HIGH`, `FIELD=LOW:HIGH:log` or `FIELD=A,B,C`. `short` has the
    fields that short names stand for."""
    known = {
        f"{part}.{name}": hint
        for part in ("network", "optimisation")
        for name, hint in typing.get_type_hints(type(getattr(recipe, part))).items()
    }
    space: Space = {}
    for line in lines:
        asked, equals, text = line.partition("=")
        name = short.get(asked, asked).replace("-", "_")
        if not equals:
            raise ValueError(f"--search must be FIELD=RANGE, such as lr=1e-3:1e-1:log, got {line!r}")
        if name == "network.kind":
            raise ValueError("--search cannot change network.kind: `eirehn compare` compares layers")
        if name not in known:
            raise ValueError(f"--search has no field {asked!r}; did you mean {nearest(name, known)!r}?")
        if name in given:
            raise ValueError(f"{name} is given as a flag and in --search: leave one of them out")
        space[name] = _range(f"--search {asked}", text, known[name])
        for value in _ends(space[name]):
            check(with_settings(recipe, {name: value}))
    return space


def _range(name: str, text: str, hint: Any) -> BaseDistribution:
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kind = next((each for each in (bool, int, float, str) if each in kinds), None)
    if kind is None:
        raise ValueError(f"{name} has no single value and cannot be searched")
    low, colon, rest = text.partition(":")
    if not colon:
        choices = [_value(name, each, kind) for each in text.split(",")]
        if len(set(choices)) < len(choices) or len(choices) < 2:
            raise ValueError(f"{name} must have at least two different values, got {text!r}")
        return CategoricalDistribution(choices)
    high, colon, scale = rest.partition(":")
    if kind not in (int, float) or (colon and scale != "log"):
        raise ValueError(f"{name} must be LOW:HIGH or LOW:HIGH:log for numbers, and A,B,C otherwise, got {text!r}")
    ends = _value(name, low, kind), _value(name, high, kind)
    if not ends[0] < ends[1] or (colon and ends[0] <= 0):
        raise ValueError(f"{name} must rise{', from above zero for log' if colon else ''}, got {text!r}")
    distribution: Callable[..., BaseDistribution] = IntDistribution if kind is int else FloatDistribution
    return distribution(*ends, log=bool(colon))


def _value(name: str, text: str, kind: type[Any]) -> Any:
    if kind is bool and text in ("true", "false"):
        return text == "true"
    try:
        if kind is not bool:
            return kind(text)
    except ValueError:
        pass
    words = {bool: "true or false", int: "whole numbers", float: "numbers"}[kind]
    raise ValueError(f"{name} takes {words}, got {text!r}")


def _ends(each: BaseDistribution) -> tuple[Any, ...]:
    if isinstance(each, CategoricalDistribution):
        return tuple(each.choices)
    assert isinstance(each, FloatDistribution | IntDistribution)
    return (each.low, each.high)


def contains(each: BaseDistribution, value: Any) -> bool:
    if isinstance(each, CategoricalDistribution):
        return value in each.choices
    assert isinstance(each, FloatDistribution | IntDistribution)
    return value is not None and each.low <= value <= each.high


def in_words(each: BaseDistribution) -> str:
    """A range as `--search` takes it."""
    if isinstance(each, CategoricalDistribution):
        return ",".join(map(shown, each.choices))
    assert isinstance(each, FloatDistribution | IntDistribution)
    return f"{each.low:g}:{each.high:g}{':log' if each.log else ''}"


def value_of(recipe: Recipe, name: str) -> Any:
    part, _, field = name.partition(".")
    return getattr(getattr(recipe, part), field)


def with_settings(recipe: Recipe, settings: Mapping[str, Any]) -> Recipe:
    """The recipe with other values of these fields."""
    parts: dict[str, dict[str, Any]] = {"network": {}, "optimisation": {}}
    for name, value in settings.items():
        part, _, field = name.partition(".")
        parts[part][field] = value
    return replace(recipe, **{part: replace(getattr(recipe, part), **values) for part, values in parts.items()})


def check(recipe: Recipe) -> None:
    """Raises an error if the model cannot be built; it takes no memory."""
    recipe.data.load()  # now: data that are read below would be on this device, too
    with torch.device("meta"):
        make_model(recipe)
