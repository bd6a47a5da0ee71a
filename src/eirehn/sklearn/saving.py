"""A fitted estimator in one file: weights in safetensors, everything else as JSON in the header; nothing is
pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from .._internal.files import RunError, replacing
from ..models import SequenceModel, SequenceNetwork
from ..models.config import network_fields
from ..models.io import read_scaling

FORMAT = "eirehn estimator 1"
LARGEST = 2 << 30
MOST = 10_000  # layers, inner steps or members


def write(estimator: BaseEstimator, path: Path) -> None:
    from safetensors.torch import save

    members: list[SequenceModel] = estimator.members_
    first = members[0]
    assert first.scaling is not None  # `fit` sets it
    about = {
        "format": FORMAT,
        "class": type(estimator).__name__,
        "params": {name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()},
        "model": {
            "network": asdict(first.network),
            "input_size": first.input_size,
            "output_size": first.output_size,
            "last": first.last,
        },
        "scaling": asdict(first.scaling),
        "members": len(members),
        "fitted": {
            name: _plain(name, value)
            for name, value in vars(estimator).items()
            if name.endswith("_") and not name.startswith("_") and name != "members_"
        },
    }
    values = {
        f"{index}.{name}": value.detach().contiguous()
        for index, member in enumerate(members)
        for name, value in member.named_parameters()
    }
    header = {"eirehn": json.dumps(about, ensure_ascii=False, allow_nan=False)}
    with replacing(path) as file:
        file.write(save(values, header))


def _plain(name: str, value: Any) -> Any:
    """The value in the types of JSON, with a mark if it could not be read back the same."""
    if isinstance(value, np.ndarray):
        if value.dtype == object and not all(isinstance(each, str) for each in value.flat):
            raise TypeError(
                f"{name} cannot be saved: it holds {type(value.flat[0]).__name__} in place of text or numbers"
            )
        kind = "object" if value.dtype == object else value.dtype.str
        return {"array": value.tolist(), "dtype": kind}
    if isinstance(value, np.generic):
        return _plain(name, value.item())
    if isinstance(value, Mapping):
        return {"pairs": [[_plain(name, key), _plain(name, each)] for key, each in value.items()]}
    if isinstance(value, np.random.RandomState):  # its state is not that of this fit
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{name} cannot be saved: it is {type(value).__name__}")


def _back(value: Any) -> Any:
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise ValueError("a list where none is expected")
        return value
    if set(value) == {"pairs"}:
        return {_back(key): _back(each) for key, each in value["pairs"]}
    if set(value) != {"array", "dtype"}:
        raise ValueError(f"unknown content {sorted(value)}")
    dtype = np.dtype(value["dtype"])
    if dtype.kind not in "biufUSO":
        raise ValueError(f"an array of {dtype}")
    return np.array(value["array"], dtype)


def read(kind: type[BaseEstimator], path: Path) -> Any:
    """Reads an estimator of this class, or raises a `RunError`."""
    values, about = _content(path)
    if about.get("format") != FORMAT:
        raise RunError(f"{path} holds no estimator of this version")
    if about.get("class") != kind.__name__:
        raise RunError(f"{path} holds an {str(about.get('class'))[:40]}, not an {kind.__name__}")
    try:
        estimator = kind(**{name: _back(value) for name, value in about["params"].items()})
        for name, value in about["fitted"].items():
            if not name.endswith("_") or name.startswith("_") or hasattr(kind, name):
                raise ValueError(f"{name!r} is nothing that is fitted")
            setattr(estimator, name, _back(value))
        estimator.members_ = _members(about, values)
        estimator.check_loaded()
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RuntimeError) as error:
        raise RunError(f"{path} is damaged: {str(error) or repr(error)}") from error
    return estimator


def _content(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        if (size := path.stat().st_size) > LARGEST:
            raise RunError(f"{path} is refused: it has {size:,} bytes")
        with safe_open(path, "pt") as file:
            values = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a mapping
            about = json.loads(file.metadata()["eirehn"])
        if not isinstance(about, dict):
            raise ValueError("its header is not a mapping")
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path} is damaged or not an estimator: {error}") from error
    return values, about


def _members(about: dict[str, Any], values: dict[str, Tensor]) -> list[SequenceModel]:
    form = about["model"]
    network = SequenceNetwork(**network_fields(SequenceNetwork, form["network"]))
    count = about["members"]
    for number in (network.num_layers, network.max_depth, count):
        if not isinstance(number, int) or not 0 < number <= MOST:
            raise ValueError(f"{number} layers, inner steps or members")
    if network.num_layers * count > len(values):
        raise ValueError("there are fewer values than layers")
    scaling = read_scaling(about["scaling"])
    with torch.device("meta"):  # the sizes in a damaged file must not allocate memory
        blank = SequenceModel(network, form["input_size"], form["output_size"], last=form["last"] is True)
    shapes = {name: value.shape for name, value in blank.named_parameters()}
    expected = {f"{index}.{name}": shape for index in range(count) for name, shape in shapes.items()}
    if {name: value.shape for name, value in values.items()} != expected:
        raise ValueError("the values do not fit the network")
    if not all(value.dtype == torch.float32 and value.isfinite().all() for value in values.values()):
        raise ValueError("the values are not finite numbers of single precision")
    for name, numbers in asdict(scaling).items():
        width = blank.output_size if name.startswith("target") else blank.input_size
        if len(numbers) not in (1, width) or not np.isfinite(numbers).all():
            raise ValueError("the scaling does not fit the network")
    members = []
    for index in range(count):
        member = SequenceModel(network, blank.input_size, blank.output_size, last=blank.last, scaling=scaling)
        for name, parameter in member.named_parameters():
            parameter.data = values[f"{index}.{name}"].clone()
        members.append(member.eval())
    return members
