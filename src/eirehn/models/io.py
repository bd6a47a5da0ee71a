"""Loads trained models from their run folder, without pickle and without the libraries that trained them."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from .._internal.checks import one_of
from .._internal.files import RunError, read_json
from ..data.dataset import Scaling
from .config import LanguageNetwork, SequenceNetwork, network_fields
from .language import LanguageModel
from .sequence import SequenceModel

KEPT = ("best", "last")


def load(run: str | os.PathLike[str], *, seed: int | None = None, which: str = "best", device: Any = "cpu") -> Any:
    """Loads a trained model from a run folder, ready to use (in evaluation mode).

    A model trained on a file of your own takes and gives values in the units of that file, and its `classes` are
    the names of the classes. A language model has its vocabulary in `model.tokens`.

    Args:
        run: the folder that `eirehn train` or `eirehn reproduce` wrote.
        seed: which of the seeds trained together. Default: the one with the best validation metric, or with the
            lowest training loss if there are no validation data.
        which: `"best"`, the weights of the best epoch on validation data, or of the last if there are none; or
            `"last"`, those of the last epoch. Default: `"best"`.
        device: the device of the model. Default: `"cpu"`.

    Returns:
        A `SequenceModel` or a `LanguageModel`, see `eirehn.models`.

    Raises:
        RunError: if there is not a trained model in the folder, or a file is damaged.
        ValueError: if there is no such seed or choice of weights.

    Examples:
        >>> model = eirehn.load("runs/synthetic")
        >>> model(torch.zeros(1, 20, 2)).shape
        torch.Size([1, 20, 2])
    """
    one_of("which", which, KEPT)
    folder = Path(run)
    about = read_about(folder)
    model = _blank(about, folder)
    if seed is not None and seed not in about["seeds"]:
        raise ValueError(f"seed must be one of {', '.join(map(str, about['seeds']))} in {folder}, got {seed}")
    index = best_member(about, seed)
    if which == "best" and about["best_score"][index] is None:
        raise RunError(
            f"{folder} has no best epoch of seed {about['seeds'][index]}: it has diverged, or not got there"
        )
    path = folder / f"{which}.safetensors"
    values = read_values(path)
    own = dict(model.named_parameters())
    check_values({name: parameter[None] for name, parameter in own.items()}, values, path)
    for name, parameter in own.items():
        parameter.data = values[name][index].clone()
    if isinstance(model, LanguageModel):
        from ..data.vocabulary import Vocabulary

        model.tokens = Vocabulary.load(folder / "vocabulary.json")
        if len(model.tokens) != model.vocabulary:
            raise RunError(f"{folder / 'vocabulary.json'} does not fit the model it lies beside")
    return model.to(device).eval()


def check_values(own: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor], path: Path) -> None:
    """That `values` are those of a stack of models with parameters like `own`, (M, …) each."""
    if own.keys() != values.keys() or any(own[name].shape[1:] != values[name].shape[1:] for name in own):
        raise RunError(f"{path} does not fit the model it lies beside")


def read_values(path: Path) -> dict[str, torch.Tensor]:
    """The stacked values of the ensemble members of a run by name, (M, …) each."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return load(path.read_bytes())
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except SafetensorError as error:
        raise RunError(f"{path} is damaged: {error}") from error


def read_about(folder: Path) -> dict[str, Any]:
    """The content of model.json, which describes the models of a run, one for each seed."""
    path = folder / "model.json"
    if not path.exists():
        raise RunError(f"{folder} holds no trained model: it has no model.json")
    about = read_json(path)
    if not isinstance(about, dict):
        raise RunError(f"{path} is damaged: it is not a mapping")
    seeds, scores = about.get("seeds"), about.get("best_score")
    if not isinstance(seeds, list) or not isinstance(scores, list) or not len(seeds) == len(scores) > 0:
        raise RunError(f"{path} is damaged: seeds and best_score do not agree")
    return about


def _blank(about: dict[str, Any], folder: Path) -> SequenceModel | LanguageModel:
    try:
        scaling = None if about.get("scaling") is None else read_scaling(about["scaling"])
        if about.get("task") == "language":
            language = LanguageNetwork(**network_fields(LanguageNetwork, about["network"]))
            return LanguageModel(language, about["output_size"])
        network = SequenceNetwork(**network_fields(SequenceNetwork, about["network"]))
        model = SequenceModel(
            network, about["input_size"], about["output_size"], last=about["last"], scaling=scaling
        )
        model.classes = tuple(about.get("classes", ()))
        if about.get("task") == "classification" and not model.classes:
            model.classes = tuple(range(model.output_size))
        if len(columns := about.get("columns", ())) == model.input_size:
            model.signals = tuple(columns)
        return model
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder / 'model.json'} is damaged: {error!r}") from error


def read_scaling(content: Mapping[str, Any]) -> Scaling:
    return Scaling(**{name: tuple(float(value) for value in values) for name, values in content.items()})


def best_member(about: Any, seed: int | None = None) -> int:
    """The index of a seed among those trained together, or of the best one if it is not among them."""
    if seed in about["seeds"]:
        return int(about["seeds"].index(seed))
    scores = [math.inf if score is None else score for score in about["best_score"]]
    return scores.index(min(scores))
