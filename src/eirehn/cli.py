"""The command line: parses, calls, prints."""

from __future__ import annotations

import io
import math
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .files import RunError

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser
    from rich.console import Console

    from .recipes.experiments import Experiment
    from .training.recipe import Recipe

USAGE = """usage: eirehn COMMAND …

Recurrent networks with elastic depth.

  reproduce NAME   a table or figure of the paper, trained and reported
  train            one training, by a recipe of ours or your own
  evaluate RUN     the figures of a trained model
  generate RUN     text from a trained language model
  report RUN …     an HTML report of trained runs
  carry            a training in small files, to go on elsewhere
  recipes          the recipes there are
  data NAME        a data set, fetched and checked: har or ptb

`eirehn COMMAND --help` says more. `eirehn --version` prints the version.
"""


class UsageError(Exception):
    """What was typed cannot be meant."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = run(given)
        sys.stdout.flush()
        return code
    except (UsageError, RunError, ValueError) as error:
        print(f"eirehn: {_one_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"eirehn: stopped; the same command goes on from what is saved: {_command(given)}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has gone, and Python would say so when it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        print(f"eirehn: {_one_line(error)}", file=sys.stderr)
        return 2


def run(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if given else 2
    if given[0] == "--version":
        from . import __version__

        print(__version__)
        return 0
    name, rest = given[0], given[1:]
    if name not in COMMANDS:
        from .checks import nearest

        raise UsageError(f"there is no command {name!r}; did you mean {nearest(name, COMMANDS)!r}?")
    COMMANDS[name](rest)
    return 0


def reproduce(given: list[str]) -> None:
    """Trains everything behind a table of the paper and writes results.json and report.html."""
    parser = _parser("reproduce", reproduce)
    parser.add_argument("name", type=str, help="synthetic, weight-updates, har, ptb or figure1")
    parser.add_argument("--quick", action="store_true", help="few epochs and two seeds: minutes, not hours")
    parser.add_argument("--epochs", type=int | None, help="fewer or more epochs than the recipes have")
    parser.add_argument("--seeds", type=int | None, help="only the first so many seeds")
    parser.add_argument("--sequences", type=int | None, help="so many training sequences, or tokens of a text")
    parser.add_argument("--rows", type=str, nargs="+", help="train only these rows, by the names of their recipes")
    parser.add_argument("--out", type=Path | None, help="folder of the runs, results and report; default runs/NAME")
    parser.add_argument("--jobs", type=int | None, help="runs at a time; default one for each core, on a GPU 2")
    parser.add_argument("--results", type=Path | None, help="write the results to this file too")
    asked = _parse(parser, given)
    for name in ("jobs", "epochs", "seeds", "sequences"):
        if asked[name] is not None and asked[name] < 1:
            raise UsageError(f"--{name} must be at least 1, got {asked[name]}")
    if asked.name == "figure1":
        _figure1(asked.out or Path("runs/figure1"))
        return
    from .recipes.experiments import Cut, experiments
    from .recipes.reproduce import reproduce as carry_out
    from .report.table import markdown_table
    from .training.progress import Display

    known = experiments()
    if asked.name not in known:
        raise UsageError(
            f"there is nothing to reproduce called {asked.name!r}; there are {', '.join(known)}, figure1"
        )
    folder = asked.out or Path("runs") / (asked.name + ("-quick" if asked.quick else ""))
    base = known[asked.name].quick if asked.quick else Cut()
    named = {name: asked[name] for name in ("epochs", "seeds", "sequences") if asked[name] is not None}
    cut = replace(base, **named)
    with Display(_console()) as display:

        def ended(recipe: Recipe, result: dict[str, Any]) -> None:
            values = [value for value in result["values"] if value is not None]
            mean = f"{sum(values) / len(values):.4g}" if values else "diverged"
            display.print(f"{recipe.name}: test {result['metric']} {mean} in {result['seconds']:.0f} s")

        results = _going_on(
            lambda: carry_out(
                known[asked.name],
                folder,
                command=_command(["reproduce", *given]),
                only=_chosen(known[asked.name], asked.rows),
                cut=cut,
                jobs=asked.jobs,
                tell=display,
                ended=ended,
            ),
        )
    if asked.results is not None:
        from .files import write_json

        write_json(asked.results, results)
    print(markdown_table(results))
    print(f"results: {folder / 'results.json'}\nreport: {folder / 'report.html'}")


def train(given: list[str]) -> None:
    """Trains one recipe; every field of it is a flag, and a YAML file may hold any of them. `--data FILE` is short
    for `--data.path FILE`."""
    from .recipes import find
    from .training.recipe import DATA, Recipe, data_kind

    if any(word == "--resume" or word.startswith("--resume=") for word in given):
        _resume(given)
        return
    parser = _parser("train", train)
    parser.add_argument("--recipe", type=str | None, help="start from a recipe of `eirehn recipes`")
    parser.add_argument("--config", action="config", help="YAML file with any fields of a recipe")
    parser.add_argument("--out", type=Path | None, help="the run's folder; default runs/NAME")
    parser.add_argument("--resume", type=Path | None, help="alone: go on with the run of this folder")
    parser.add_argument("--text", nargs=3, help="your own texts to model: to train on, to choose by, to report")
    parser.add_argument("--level", type=str | None, help="of your own texts: word or char")
    given = _config_first(_with_texts(_with_path(given)))
    named = _value_of("--recipe", given)
    start = Recipe() if named is None else find(named)
    kind = _data_kind(given) or start.data.kind
    parser.add_class_arguments(Recipe, skip={"data"})
    parser.add_class_arguments(data_kind(kind), "data")
    parser.add_argument("--data.kind", type=str, default=kind, help=f"one of {', '.join(DATA)}")
    defaults = _flat(start.to_dict())
    if kind != start.data.kind:
        defaults = {name: value for name, value in defaults.items() if not name.startswith("data.")}
    parser.set_defaults(defaults)
    asked = _parse(parser, given)
    if asked.recipe != named:
        raise UsageError("a recipe is named once, by --recipe on the command line; a YAML file holds fields")
    recipe = _recipe(asked)
    _train(recipe, asked.out or Path("runs") / recipe.name)


def _resume(given: list[str]) -> None:
    from .training.folder import RunFolder

    parser = _parser("train", train)
    parser.add_argument("--resume", type=Path, required=True, help="folder of a run to go on with")
    folder = _parse(parser, given).resume
    _train(RunFolder(folder).recipe(), folder)


def _train(recipe: Recipe, folder: Path) -> None:
    from .training.fit import first_process
    from .training.fit import train as carry_out
    from .training.progress import Display

    with Display(_console()) as display:
        result = _going_on(lambda: carry_out(recipe, folder, tell=display))
    if first_process():
        _print_result(recipe.seeds, result)
        print(f"run: {folder}")


def evaluate(given: list[str]) -> None:
    """Prints the figures of trained runs on a split of their data."""
    parser = _parser("evaluate", evaluate)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--split", type=str, default="test", help="train, validation or test")
    parser.add_argument("--which", type=str, default="best", help="best: of the best epoch; or last")
    parser.add_argument("--max_depth", type=int | None, help="inner steps allowed, in place of the network's own")
    parser.add_argument("--batch", type=int | None, help="columns to read a text in; default 1, from end to end")
    parser.add_argument("--device", type=str | None, help="cpu, cuda, …; default a GPU where there is one")
    parser.add_argument("--together", action="store_true", help="of all language models of all runs as one, too")
    asked = _parse(parser, given)
    from .training.evaluation import evaluate as measure
    from .training.evaluation import evaluate_together

    options = {name: asked[name] for name in ("split", "which", "max_depth", "batch", "device")}
    for run in asked.runs:
        figures = measure(run, **options)
        if len(asked.runs) > 1:
            print(f"{run}:")
        for seed, value, depth in zip(figures.seeds, figures.values, figures.depths, strict=True):
            print(f"seed {seed}: {figures.metric} {value:.6g}, depth {depth:.3f}")
        print(f"mean: {figures.metric} {sum(figures.values) / len(figures.values):.6g}")
    if asked.together:
        whole = evaluate_together(asked.runs, **options)
        print(f"together, {whole.members} models: {whole.metric} {whole.value:.6g}")


def generate(given: list[str]) -> None:
    """Writes text from a trained language model, word by word; the same seed gives the same text."""
    parser = _parser("generate", generate)
    parser.add_argument("run", type=Path, help="folder of the run")
    parser.add_argument("--prompt", type=str, default="", help="text to go on from")
    parser.add_argument("--tokens", type=int, default=100, help="words, or characters, to write")
    parser.add_argument("--temperature", type=float, default=1.0, help="below 1: likelier words; 0: the likeliest")
    parser.add_argument("--seed", type=int, default=0, help="of the draws")
    parser.add_argument("--which", type=str, default="best", help="best: of the best epoch; or last")
    parser.add_argument("--max_depth", type=int | None, help="inner steps allowed, in place of the network's own")
    parser.add_argument("--show-depth", action="store_true", help="write the inner steps taken below each word")
    parser.add_argument("--device", type=str | None, help="cpu, cuda, …; default a GPU where there is one")
    asked = _parse(parser, given)
    from rich.console import Console

    from .generation import generate as draw
    from .generation import pieces, read_prompt, trained_language_model

    model, vocabulary = trained_language_model(asked.run, which=asked.which, device=asked.device)
    prompt = read_prompt(asked.prompt, vocabulary)
    if prompt.unknown:
        unknown = ", ".join(map(repr, prompt.unknown))
        print(f"eirehn: not in the vocabulary, and read as <unk>: {unknown}", file=sys.stderr)
    options = {name: asked[name] for name in ("tokens", "temperature", "seed", "max_depth")}
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    drawn = draw(model, vocabulary, prompt.ids, **options)
    for piece in pieces(drawn, vocabulary.level, depth_of=model.network.max_depth if asked.show_depth else None):
        if console.is_terminal and piece.style:
            console.print(piece.text, style=piece.style, end="")
        else:  # as it is: a console would change tabs
            sys.stdout.write(piece.text)
            sys.stdout.flush()
    print()


def report(given: list[str]) -> None:
    """Writes one self-contained HTML page about trained runs."""
    parser = _parser("report", report)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="the page to write")
    asked = _parse(parser, given)
    from .recipes.reproduce import report_on

    print(f"report: {report_on(asked.runs, asked.out, command=_command(['report', *given]))}")


def carry(given: list[str]) -> None:
    """Packs the training of a run into a folder of small files, or makes a run of such a folder that goes on."""
    parser = _parser("carry", carry)
    parser.add_argument("action", type=str, help="pack RUN FOLDER, or unpack FOLDER RUN")
    parser.add_argument("source", type=Path, help="the run to pack, or the folder to unpack")
    parser.add_argument("target", type=Path, help="the folder, or the run, to make")
    parser.add_argument("--which", type=str, default="last", help="values to pack: last, or best")
    parser.add_argument("--device", type=str | None, help="cpu, cuda, …; default a GPU where there is one")
    asked = _parse(parser, given)
    from .training.carry import pack, unpack

    if asked.action not in ("pack", "unpack"):
        raise UsageError(f"carry can pack or unpack, not {asked.action!r}")
    if asked.action == "pack":
        carried = pack(asked.source, asked.target, which=asked.which, device=asked.device)
    else:
        carried = unpack(asked.source, asked.target, device=asked.device)
    print(f"{carried.size / 2**20:.1f} MiB; validation {carried.metric}:")
    for before, after, best in zip(carried.before, carried.after, carried.best, strict=True):
        known = f"; {best:.6g} at the best epoch" if best is not None else ""
        was, now = (math.nan if each is None else each for each in (before, after))
        print(f"  {was:.6g} before, {now:.6g} carried ({now - was:+.2g}){known}")
    if asked.action == "unpack":
        print(f"go on with: {_command(['train', '--resume', str(asked.target)])}")


def recipes(given: list[str]) -> None:
    """Lists the recipes, or prints one as YAML for `eirehn train --config`."""
    parser = _parser("recipes", recipes)
    parser.add_argument("name", type=str | None, nargs="?", help="print this recipe as YAML")
    asked = _parse(parser, given)
    from .models import SHALLOW
    from .recipes import find
    from .recipes import recipes as known

    if asked.name is not None:
        import yaml  # type: ignore[import-untyped,unused-ignore]  # it has no types, unless stubs are installed

        print(yaml.safe_dump(find(asked.name).to_dict(), sort_keys=False, allow_unicode=True), end="")
        return
    for name, recipe in known().items():
        network, optimisation = recipe.network, recipe.optimisation
        depth = "" if network.kind in SHALLOW else f"depth {network.max_depth}"
        print(
            f"{name:34} {network.kind:7} {network.hidden_size:4} units  {depth:8}  "
            f"{optimisation.epochs} epochs  {len(recipe.seeds)} seeds"
        )


def data(given: list[str]) -> None:
    """Fetches a data set, checks it and puts it where trainings look for it."""
    parser = _parser("data", data)
    parser.add_argument("name", type=str, help="har (UCI HAR) or ptb (Penn Treebank)")
    parser.add_argument("--from", type=Path | None, help="an archive or folder that is here: nothing is downloaded")
    parser.add_argument("--out", type=Path | None, help="folder of all data; default EIREHN_DATA_DIR")
    asked = _parse(parser, given)
    from .data.commands import provide

    provide(asked.name, asked["from"], asked.out, _console())


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "reproduce": reproduce,
    "train": train,
    "evaluate": evaluate,
    "generate": generate,
    "report": report,
    "carry": carry,
    "recipes": recipes,
    "data": data,
}


def _chosen(experiment: Experiment, asked: Sequence[str] | None) -> list[str] | None:
    """The rows of these names, which may lack the experiment's own at their start."""
    if asked is None:
        return None
    known = [recipe.name for recipe in experiment.rows]
    names = [name for each in asked for name in each.split(",")]
    names = [long if (long := f"{experiment.name}-{name}") in known else name for name in names]
    for name in names:
        if name not in known:
            from .checks import nearest

            raise UsageError(f"{experiment.name} has no row {name!r}; did you mean {nearest(name, known)!r}?")
    return names


def _figure1(folder: Path) -> None:
    from .files import replacing
    from .report.figures import figure1

    figure = figure1()
    for suffix in ("png", "svg"):
        path = folder / f"figure1.{suffix}"
        with replacing(path) as file:
            figure.savefig(file, format=suffix, dpi=160)
        print(path)


def _parser(name: str, command: Callable[[list[str]], None]) -> ArgumentParser:
    from jsonargparse import ArgumentParser, set_parsing_settings

    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    return ArgumentParser(
        prog=f"eirehn {name}", description=command.__doc__, exit_on_error=False, allow_abbrev=False
    )


def _parse(parser: ArgumentParser, given: list[str]) -> Any:
    from jsonargparse import ArgumentError

    try:
        return parser.parse_args(given)
    except ArgumentError as error:
        raise UsageError(f"{_one_line(error)} (eirehn {parser.prog.split()[-1]} --help)") from None


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
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        if word == "--data" and _is_of_data(following):
            words[index] = "--data.path"
        elif word.startswith("--data=") and _is_of_data(word.partition("=")[2]):
            words[index] = f"--data.path={word.partition('=')[2]}"
    return words


def _is_of_data(word: str) -> bool:
    fields = word.startswith(("{", "--")) or Path(word).suffix.lower() in (".yaml", ".yml", ".json")
    return bool(word) and not fields


def _config_first(given: Sequence[str]) -> list[str]:
    """With the YAML file before all flags, which change what it says, wherever it was named."""
    flags = [
        not word.startswith("--config=") and "--config" not in (word, before)
        for before, word in zip(["", *given], given, strict=False)
    ]
    return [word for _, word in sorted(zip(flags, given, strict=True), key=lambda pair: pair[0])]


def _data_kind(given: Sequence[str]) -> str | None:
    """The kind of data the flags or the YAML file name, on which it depends what other flags there are."""
    import yaml  # type: ignore[import-untyped,unused-ignore]  # it has no types, unless stubs are installed

    named, path = _value_of("--data.kind", given), _value_of("--config", given)
    if named is not None or path is None:
        return named
    try:
        content = yaml.safe_load(Path(path).read_text("utf-8"))
        return str(content["data"]["kind"])
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        return None  # whatever is wrong with it, the parser says it better


def _with_texts(given: Sequence[str]) -> list[str]:
    """`--text` and `--level` in full: they are fields of the data, whose kind says what other flags there are."""
    words = list(given)
    if "--text" in words:
        at = words.index("--text")
        files = words[at + 1 : at + 4]
        if len(files) < 3 or any(file.startswith("--") for file in files):
            raise UsageError("--text takes three files: to train on, to choose by, and to report")
        fields = zip(("train", "validation", "test"), files, strict=True)
        named = [f"--data.{field}={Path(file).absolute()}" for field, file in fields]
        words[at : at + 4] = ["--data.kind=text", *named]
    return [f"--data.{word[2:]}" if word == "--level" or word.startswith("--level=") else word for word in words]


def _recipe(asked: Any) -> Recipe:
    from dataclasses import fields

    from .data.language import TextData
    from .data.own import FileData
    from .training.recipe import Recipe

    content = asked.as_dict()
    recipe = Recipe.from_dict({field.name: content[field.name] for field in fields(Recipe)})
    own = isinstance(recipe.data, FileData | TextData)
    return replace(recipe, data=recipe.data.pinned()) if own else recipe  # type: ignore[attr-defined]  # those two


def _flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, dict) and name != "start":
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _going_on(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    from .training.callbacks import Stopped

    try:
        return work()
    except Stopped:
        raise KeyboardInterrupt from None


def _print_result(seeds: Sequence[int], result: dict[str, Any]) -> None:
    for seed, value, epoch, depth in zip(
        seeds, result["values"], result["best_epoch"], result["depth"], strict=True
    ):
        shown = "diverged" if value is None or math.isnan(value) else f"{value:.6g}"
        which = "last" if result.get("best_validation") is None else "best"
        print(f"seed {seed}: test {result['metric']} {shown} ({which} epoch {epoch}, depth {depth:.2f})")


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def _command(given: Sequence[str]) -> str:
    return shlex.join(["eirehn", *given])


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def entry() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without these letters is no reason to fail
    sys.exit(main())
