"""`eirehn train`: one training, by a recipe of ours or of your own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..models import FIXED, SHALLOW
from .common import FAILED, UsageError, displayed, diverged, make_parser, parse

if TYPE_CHECKING:
    from ..training.config import Recipe


def train(given: list[str]) -> int:
    """Trains one recipe; every field of it is a flag, and a YAML file may hold any of them. `--data FILE` is short
    for `--data.path FILE`."""
    from ..recipes import find
    from ..training.config import DATA, PARTS, Recipe, data_kind

    if any(word == "--resume" or word.startswith("--resume=") for word in given):
        return _resume(given)
    parser = make_parser("train", train)
    parser.add_argument("--recipe", type=str | None, help="start from a recipe of `eirehn recipes`")
    parser.add_argument("--config", action="config", help="YAML file with any fields of a recipe")
    parser.add_argument("--out", type=Path | None, help="the run's folder; default runs/NAME")
    parser.add_argument(
        "--resume",
        type=Path | None,
        help="resume the run of this folder; beside it only --optimisation.epochs",
    )
    parser.add_argument("--text", nargs=3, help="your own texts to model: training, validation and test")
    parser.add_argument("--level", type=str | None, help="of your own texts: word or char")
    given = _config_first(_with_texts(_with_path(given)))
    named = _value_of("--recipe", given)
    # Texts have a recipe of their own, unless another one or a YAML file is given.
    text = _value_of("--data.kind", given) == "text" and _value_of("--config", given) is None
    name = "lm" if named is None and text else named
    start = Recipe() if name is None else find(name)
    kind = _data_field("kind", given) or start.data.kind
    if kind != "text" and _value_of("--data.level", given):
        raise UsageError("--level is for your own texts: --text TRAIN VALIDATION TEST")
    task = _task(given, kind, start)
    _check_flags(given, task)
    parser.add_class_arguments(Recipe, skip={"data", "network", "optimisation"})
    parser.add_class_arguments(PARTS[task].network, "network")
    parser.add_class_arguments(PARTS[task].optimisation, "optimisation")
    parser.add_class_arguments(data_kind(kind), "data")
    parser.add_argument("--data.kind", type=str, default=kind, help=f"one of {', '.join(DATA)}")
    defaults = _flat(start.to_dict())
    if kind != start.data.kind:
        defaults = {name: value for name, value in defaults.items() if not name.startswith("data.")}
    if task != start.data.task:  # what only the other task has goes
        known = _fields_of(task)
        parts = ("network.", "optimisation.")
        defaults = {name: each for name, each in defaults.items() if not name.startswith(parts) or name in known}
    parser.set_defaults(_of_network(defaults, _value_of("--network.kind", given)))
    asked = parse(parser, given)
    if asked.recipe != named:
        raise UsageError("a recipe is named once, by --recipe on the command line; a YAML file holds fields")
    recipe = _recipe(asked)
    _announce_reading(recipe)
    return _train(recipe, asked.out or Path("runs") / recipe.name)


def _resume(given: list[str]) -> int:
    """Resumes a run, also one that has ended with more epochs, where its learning rate does not depend on their
    number."""
    from ..training.run import RunFolder
    from ..training.trainer import with_more_epochs

    parser = make_parser("train", _resume)
    parser.add_argument("--resume", type=Path, required=True, help="folder of the run")
    parser.add_argument("--optimisation.epochs", type=int | None, help="in place of the run's")
    asked = parse(parser, given)
    recipe, epochs = RunFolder(asked.resume).recipe(), asked.optimisation.epochs
    _announce_reading(recipe)
    return _train(recipe if epochs is None else with_more_epochs(asked.resume, epochs), asked.resume)


def _announce_reading(recipe: Recipe) -> None:
    from ..data.text import TextData

    if isinstance(recipe.data, TextData) and (path := recipe.data.takes_long()) is not None:
        print(f"eirehn: reading {path}, once; a gigabyte takes minutes", file=sys.stderr)


def _train(recipe: Recipe, folder: Path) -> int:
    from ..training.callbacks import stopped_seeds
    from ..training.run import first_process
    from ..training.trainer import train as carry_out

    result = displayed(lambda display: carry_out(recipe, folder, tell=display))
    if first_process():
        _print_result(recipe.seeds, result)
        print(f"run: {folder}")
    return FAILED if stopped_seeds(recipe.seeds, result) or any(map(diverged, result["values"])) else 0


def _recipe(asked: Any) -> Recipe:
    from ..data.table import FileData
    from ..data.text import TextData
    from ..training.config import Recipe

    content = asked.as_dict()
    recipe = Recipe.from_dict({field.name: content[field.name] for field in fields(Recipe)})
    if recipe.init is not None:
        recipe = replace(recipe, init=str(Path(recipe.init).absolute()))
    own = isinstance(recipe.data, FileData | TextData)
    return replace(recipe, data=recipe.data.pinned()) if own else recipe  # type: ignore[attr-defined]  # those two


def _value_of(flag: str, given: Sequence[str]) -> str | None:
    """What is given for a flag, before all flags are known."""
    for index, word in enumerate(given):
        if word == flag and index + 1 < len(given):
            return given[index + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _with_path(given: Sequence[str]) -> list[str]:
    """`--data FILE` written out, unless it is one with fields of the data."""
    words = list(given)
    for index, (word, following) in enumerate(zip(given, [*given[1:], ""], strict=True)):
        flag, equals, value = word.partition("=")
        file = value if equals else following
        of_fields = file.startswith(("{", "--")) or Path(file).suffix.lower() in (".yaml", ".yml", ".json")
        if flag == "--data" and file and not of_fields:
            words[index] = f"--data.path{equals}{value}"
    return words


def _config_first(given: Sequence[str]) -> list[str]:
    """With the YAML file before all flags, which change what it says, wherever it was named."""
    flags = [
        not word.startswith("--config=") and "--config" not in (word, before)
        for before, word in zip(["", *given], given, strict=False)
    ]
    return [word for _, word in sorted(zip(flags, given, strict=True), key=lambda pair: pair[0])]


def _task(given: Sequence[str], kind: str, start: Recipe) -> str:
    """The task of the data, on which it depends what flags a network and its optimisation have."""
    from ..training.config import PARTS, data_kind

    fallback = start.data if kind == start.data.kind else data_kind(kind)()
    named = _data_field("task", given) if kind == "files" else None
    return named if named in PARTS else str(fallback.task)


def _fields_of(task: str) -> set[str]:
    """Of its network and its optimisation, by their flags."""
    from ..training.config import PARTS

    return {f"{part}.{each.name}" for part, cls in PARTS[task]._asdict().items() for each in fields(cls)}


def _check_flags(given: Sequence[str], task: str) -> None:
    """That no flag is of another task alone."""
    from ..training.config import PARTS

    flags = {name: {f"--{each}" for each in _fields_of(name)} for name in PARTS}
    for word in given:
        flag = word.partition("=")[0]
        others = [name for name, known in flags.items() if flag in known]
        if others and task not in others:
            raise UsageError(f"{flag} is for {' and '.join(others)}, and these data are for {task}")


def _data_field(field: str, given: Sequence[str]) -> str | None:
    """A field of the data by the flags or the YAML file, on which it depends what other flags there are."""
    import yaml  # type: ignore[import-untyped,unused-ignore]  # it has no types, unless stubs are installed

    named, path = _value_of(f"--data.{field}", given), _value_of("--config", given)
    if named is not None or path is None:
        return named
    try:
        content = yaml.safe_load(Path(path).read_text("utf-8"))
        return str(content["data"][field])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return None  # whatever is wrong with it, the parser says it better


def _with_texts(given: Sequence[str]) -> list[str]:
    """`--text` and `--level` in full: they are fields of the data, whose kind says what other flags there are."""
    words = list(given)
    if "--text" in words:
        at = words.index("--text")
        files = words[at + 1 : at + 4]
        if len(files) < 3 or any(file.startswith("--") for file in files):
            raise UsageError("--text takes three files: for training, validation and test")
        fields = zip(("train", "validation", "test"), files, strict=True)
        named = [f"--data.{field}={Path(file).absolute()}" for field, file in fields]
        words[at : at + 4] = ["--data.kind=text", *named]
    return [f"--data.{word[2:]}" if word == "--level" or word.startswith("--level=") else word for word in words]


def _of_network(defaults: dict[str, Any], kind: str | None) -> dict[str, Any]:
    """A recipe's fields without what only its own network has, where one of another kind is asked for."""
    if kind not in (*SHALLOW, *FIXED, "ACT"):
        return defaults
    if kind != "ACT":
        defaults = {**defaults, "optimisation.depth_penalty": 0.0}
    shared = ("weight_bound", "gate_bias") if kind in FIXED else ("weight_bound",)
    start = {name: value for name, value in defaults["network.start"].items() if name in shared}
    if kind in FIXED:
        return {**defaults, "network.start": start}
    own = {**defaults, "network.start": start, "network.hidden_dropout": 0.0}
    return {**own, "network.input_dropout": 0.0} if kind == "ACT" else own


def _flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict) and name != "start":
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _print_result(seeds: Sequence[int], result: dict[str, Any]) -> None:
    from ..training.callbacks import stopped_seeds

    stopped = stopped_seeds(seeds, result)
    for seed, value, epoch, depth in zip(
        seeds, result["values"], result["best_epoch"], result["depth"], strict=True
    ):
        early = f"; training was unstable and stopped after epoch {stopped[seed]}" if seed in stopped else ""
        if diverged(value):
            print(f"seed {seed}: diverged, no result{early}")
            continue
        which = "last" if result.get("best_validation") is None else "best"
        print(f"seed {seed}: test {result['metric']} {value:.6g} ({which} epoch {epoch}, depth {depth:.2f}){early}")
