"""Loads trained models from folders and saves them, without pickle and without the libraries that trained them."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .._internal.checks import one_of
from .._internal.files import RunError, read_json, replacing, write_json, write_text
from ..data.dataset import Scaling
from .config import LanguageNetwork, SequenceNetwork, network_fields
from .language import LanguageModel
from .sequence import SequenceModel

KEPT = ("best", "last")
TRAINED = Path(__file__).parent / "trained"
"""The models that come with the package, a folder each."""
MOST_LAYERS = 1000
FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
PICKLED = (".bin", ".pkl", ".pt", ".pth")


def load(run: str | os.PathLike[str], *, seed: int | None = None, which: str = "best", device: Any = "cpu") -> Any:
    """Loads a trained model from a folder, ready to use (in evaluation mode).

    A model trained on a file of your own takes and gives values in the units of that file, and its `classes` are
    the names of the classes. A language model has its vocabulary in `model.tokens`.

    Two trained models come with the package and are loaded by name, unless there is a folder of that name:
    `"har-best"` (activities of UCI HAR) and `"synthetic-best"` (regression, as in the paper).

    Args:
        run: the folder that `eirehn train`, `eirehn reproduce` or `save_pretrained` of a model wrote, or the name
            of a model of the package.
        seed: which of the seeds trained together. Default: the one with the best validation metric, or with the
            lowest training loss if there are no validation data.
        which: `"best"`, the weights of the best epoch on validation data, or of the last if there are none; or
            `"last"`, those of the last epoch. Default: `"best"`.
        device: the device of the model. Default: `"cpu"`.

    Returns:
        A `SequenceModel` or a `LanguageModel`, see `eirehn.models`.

    Raises:
        RunError: if there is not a trained model in the folder, no model of that name, or a file is damaged.
        ValueError: if there is no such seed or choice of weights.

    Examples:
        >>> model = eirehn.load("runs/synthetic")
        >>> model(torch.zeros(1, 20, 2)).shape
        torch.Size([1, 20, 2])
        >>> eirehn.load("har-best").predict(torch.zeros(1, 32, 36)).shape
        (1,)
    """
    one_of("which", which, KEPT)
    folder = _folder(Path(run))
    about = read_about(folder)
    with torch.device("meta"):  # the sizes in a damaged file must not allocate memory
        form = _blank(about, folder)
    if seed is not None and seed not in about["seeds"]:
        raise ValueError(f"seed must be one of {', '.join(map(str, about['seeds']))} in {folder}, got {seed}")
    index = best_member(about, seed)
    if which == "best" and about["best_score"][index] is None:
        raise RunError(
            f"{folder} has no best epoch of seed {about['seeds'][index]}: it has diverged, or not got there"
        )
    path = folder / f"{which}.safetensors"
    values = read_values(path)
    check_values({name: parameter[None] for name, parameter in form.named_parameters()}, values, path)
    if any(len(value) != len(about["seeds"]) for value in values.values()):
        raise RunError(f"{path} does not fit the model.json in the same folder")
    model = _blank(about, folder)
    for name, parameter in model.named_parameters():
        parameter.data = values[name][index].clone()
    if isinstance(model, LanguageModel):
        from ..data.vocabulary import Vocabulary

        model.tokens = Vocabulary.load(folder / "vocabulary.json")
        if len(model.tokens) != model.vocabulary:
            raise RunError(f"{folder / 'vocabulary.json'} does not fit the model it lies beside")
    model.results = _results(about, folder, index, which)
    if model.results:
        model.results.setdefault("sha256", _sha256(model.parameters()))
    return model.to(device).eval()


def _folder(run: Path) -> Path:
    """The folder of a run, or of the model of the package of this name."""
    if run.exists() or len(run.parts) != 1:
        return run
    known = sorted(each.name for each in TRAINED.iterdir())
    if run.name not in known:
        raise RunError(f"there is no folder {run}, and the models of the package are {', '.join(known)}")
    return TRAINED / run


def _results(about: dict[str, Any], folder: Path, index: int, which: str) -> dict[str, Any]:
    """What the folder says of the training of a member."""
    if "results" in about:
        return dict(about["results"])
    results = {"seed": about["seeds"][index], "score": about["best_score"][index]}
    if not (path := folder / "result.json").exists():
        return results
    found = read_json(path)
    try:
        values = found["values" if which == "best" else "final_values"]
        if len(values) != len(about["seeds"]):  # it is of another training
            return results
        results |= {name: str(found[name]) for name in ("recipe", "metric")}
        results |= {"value": values[index], "values": list(values)}
        return results | ({"depth": found["depth"][index]} if which == "best" else {})
    except (LookupError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error!r}") from error


def save(model: SequenceModel | LanguageModel, folder: Path, repo_id: str | None = None) -> None:
    """Writes one model as `load` reads it, with a model card unless the user has one of their own there."""
    if (folder / "recipe.json").exists():
        raise RunError(f"{folder} is a run folder, whose models would be replaced; choose another folder")
    if isinstance(model, LanguageModel) and (model.tokens is None or len(model.tokens) != model.vocabulary):
        raise ValueError(f"tokens must be the Vocabulary of the model's {model.vocabulary} tokens")
    from .card import card

    results = model.results or {}
    if results.get("sha256") not in (None, _sha256(model.parameters())):
        results = {}  # of other weights
    text = card(model, results, folder.resolve().name, repo_id)
    about = {"network": asdict(model.network), **_described(model)}
    about |= {"seeds": [results.get("seed", 0)], "results": results}
    about |= {"best_score": [0.0], "card": hashlib.sha256(text.encode()).hexdigest()}  # a score orders seeds
    own_card = _has_own_card(folder)
    if isinstance(model, LanguageModel):
        assert model.tokens is not None
        model.tokens.save(folder / "vocabulary.json")
    write_values(folder / "best.safetensors", {name: each[None] for name, each in model.named_parameters()})
    (folder / "last.safetensors").unlink(missing_ok=True)  # of an earlier model
    write_json(folder / "model.json", about)
    if not own_card:
        write_text(folder / "README.md", text)


def _has_own_card(folder: Path) -> bool:
    """Whether there is a README.md that is not as `save` wrote it."""
    try:
        found = hashlib.sha256((folder / "README.md").read_bytes()).hexdigest()
        return bool(read_json(folder / "model.json")["card"] != found)
    except FileNotFoundError:
        return False
    except (OSError, RunError, LookupError, TypeError):
        return True


def _sha256(values: Iterable[torch.Tensor]) -> str:
    found = hashlib.sha256()
    for value in values:
        found.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _described(model: SequenceModel | LanguageModel) -> dict[str, Any]:
    if isinstance(model, LanguageModel):
        size = model.vocabulary
        return {"input_size": size, "output_size": size, "last": False, "task": "language"}
    classes = [each.item() if hasattr(each, "item") else each for each in model.classes]  # also NumPy's numbers
    if wrong := [each for each in classes if not isinstance(each, str | int | float)]:
        raise TypeError(f"classes must be text or numbers, got {type(wrong[0]).__name__}")
    return {
        "input_size": model.input_size,
        "output_size": model.output_size,
        "last": model.last,
        "task": "classification" if classes else "regression",
        "classes": classes,
        "columns": list(model.signals),
        **({} if model.scaling is None else {"scaling": asdict(model.scaling)}),
    }


def write_values(path: Path, values: Mapping[str, torch.Tensor]) -> None:
    """Writes the stacked values of ensemble members, (M, …) each, as `read_values` reads them."""
    from safetensors.torch import save as as_bytes

    with replacing(path) as file:
        file.write(as_bytes({name: value.detach().cpu().contiguous() for name, value in values.items()}))


def check_values(own: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor], path: Path) -> None:
    """That `values` are those of a stack of models with parameters like `own`, (M, …) each."""
    if own.keys() != values.keys() or any(own[name].shape[1:] != values[name].shape[1:] for name in own):
        raise RunError(f"{path} does not fit the model it lies beside")


def read_values(path: Path) -> dict[str, torch.Tensor]:
    """The stacked values of the ensemble members of a run by name, (M, …) each."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        values = load(path.read_bytes())
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except SafetensorError as error:
        raise RunError(f"{path} is damaged: {error}") from error
    dtypes = {value.dtype for value in values.values()}
    if len(dtypes) > 1 or not dtypes <= FLOATS:
        raise RunError(f"{path} must have one dtype of {_names(FLOATS)}, got {_names(dtypes)}")
    if scalars := [name for name, value in values.items() if value.dim() == 0]:
        raise RunError(f"{path} is damaged: {scalars[0]} has no dimension of seeds")
    return values


def _names(dtypes: Iterable[torch.dtype]) -> str:
    return ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))


def read_about(folder: Path) -> dict[str, Any]:
    """The content of model.json, which describes the models of a run, one for each seed."""
    path = folder / "model.json"
    if not path.exists():
        found = ", ".join(sorted(each.name for each in folder.glob("*") if each.suffix in PICKLED))
        refused = f"; {found} may hold pickled objects, which eirehn does not load" if found else ""
        raise RunError(f"{folder} holds no trained model: it has no model.json{refused}")
    about = read_json(path)
    if not isinstance(about, dict):
        raise RunError(f"{path} is damaged: it is not a mapping")
    seeds, scores = about.get("seeds"), about.get("best_score")
    if not isinstance(seeds, list) or not isinstance(scores, list) or not len(seeds) == len(scores) > 0:
        raise RunError(f"{path} is damaged: seeds and best_score do not agree")
    if not all(score is None or isinstance(score, int | float) for score in scores):
        raise RunError(f"{path} is damaged: best_score is not of numbers")
    if not isinstance(about.get("results", {}), dict):
        raise RunError(f"{path} is damaged: results is not a mapping")
    return about


def _blank(about: dict[str, Any], folder: Path) -> SequenceModel | LanguageModel:
    try:
        if about["network"].get("num_layers", 1) > MOST_LAYERS:
            raise ValueError(f"more than {MOST_LAYERS} layers")
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
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise RunError(f"{folder / 'model.json'} is damaged: {error!r}") from error


def read_scaling(content: Mapping[str, Any]) -> Scaling:
    return Scaling(**{name: tuple(float(value) for value in values) for name, values in content.items()})


def best_member(about: Any, seed: int | None = None) -> int:
    """The index of a seed among those trained together, or of the best one if it is not among them."""
    if seed in about["seeds"]:
        return int(about["seeds"].index(seed))
    scores = [math.inf if score is None else score for score in about["best_score"]]
    return scores.index(min(scores))
