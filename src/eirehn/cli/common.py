"""What all commands share."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from ..training.display import Display


FAILED = 1
"""Exit code of a training that ran, but of which a seed stopped or diverged."""


class UsageError(Exception):
    """What was typed cannot be meant."""


def make_parser(name: str, command: Callable[[list[str]], int | None]) -> ArgumentParser:
    from jsonargparse import ArgumentParser, set_parsing_settings

    set_parsing_settings(docstring_parse_attribute_docstrings=True)
    return ArgumentParser(
        prog=f"eirehn {name}", description=command.__doc__, exit_on_error=False, allow_abbrev=False
    )


def parse(parser: ArgumentParser, given: list[str]) -> Any:
    from jsonargparse import ArgumentError

    try:
        return parser.parse_args(given)
    except ArgumentError as error:
        raise UsageError(f"{_plainly(one_line(error))} (eirehn {parser.prog.split()[-1]} --help)") from None


KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "text"}


def _plainly(message: str) -> str:
    """The parser's message about a value of the wrong type, without names of classes; any other as it is."""
    key = re.match(r'Parser key "([\w.]+)":', message)
    kinds = [KINDS[kind] for kind in re.findall(r"Expected a <class '(\w+)'>", message) if kind in KINDS]
    given = re.search(r"(?:Got|Given) value: (.*?)(?: - Expected a <class|$)", message)
    if key is None or given is None or not kinds:
        return message
    return f"--{key[1]} must be {' or '.join(kinds)}, got {given[1]}"


def add_model_options(parser: ArgumentParser) -> None:
    """Which values of a trained model are used, how deep it may go, and where."""
    parser.add_argument("--which", type=str, default="best", help="best: of the best epoch; or last")
    parser.add_argument("--max_depth", type=int | None, help="inner steps allowed, in place of the network's own")
    parser.add_argument("--device", type=str | None, help="cpu, cuda, …; default a GPU where there is one")


def check_counts(asked: Any, *names: str) -> None:
    for name in names:
        if asked[name] is not None and asked[name] < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1, got {asked[name]}")


def displayed(work: Callable[[Display], dict[str, Any]]) -> dict[str, Any]:
    """What `work` returns, whose trainings are shown in the terminal until they end or are stopped."""
    from rich.console import Console

    from ..training.callbacks import Stopped
    from ..training.display import Display

    with Display(Console(stderr=True)) as display:
        try:
            return work(display)
        except Stopped:
            raise KeyboardInterrupt from None


def check_can_be_written(flag: str, path: Path | None) -> None:
    """That a file can be written there, as far as is known before the work is done."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"{flag} must be a file, and {path} is a folder")
    if path.exists() and not path.is_file():  # what is written takes its place: /dev/null would be gone
        raise UsageError(f"{flag} must be a file, and {path} is none")
    folder = next(each for each in path.absolute().parents if each.exists())
    if not folder.is_dir():
        raise UsageError(f"{flag} must lie in a folder, and {folder} is none")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{flag} cannot be {path}: {folder} is not to be written to")


def check_apart(flag: str, path: Path | None, *runs: Path) -> None:
    """That what is written there takes the place of nothing that these runs consist of."""
    from ..training.run import RunFolder

    for run in runs:
        if path is not None and RunFolder(run).consists_of(path):
            raise UsageError(f"{flag} must be a file of its own, and {path} is a part of the run")


def diverged(value: float | None) -> bool:
    """Whether a result's value is that of a seed which never had a finite one."""
    return value is None or not math.isfinite(value)


def exit_code(results: dict[str, Any]) -> int:
    """Of trainings with these results: `FAILED` where a seed of a row stopped or diverged."""
    return (
        FAILED if any(row["stopped_seeds"] or any(map(diverged, row["values"])) for row in results["rows"]) else 0
    )


def as_command(given: Sequence[str]) -> str:
    return shlex.join(["eirehn", *given])


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
