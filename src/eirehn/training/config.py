"""A recipe: everything a training depends on, as data that can be saved and loaded."""

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
DEPTH_PENALTIES = {"regression": 0.03, "classification": 1.0, "language": 0.01}
"""Of recipes for your own data and of estimators: with these, depth varies with the input and results are not worse
(`benchmarks/elastic_depth.py`)."""


@dataclass(frozen=True)
class Optimisation:
    """How a model is trained."""

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
    """What the schedule decay divides by every epoch."""
    decay_from: int = 20
    """The first epoch, counted from 0, with a divided learning rate."""
    warmup: float = 0.0
    """Share of all steps over which the learning rate rises from 0."""
    beta1: float = 0.9
    """The first decay of adam, adamw and soap; at 0 adam is RMSprop, with its bias corrected."""
    beta2: float = 0.999
    """Adam's second decay."""
    weight_decay: float = 0.0
    """L2 penalty with adam and sgd, decoupled with adamw and soap."""
    clip: float | None = None
    """Maximum norm of the gradient of each ensemble member."""
    depth_penalty: float = 0.0
    """Weight of the cost of depth, as a share of the loss: the larger, the fewer inner steps. The cost is how far
    the gates are open, summed over the inner steps and averaged over the units. What exceeds 0.5 is multiplied by
    this share of the current loss and added to the loss."""
    early: float = 0.0
    """Share of the training steps that cap depth below max_depth, at r inner steps r times as often as at one. The
    trained network can then be used with any cap."""
    average: float = 0.0
    """Decay per step of the running average of the weights that is validated and kept, at most n / (n + 9) at
    step n; 0: no average."""

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
    """How a classifier is trained."""

    smoothing: float = 0.0
    """Label smoothing: this share of a target's weight is spread over all classes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _share("smoothing", self.smoothing)


@dataclass(frozen=True)
class LanguageOptimisation(Optimisation):
    """How a language model is trained."""

    recurrent_rate: float = 1.0
    """Factor on the learning rate of the recurrent layers, but not of embedding and head: all inner steps share
    their weights, so these change faster."""
    penalty: float = 0.0
    """L2 penalty: half of this times the squared norm of all parameters is added to the loss, before clipping."""
    sum_steps: bool = False
    """The loss of a sequence is the sum over its steps, not their mean."""
    shift: bool = False
    """Start each epoch at a random offset of the text, so that batches differ."""

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
    """Where the training runs; the values are those of Lightning's Trainer."""

    accelerator: str = "auto"
    """cpu, gpu, …, or auto."""
    devices: int | str = 1
    """How many devices, or auto for all."""
    num_nodes: int = 1
    """Machines, each with `devices` devices, started by torchrun or SLURM."""
    strategy: str = "auto"
    """How several devices work together: ddp, or auto."""
    precision: str = "32-true"
    """32-true, 64-true or bf16-mixed."""
    capture: bool = True
    """Record the training step as a CUDA graph, on one GPU: faster, with the same results up to rounding."""

    def __post_init__(self) -> None:
        one_of("precision", self.precision, PRECISIONS)
        one_of("strategy", self.strategy, STRATEGIES)
        boolean("capture", self.capture)


class RecipeTypes(typing.NamedTuple):
    """The classes of a task's recipes."""

    network: type[Network]
    optimisation: type[Optimisation]


PARTS = {
    "regression": RecipeTypes(SequenceNetwork, Optimisation),
    "classification": RecipeTypes(SequenceNetwork, ClassifierOptimisation),
    "language": RecipeTypes(LanguageNetwork, LanguageOptimisation),
}


@dataclass(frozen=True)
class Recipe:
    """A training: a network, data, an optimisation, and a seed for each ensemble member.

    The fields of network and optimisation depend on the task of the data."""

    name: str = "custom"
    """The name in tables and reports."""
    network: SequenceNetwork | LanguageNetwork = field(default_factory=SequenceNetwork)
    data: Data = field(default_factory=SyntheticData)
    optimisation: Optimisation = field(default_factory=Optimisation)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """One model is trained for each; a seed determines the initial weights and the order of the data."""
    hardware: Hardware = field(default_factory=Hardware)
    init: str | None = None
    """Folder of a trained run whose best weights are the initial weights: for each seed those of the same seed, or
    of the best one where the run has no such seed. The optimiser starts afresh."""

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
        content = dataclasses.asdict(self)
        content["data"] = {"kind": self.data.kind, **content["data"]}
        content["seeds"] = list(self.seeds)
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Recipe:
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
        """The names of the fields that make `other` a different training; of the hardware, only the precision."""
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
    """The dataclass `kind` from the result of `dataclasses.asdict`, possibly stored as JSON."""
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
