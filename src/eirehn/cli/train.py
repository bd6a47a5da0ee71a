"""`eirehn train`: train a model by a recipe of the package or your own."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..models import FIXED, SHALLOW
from .common import FAILED, UsageError, displayed, diverged
from .parser import Parser, hyphenated, make_parser, parse, underscored
from .train_help import EXAMPLES, USAGE, short_help

if TYPE_CHECKING:
    from ..training.callbacks import Event
    from ..training.config import Recipe
    from ..training.display import Display

SHORT = {
    "--lr": "--optimisation.learning_rate",
    "--epochs": "--optimisation.epochs",
    "--batch_size": "--optimisation.batch_size",
    "--seed": "--seeds",
    "--data": "--data.path",
    "--level": "--data.level",
}
YAML = (".yaml", ".yml", ".json")


def train(given: list[str]) -> int:
    """Trains one recipe. Every field of it is a flag, and a YAML file may hold any of them."""
    if not given:
        print(USAGE + EXAMPLES, end="")
        return 2
    flags = flags_of(given, "train")
    if "--resume" in flags and "--help" not in flags:
        return _resume(flags)
    parser = make_parser(train, usage="eirehn train [flags]")
    parser.add_argument("--out", type=Path | None, help="The run's folder; default runs/NAME")
    parser.add_argument(
        "--logger", type=str | None, help="tensorboard (default), wandb, mlflow or csv; several: a,b"
    )
    parser.add_argument("--resume", type=Path | None, help="Resume this run; only --epochs may be given too")
    parser.add_argument("--help_all", action="help", help="Show all fields and exit")
    name, kind = add_recipe(parser, flags)
    if "--help" in flags:
        print(short_help(parser, name, kind))
        return 0
    asked, recipe = parse_recipe(parser, flags)
    return _train(recipe, asked.out or Path("runs") / recipe.name, asked.logger)


def add_recipe(parser: Parser, flags: Mapping[str, Sequence[str]]) -> tuple[str | None, str]:
    """Adds a flag for each field of a recipe, with the values of the recipe that the flags name. Returns its name
    and the kind of its data."""
    from ..recipes import find
    from ..training.config import DATA, PARTS, Recipe, data_kind

    parser.short = SHORT
    parser.add_argument("--recipe", type=str | None, help="Start from a recipe of `eirehn recipes`")
    parser.add_argument("--config", action="config", help="YAML file with any fields of a recipe")
    parser.add_argument("--text", nargs=3, metavar=("TRAIN", "VALIDATION", "TEST"), help="Your own texts")
    first = {flag: values[0] for flag, values in flags.items() if values}
    text = first.get("--data.kind") == "text" and "--config" not in first
    name = first.get("--recipe", "lm" if text else None)  # texts have a recipe of their own
    if name is None and "--help" in flags and "--config" not in first:
        name = "classify"
    start = Recipe() if name is None else find(name)
    kind = _data_field("kind", first) or start.data.kind
    task = _task(first, kind, start)
    _check_flags(flags, kind, task)
    parser.add_class_arguments(Recipe, skip={"data", "network", "optimisation"})
    parser.add_class_arguments(PARTS[task].network, "network")
    parser.add_class_arguments(PARTS[task].optimisation, "optimisation")
    parser.add_class_arguments(data_kind(kind), "data")
    parser.add_argument("--data.kind", type=str, default=kind, help=f"One of {', '.join(DATA)}")
    defaults = _flat(start.to_dict())
    if kind != start.data.kind:
        defaults = {name: value for name, value in defaults.items() if not name.startswith("data.")}
    if task != start.data.task:  # without the fields that only the other task has
        known = _fields_of(task)
        parts = ("network.", "optimisation.")
        defaults = {name: each for name, each in defaults.items() if not name.startswith(parts) or name in known}
    parser.set_defaults(_of_network(defaults, first.get("--network.kind")))
    return name, kind


def parse_recipe(parser: Parser, flags: Mapping[str, Sequence[str]]) -> tuple[Any, Recipe]:
    """What was asked, and the recipe."""
    asked = parse(parser, words_of(flags))
    if asked.recipe != flags.get("--recipe", [None])[0]:
        raise UsageError("--recipe must be given on the command line; a YAML file holds fields of a recipe")
    recipe = _recipe(asked)
    _announce_reading(recipe)
    return asked, recipe


def flags_of(given: Sequence[str], command: str) -> dict[str, list[str]]:
    """The values of each flag, by its full name. If a flag is given twice, its last values count."""
    flags: dict[str, list[str]] = {}
    for word in underscored(["--help" if word == "-h" else word for word in given]):
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            values = flags[flag if flag == "--data" else SHORT.get(flag, flag)] = [value] if equals else []
        elif not flags:
            meant = f"--recipe classify --data {word}" if Path(word).suffix else f"--recipe {word}"
            raise UsageError(f"unexpected {word!r}; did you mean {meant}? (eirehn {command} --help)")
        else:
            values.append(word)
    file = "".join(flags.get("--data", [])[:1])
    if file and not file.startswith("{") and Path(file).suffix.lower() not in YAML:
        flags["--data.path"] = flags.pop("--data")
    if "--text" in flags:
        files = flags.pop("--text")
        if len(files) != 3 and "--help" not in flags:
            raise UsageError("--text takes three files: for training, validation and test")
        parts = zip(("train", "validation", "test"), files, strict=False)
        named = {f"--data.{part}": [str(Path(file).absolute())] for part, file in parts}
        flags |= {"--data.kind": ["text"], **named}
    return flags


def words_of(flags: Mapping[str, Sequence[str]]) -> list[str]:
    """The flags as the parser reads them: YAML files first, since flags change what they say."""
    ordered = sorted(flags.items(), key=lambda each: (each[0] != "--config", each[0].count(".")))
    return [
        word
        for flag, values in ordered
        for word in ([f"{flag}={values[0]}"] if len(values) == 1 else [flag, *values])
    ]


def _resume(flags: Mapping[str, Sequence[str]]) -> int:
    """Resumes a run. One that has ended can be given more epochs, unless its learning rate depends on their
    number."""
    from ..training.run import RunFolder
    from ..training.trainer import with_more_epochs

    parser = make_parser(train)
    parser.add_argument("--resume", type=Path, required=True, help="folder of the run")
    parser.add_argument("--optimisation.epochs", type=int | None, help="in place of the run's")
    if others := [flag for flag in flags if flag not in ("--resume", "--optimisation.epochs")]:
        raise UsageError(f"with --resume only --epochs can be given, got {hyphenated(others[0])}")
    asked = parse(parser, words_of(flags))
    recipe, epochs = RunFolder(asked.resume).recipe(), asked.optimisation.epochs
    _announce_reading(recipe)
    return _train(recipe if epochs is None else with_more_epochs(asked.resume, epochs), asked.resume)


def _announce_reading(recipe: Recipe) -> None:
    from ..data.text import TextData

    if isinstance(recipe.data, TextData) and (path := recipe.data.takes_long()) is not None:
        print(f"eirehn: reading {path}, once; a gigabyte takes minutes", file=sys.stderr)


def _train(recipe: Recipe, folder: Path, logger: str | None = None) -> int:
    from ..data.table import FileData
    from ..training.callbacks import stopped_seeds
    from ..training.run import first_process
    from ..training.trainer import train as carry_out

    def work(display: Display) -> dict[str, Any]:
        heads = [recipe.data.summary] if isinstance(recipe.data, FileData) else []

        def tell(event: Event) -> None:
            while heads:  # once, after all checks
                display.print(heads.pop()())
            display(event)

        return carry_out(recipe, folder, tell=tell, loggers=None if logger is None else logger.split(","))

    result = displayed(work)
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


def _task(first: Mapping[str, str], kind: str, start: Recipe) -> str:
    """The task of the data, on which it depends which flags a network and its optimisation have."""
    from ..training.config import PARTS, data_kind

    fallback = start.data if kind == start.data.kind else data_kind(kind)()
    named = _data_field("task", first) if kind == "files" else None
    return named if named in PARTS else str(fallback.task)


def _fields_of(task: str) -> set[str]:
    """The fields of its network and its optimisation."""
    from ..training.config import PARTS

    return {f"{part}.{each.name}" for part, cls in PARTS[task]._asdict().items() for each in fields(cls)}


def _check_flags(flags: Mapping[str, Sequence[str]], kind: str, task: str) -> None:
    """That no flag is of another task, or of data of another kind, alone."""
    from ..training.config import DATA, PARTS

    for flag in flags:
        tasks = [name for name in PARTS if flag[2:] in _fields_of(name)]
        if tasks and task not in tasks:
            raise UsageError(f"{hyphenated(flag)} is for {' and '.join(tasks)}, and these data are for {task}")
        kinds = [name for name, cls in DATA.items() if flag in {f"--data.{each.name}" for each in fields(cls)}]
        if kinds and kind not in kinds:
            shown = hyphenated({full: short for short, full in SHORT.items()}.get(flag, flag))
            if kinds == ["files"]:
                raise UsageError(f"{shown} is for data of your own: give --recipe classify or --recipe regress")
            raise UsageError(
                f"{shown} is for data of kind {' or '.join(kinds)}, and the recipe's are of kind {kind}; for texts "
                "give --text TRAIN VALIDATION TEST"
            )


def _data_field(field: str, first: Mapping[str, str]) -> str | None:
    """A field of the data by the flags or the YAML file, on which it depends which other flags there are."""
    import yaml  # type: ignore[import-untyped,unused-ignore]  # it has no types, unless stubs are installed

    named, path = first.get(f"--data.{field}"), first.get("--config")
    if named is not None or path is None:
        return named
    try:
        content = yaml.safe_load(Path(path).read_text("utf-8"))
        return str(content["data"][field])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return None  # whatever is wrong with it, the parser says it better


def _of_network(defaults: dict[str, Any], kind: str | None) -> dict[str, Any]:
    """The fields of a recipe; where a network of another kind is given, without those that it does not have."""
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
