"""A recipe: everything a training depends on, as data that goes to a file and comes back the same."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..checks import boolean
from ..data.dataset import Data
from ..data.har import HarData
from ..data.ptb import PtbData
from ..data.synthetic import SyntheticData
from ..data.table import FileData
from ..data.text import TextData
from ..models import ELASTIC, SHALLOW, Network
from .optimisation import Optimisation

DATA: dict[str, type[Any]] = {each.kind: each for each in (SyntheticData, HarData, PtbData, TextData, FileData)}
PRECISIONS = ("32-true", "64-true", "bf16-mixed")
STRATEGIES = ("auto", "ddp")


@dataclass(frozen=True)
class Hardware:
    """Where the training runs; the choices are Lightning's own."""

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
    """Record the training step as a CUDA graph, on one GPU: the same results, to rounding, sooner."""

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")
        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, got {self.strategy!r}")
        boolean("capture", self.capture)


@dataclass(frozen=True)
class Recipe:
    """A training: a network, data, an optimisation, and the seeds of the members trained together."""

    name: str = "custom"
    """What tables and reports call it."""
    network: Network = field(default_factory=Network)
    data: Data = field(default_factory=SyntheticData)
    optimisation: Optimisation = field(default_factory=Optimisation)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    """One member for each: its initial values and the order of its data."""
    hardware: Hardware = field(default_factory=Hardware)

    def __post_init__(self) -> None:
        if not self.name.strip() or "/" in self.name:
            raise ValueError(f"name must be text without a slash, got {self.name!r}")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must be different from each other, got {list(self.seeds)}")
        if not all(isinstance(seed, int) and 0 <= seed < 2**32 for seed in self.seeds):
            raise ValueError(f"seeds must be integers of at least 0 and below 2**32, got {list(self.seeds)}")
        if self.optimisation.pointer_loss and not (self.network.pointer and self.data.task == "language"):
            raise ValueError("optimisation.pointer_loss is for language models with network.pointer")
        plain = self.network.pointer == 0 and self.network.mixture == 1
        if self.optimisation.margin and not (plain and self.data.task == "language"):
            raise ValueError("optimisation.margin is for language models without network.pointer or .mixture")
        if self.optimisation.early and (self.network.kind in SHALLOW or self.network.max_depth == 1):
            raise ValueError("early is for networks of several inner steps, which can be stopped")
        if self.optimisation.retreat and self.data.task == "classification":
            # Of few cases to validate on, one more that is told wrongly is a large share of all.
            raise ValueError("optimisation.retreat is not for classification, whose accuracy goes up and down")
        if self.optimisation.smoothing and self.data.task != "classification":
            raise ValueError("optimisation.smoothing is for classification")
        if self.optimisation.shift and self.data.task != "language":
            raise ValueError("optimisation.shift is for language models")
        if self.optimisation.calms and self.data.task != "language":
            raise ValueError("optimisation.activation_penalty and temporal_penalty are for language models")

    def to_dict(self) -> dict[str, Any]:
        content = dataclasses.asdict(self)
        content["data"] = {"kind": self.data.kind, **content["data"]}
        content["seeds"] = list(self.seeds)
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Recipe:
        if not isinstance(content, Mapping):
            raise ValueError(f"Recipe must be a mapping, got {type(content).__name__}")
        own = dict(content)
        if "data" in own:
            own["data"] = data_from_dict(own["data"])
        if isinstance(own.get("network"), Mapping):
            own["network"] = _of_version_01(own["network"])
        return typing.cast(Recipe, from_dict(cls, own))

    def differences(self, other: Recipe) -> list[str]:
        """The names of the fields that make `other` another training. Of the hardware only the precision does."""
        ours, theirs = self.to_dict(), other.to_dict()
        found = ["hardware.precision"] if self.hardware.precision != other.hardware.precision else []
        for name in ours:
            if name == "hardware" or ours[name] == theirs[name]:
                continue
            if isinstance(ours[name], dict):
                found += [f"{name}.{key}" for key in ours[name] if ours[name][key] != theirs[name].get(key)]
                if self.network.kind != "EIREHN" and "network.weight_update" in found:
                    found.remove("network.weight_update")  # which other networks do not have
            else:
                found.append(name)
        return found


def _of_version_01(network: Mapping[str, Any]) -> Mapping[str, Any]:
    """With the initial values of version 0.1 written out, which called the paper's weight update "printed"."""
    if network.get("weight_update") != "printed" or network.get("kind", "EIREHN") not in ELASTIC:
        return network
    return {**network, "start": {"alpha": 0.05, "gate_bias": 0.0, **network.get("start", {})}}


def data_from_dict(content: Mapping[str, Any]) -> Data:
    """Data of the kind that `content` names."""
    if not isinstance(content, Mapping):
        raise ValueError(f"data must be a mapping, got {type(content).__name__}")
    fields = dict(content)
    return typing.cast(Data, from_dict(data_kind(fields.pop("kind", SyntheticData.kind)), fields))


def data_kind(name: Any) -> type[Any]:
    """The class of data of this name."""
    if not isinstance(name, str) or name not in DATA:
        raise ValueError(f"data.kind must be one of {', '.join(DATA)}, got {name!r}")
    return DATA[name]


def from_dict(kind: type[Any], content: Mapping[str, Any]) -> Any:
    """The dataclass `kind` from what `dataclasses.asdict` and JSON made of it."""
    if not isinstance(content, Mapping):
        raise ValueError(f"{kind.__name__} must be a mapping, got {type(content).__name__}")
    hints = typing.get_type_hints(kind)
    known = {each.name for each in dataclasses.fields(kind)}
    if unknown := sorted(set(content) - known):
        raise ValueError(f"{kind.__name__} has no {', '.join(unknown)}")
    return kind(**{name: _value(hints[name], value) for name, value in content.items()})


def _value(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_dict(hint, value)
    if isinstance(hint, types.UnionType):
        for choice in typing.get_args(hint):
            if dataclasses.is_dataclass(choice) and isinstance(value, Mapping):
                return from_dict(typing.cast(type, choice), value)
    return tuple(value) if typing.get_origin(hint) is tuple else value
