"""A recipe: everything that a training depends on, as data that is written to a file and read back the same."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._internal.checks import boolean, finite, non_negative_int, one_of, positive_int
from ..data.dataset import Data
from ..data.har import HarData
from ..data.ptb import PtbData
from ..data.synthetic import SyntheticData
from ..data.table import FileData
from ..data.text import TextData
from ..models import ELASTIC, SHALLOW, LanguageNetwork, Network, SequenceNetwork
from ..models.config import network_fields, without_idle

DATA: dict[str, type[Any]] = {each.kind: each for each in (SyntheticData, HarData, PtbData, TextData, FileData)}
OPTIMIZERS = ("adam", "adamw", "sgd", "soap")
SCHEDULES = ("constant", "cosine", "decay")
PRECISIONS = ("32-true", "64-true", "bf16-mixed")
STRATEGIES = ("auto", "ddp")
DEPTH_PENALTIES = {"regression": 0.001, "classification": 0.03, "language": 0.0003}
"""Depth penalties of the recipes for your own data and of the estimators: depth varies with the input, at
little cost (`benchmarks/elastic_depth.py`)."""


@dataclass(frozen=True)
class Optimisation:
    """How a model is trained.

    Examples:
        >>> from eirehn.training import Optimisation
        >>> Optimisation(epochs=20, optimizer="adamw", schedule="cosine", weight_decay=0.01).learning_rate
        0.01
    """

    epochs: int = 100
    """Passes over the training data."""
    batch_size: int = 20
    """Sequences of a training step, over all devices."""
    optimizer: str = "adam"
    """adam, adamw, sgd, or soap: Adam in the eigenbasis of the gradient's second moment, for small models."""
    learning_rate: float = 0.01
    """The largest learning rate of the schedule."""
    schedule: str = "constant"
    """constant; cosine: down to zero over the whole training; or decay: divided by `decay` every epoch."""
    decay: float = 1.02
    """The divisor of the schedule decay in each epoch."""
    decay_from: int = 20
    """The first epoch, counted from 0, with a divided learning rate."""
    warmup: float = 0.0
    """Share of all steps in which the learning rate rises to its largest value."""
    beta1: float = 0.9
    """The first decay of adam, adamw and soap; at 0 adam is RMSprop, with its bias corrected."""
    beta2: float = 0.999
    """Adam's second decay."""
    weight_decay: float = 0.0
    """L2 penalty with adam and sgd, decoupled with adamw and soap."""
    clip: float | None = None
    """The largest norm of the gradient of a seed; larger ones are scaled down to it."""
    depth_penalty: float = 0.0
    """Cost of an inner step beyond the first, as a share of the loss: the larger, the fewer inner steps. The mean
    of `max(cost - 2, 0)` over the time steps (`return_cost` of a layer), times this share of the current loss, is
    added to the loss."""
    early: float = 0.0
    """Share of the training steps that stop the network after fewer inner steps than max_depth (r times as often
    after r of them as after one), so that it can be evaluated with a smaller max_depth."""
    average: float = 0.0
    """Decay per step of a running average of the weights, which is validated and kept, n / (n + 9) at step n if
    that is less; 0: no average."""

    def __post_init__(self) -> None:
        positive_int("epochs", self.epochs)
        positive_int("batch_size", self.batch_size)
        one_of("optimizer", self.optimizer, OPTIMIZERS)
        one_of("schedule", self.schedule, SCHEDULES)
        finite("learning_rate", self.learning_rate, above=0.0)
        finite("weight_decay", self.weight_decay, least=0.0)
        finite("depth_penalty", self.depth_penalty, least=0.0)
        finite("decay", self.decay, above=0.0)
        non_negative_int("decay_from", self.decay_from)
        if self.schedule == "decay" and max(0, self.epochs - self.decay_from) * -math.log10(self.decay) > 300:
            raise ValueError(f"decay {self.decay} makes the learning rate overflow in {self.epochs} epochs")
        if self.clip is not None:
            finite("clip", self.clip, above=0.0)
        for name in ("warmup", "beta1", "beta2", "average", "early"):
            _share(name, getattr(self, name))


@dataclass(frozen=True)
class ClassifierOptimisation(Optimisation):
    """How a classifier is trained.

    Examples:
        >>> from eirehn.training import ClassifierOptimisation
        >>> ClassifierOptimisation(epochs=20, smoothing=0.1).batch_size
        20
    """

    smoothing: float = 0.0
    """Label smoothing: this share of the target's probability is spread over all classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _share("smoothing", self.smoothing)


@dataclass(frozen=True)
class LanguageOptimisation(Optimisation):
    """How a language model is trained.

    Examples:
        >>> from eirehn.training import LanguageOptimisation
        >>> LanguageOptimisation(optimizer="sgd", learning_rate=1.0, schedule="decay", decay=1.15, clip=5.0).shift
        False
    """

    recurrent_rate: float = 1.0
    """Factor on the learning rate of the recurrent layers, whose weights all inner steps share; embedding and head
    have the learning rate itself."""
    penalty: float = 0.0
    """L2 penalty: half of this times the squared norm of all weights is added to the loss, before clipping."""
    sum_steps: bool = False
    """Sum the loss over the steps of a sequence in place of averaging it."""
    shift: bool = False
    """Start each epoch at a random offset of the text, so that batches differ from epoch to epoch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        finite("recurrent_rate", self.recurrent_rate, above=0.0)
        if self.recurrent_rate != 1 and self.optimizer == "soap":
            raise ValueError(
                "recurrent_rate cannot be used with the optimizer soap, which has one learning rate for all"
            )
        finite("penalty", self.penalty, least=0.0)
        boolean("sum_steps", self.sum_steps)
        boolean("shift", self.shift)


def _share(name: str, value: float) -> None:
    if not 0 <= finite(name, value) < 1:
        raise ValueError(f"{name} must be at least 0 and below 1, got {value}")


@dataclass(frozen=True)
class Hardware:
    """Where the training runs; the choices are Lightning's own.

    Examples:
        >>> from eirehn.training import Hardware
        >>> Hardware(accelerator="gpu", devices=2, strategy="ddp", precision="bf16-mixed").num_nodes
        1
    """

    accelerator: str = "auto"
    """cpu, gpu, …, or auto."""
    devices: int | str = 1
    """How many devices, or auto for all."""
    num_nodes: int = 1
    """Machines, each with `devices` devices, started by torchrun or SLURM."""
    strategy: str = "auto"
    """How several devices share the training: ddp, or auto."""
    precision: str = "32-true"
    """32-true, 64-true or bf16-mixed."""
    capture: bool = True
    """Capture the training step as a CUDA graph, on one GPU: faster, with the same results up to rounding."""

    def __post_init__(self) -> None:
        one_of("precision", self.precision, PRECISIONS)
        one_of("strategy", self.strategy, STRATEGIES)
        boolean("capture", self.capture)


class RecipeTypes(typing.NamedTuple):
    """The config classes of the recipes of a task."""

    network: type[Network]
    optimisation: type[Optimisation]


PARTS = {
    "regression": RecipeTypes(SequenceNetwork, Optimisation),
    "classification": RecipeTypes(SequenceNetwork, ClassifierOptimisation),
    "language": RecipeTypes(LanguageNetwork, LanguageOptimisation),
}


@dataclass(frozen=True)
class Recipe:
    """Everything that a training depends on: network, data, optimisation, and the seeds trained together.

    The task of the data decides which config classes fit: `SequenceNetwork` with `Optimisation` (regression) or
    `ClassifierOptimisation` (classification), `LanguageNetwork` with `LanguageOptimisation` (language models). A
    recipe is checked when it is made: a wrong value raises a `ValueError` or `TypeError`.

    Examples:
        >>> from eirehn.data import SyntheticData
        >>> from eirehn.models import SequenceNetwork
        >>> from eirehn.training import Optimisation, Recipe
        >>> network = SequenceNetwork("EIREHN", hidden_size=20, max_depth=5)
        >>> recipe = Recipe("mine", network, SyntheticData(), Optimisation(epochs=10), seeds=(0, 1))
        >>> Recipe.from_dict(recipe.to_dict()) == recipe
        True
    """

    name: str = "custom"
    """The name in tables and reports."""
    network: SequenceNetwork | LanguageNetwork = field(default_factory=SequenceNetwork)
    """The model."""
    data: Data = field(default_factory=SyntheticData)
    """The data set."""
    optimisation: Optimisation = field(default_factory=Optimisation)
    """How it is trained."""
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """One model is trained for each: it determines its initialisation and the order of its data."""
    hardware: Hardware = field(default_factory=Hardware)
    """Where it is trained."""
    init: str | None = None
    """Folder of a trained run whose best weights the training starts from, with a new optimiser: each seed from the
    same seed of that run, or from the best one if it does not have that seed."""

    def __post_init__(self) -> None:
        if not self.name.strip() or "/" in self.name:
            raise ValueError(f"name must be text without a slash, got {self.name!r}")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must be different from each other, got {list(self.seeds)}")
        if not all(isinstance(seed, int) and 0 <= seed < 2**32 for seed in self.seeds):
            raise ValueError(f"seeds must be integers of at least 0 and below 2**32, got {list(self.seeds)}")
        if not isinstance(self.init, str | None):
            raise TypeError(f"init should be a folder's name, got: {type(self.init).__name__}")
        for name, kind in PARTS[self.data.task]._asdict().items():
            if type(getattr(self, name)) is not kind:
                found = type(getattr(self, name)).__name__
                raise TypeError(f"{name} of {self.data.task} should be {kind.__name__}, got: {found}")
        if self.optimisation.early and (self.network.kind in SHALLOW or self.network.max_depth == 1):
            raise ValueError("early needs a network with several inner steps (max_depth above 1)")
        if self.optimisation.depth_penalty and self.network.kind not in (*ELASTIC, "ACT"):
            raise ValueError(
                f"depth_penalty needs a network with adaptive depth, which {self.network.kind} does not have"
            )

    def to_dict(self) -> dict[str, Any]:
        """Returns the recipe as nested dictionaries of plain values, for JSON.

        Examples:
            >>> from eirehn.training import Recipe
            >>> Recipe().to_dict()["network"]["kind"]
            'EIREHN'
        """
        content = dataclasses.asdict(self)
        content["data"] = {"kind": self.data.kind, **content["data"]}
        content["seeds"] = list(self.seeds)
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Recipe:
        """Makes a recipe from what `to_dict` returned; fields that are missing have their defaults.

        Args:
            content: nested dictionaries.

        Raises:
            ValueError: if there is an unknown field or a wrong value.

        Examples:
            >>> from eirehn.training import Recipe
            >>> Recipe.from_dict({"network": {"hidden_size": 48}, "seeds": [0]}).network.hidden_size
            48
        """
        own = dict(_mapping("Recipe", content))
        data, network, optimisation = (
            dict(_mapping(name, own.get(name, {}))) for name in ("data", "network", "optimisation")
        )
        own["data"] = from_dict(data_kind(data.pop("kind", SyntheticData.kind)), data)
        parts = PARTS[own["data"].task]
        own["network"] = from_dict(parts.network, network_fields(parts.network, network))
        known = without_idle(parts.optimisation, optimisation, _OF_VERSION_01)
        own["optimisation"] = from_dict(parts.optimisation, known)
        return typing.cast(Recipe, from_dict(cls, own))

    def differences(self, other: Recipe) -> list[str]:
        """Returns the names of the fields that make `other` a different training. Of the hardware, only the
        precision does.

        Args:
            other: another recipe.

        Examples:
            >>> from eirehn.training import Recipe
            >>> Recipe().differences(Recipe(seeds=(7,)))
            ['seeds']
        """
        ours, theirs = self.to_dict(), other.to_dict()
        found = ["hardware.precision"] if self.hardware.precision != other.hardware.precision else []
        for name in ours:
            if name == "hardware" or ours[name] == theirs[name]:
                continue
            if isinstance(ours[name], dict):
                found += [f"{name}.{key}" for key in ours[name] if ours[name][key] != theirs[name].get(key)]
                if self.network.kind != "EIREHN" and "network.weight_update" in found:
                    found.remove("network.weight_update")  # only EIREHN has it
            else:
                found.append(name)
        return found


# Fields of version 0.1 for all tasks, with the values at which they had no effect.
_OF_VERSION_01 = {
    "recurrent_rate": 1.0,
    "penalty": 0.0,
    "sum_steps": False,
    "shift": False,
    "smoothing": 0.0,
    "price": 0.0,
    "cooldown": 0.0,
    "pointer_loss": 0.0,
    "activation_penalty": 0.0,
    "temporal_penalty": 0.0,
    "margin": 0.0,
    "average_from": None,
    "average_after": None,
    "retreat": 0.0,
}


def _mapping(name: str, content: Any) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise ValueError(f"{name} must be a mapping, got {type(content).__name__}")
    return content


def data_kind(name: Any) -> type[Any]:
    """The class of data of this name."""
    one_of("data.kind", name, tuple(DATA))
    return DATA[name]


def from_dict(kind: type[Any], content: Mapping[str, Any]) -> Any:
    """The dataclass `kind` from the result of `dataclasses.asdict`, which may have been written as JSON."""
    _mapping(kind.__name__, content)
    hints = typing.get_type_hints(kind)
    known = {each.name for each in dataclasses.fields(kind)}
    if unknown := sorted(set(content) - known):
        raise ValueError(f"{kind.__name__} has no {', '.join(unknown)}")
    return kind(**{name: _value(hints[name], value) for name, value in content.items()})


def _value(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and not isinstance(value, hint):
        return from_dict(hint, value)
    if isinstance(hint, types.UnionType):
        for choice in typing.get_args(hint):
            if dataclasses.is_dataclass(choice) and isinstance(value, Mapping):
                return from_dict(typing.cast(type, choice), value)
    return tuple(value) if typing.get_origin(hint) is tuple else value
