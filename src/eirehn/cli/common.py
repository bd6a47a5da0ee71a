"""What all commands share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser
    from rich.console import Console


class UsageError(Exception):
    """What was typed cannot be meant."""


def make_parser(name: str, command: Callable[[list[str]], None]) -> ArgumentParser:
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
        raise UsageError(f"{one_line(error)} (eirehn {parser.prog.split()[-1]} --help)") from None


def value_of(flag: str, given: Sequence[str]) -> str | None:
    """What is given for a flag, before all flags are known."""
    for index, word in enumerate(given):
        if word == flag and index + 1 < len(given):
            return given[index + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def going_on(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    from ..training.callbacks import Stopped

    try:
        return work()
    except Stopped:
        raise KeyboardInterrupt from None


def console() -> Console:
    from rich.console import Console

    return Console(stderr=True)


def as_command(given: Sequence[str]) -> str:
    return shlex.join(["eirehn", *given])


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
