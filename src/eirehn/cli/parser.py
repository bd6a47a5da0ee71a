"""The parser of every command: flags with hyphens, plain help, and one line about a mistake.

Python names have underscores, so flags have them inside the parser. They are replaced in what is shown, and hyphens
in what is typed.
"""

from __future__ import annotations

import difflib
import re
from argparse import SUPPRESS, Action
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, DefaultHelpFormatter, set_parsing_settings

from .common import UsageError, one_line

set_parsing_settings(docstring_parse_attribute_docstrings=True)

KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "text",
    "tuple": "a list such as [0,1]",
    "collections.abc.Mapping": "numbers by name, such as {gate_bias: -2.0}",
}
PLAIN = {
    r"argument (--\S+): expected .*": r"\1 needs a value",
    r"argument (--\S+): ignored explicit argument (.*)": r"\1 takes no value, got \2",
    r"""Parser key "([\w.]+)": Unable to load config ['"](.*?)['"].*""": r"--\1 must be a YAML file, got \2",
    r"(?:Problems parsing|Unexpected) config: (.*)": r"the YAML file cannot be read: \1",
    r'Parser key "([\w.]+)": (.*)': r"--\1: \2",
}
"""Messages of the parser, and what is said instead."""


class Formatter(DefaultHelpFormatter):
    """Help with default values, and without types."""

    def _get_help_string(self, action: Action) -> str:
        text, default = action.help or "", action.default
        without = action.nargs == 0 or not action.option_strings or default == SUPPRESS
        return text if without or not written(default) else f"{text} (default: {written(default)})"


class Parser(ArgumentParser):
    short: Mapping[str, str] = {}
    """Flags that stand for longer ones."""

    def format_help(self, *given: Any, **named: Any) -> str:
        return hyphenated(super().format_help(*given, **named))


def make_parser(command: Callable[[list[str]], int | None], **options: Any) -> Parser:
    return Parser(
        prog=f"eirehn {command.__name__}",
        description=command.__doc__,
        formatter_class=Formatter,
        exit_on_error=False,
        allow_abbrev=False,
        **options,
    )


def add_model_options(parser: Parser) -> None:
    """Which weights of a trained model are used, how deep it may go, and on which device."""
    parser.add_argument(
        "--which", type=str, default="best", help="weights of the best epoch or the last: best, last"
    )
    parser.add_argument("--max_depth", type=int | None, help="inner steps allowed, in place of the network's own")
    parser.add_argument("--device", type=str | None, help="cpu, cuda, …; default a GPU where there is one")


def parse(parser: Parser, given: Sequence[str]) -> Any:
    try:
        return parser.parse_args(_listed(parser, underscored(given)))
    except ArgumentError as error:
        raise UsageError(f"{hyphenated(_plainly(parser, one_line(error)))} ({parser.prog} --help)") from None


def underscored(given: Sequence[str]) -> list[str]:
    """The names of flags as the parser knows them; values are left alone."""
    end = given.index("--") if "--" in given else len(given)
    names = [re.sub(r"^--[^=]+", lambda flag: f"--{flag[0][2:].replace('-', '_')}", word) for word in given[:end]]
    return [*names, *given[end:]]


def written(value: Any) -> str:
    """A default as it is typed; nothing where there is none."""
    if value is None or value == {}:
        return ""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listed(parser: Parser, words: Sequence[str]) -> list[str]:
    """With brackets around the values of flags that take lists, where they have none."""
    defaults = parser.get_defaults()
    lists = [f"--{name}" for name, value in vars(defaults.as_flat()).items() if isinstance(value, list | tuple)]
    listed: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        flag, equals, value = ("", "", word) if before in lists else word.partition("=")
        takes = before in lists or (flag in lists and equals)
        listed.append(f"{flag}{equals}[{value}]" if takes and value[:1] not in ("[", "-") else word)
    return listed


def hyphenated(text: str) -> str:
    """A text whose flags have hyphens."""
    return re.sub(r"(?<![\w-])--[a-z][\w.]*", lambda flag: flag[0].replace("_", "-"), text)


def _plainly(parser: Parser, message: str) -> str:
    """The parser's message about a mistake, without names of classes."""
    if found := re.match(r"unrecognized arguments: (.*)", message):
        return _unknown(parser, found[1].split())
    if found := re.match(r"the following arguments are required: (\w+)", message):
        about = next((action.help for action in parser._actions if action.dest == found[1].lower()), None)
        return f"{found[1].upper()} is missing: {about}"
    if found := re.match(r"(?:Group '([\w.]+)' does not accept o|O)ption '([\w.]+)'", message):
        name = found[2] if found[1] is None or found[2].startswith(found[1]) else f"{found[1]}.{found[2]}"
        near = difflib.get_close_matches(name, [action.dest for action in parser._actions], n=1)
        return f"there is no field {name}{_meant(near)}"
    key = re.match(r'Parser key "([\w.]+)":', message)
    kinds = [KINDS[kind] for kind in re.findall(r"Expected an? (?:<class ')?([\w.]+)", message) if kind in KINDS]
    given = re.search(r"(?:Got|Given) value: ?(.*?)(?: - Expected an? |$)", message)
    if key and kinds and given:
        return f"--{key[1]} must be {' or '.join(dict.fromkeys(kinds))}, got {given[1] or 'nothing'}"
    for pattern, plain in PLAIN.items():
        if re.fullmatch(pattern, message):
            message = re.sub(pattern, plain, message)
            break
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", message)


def _unknown(parser: Parser, words: Sequence[str]) -> str:
    """What is said of words that are not flags, or are flags of another name."""
    flag = next((word for word in words if word.startswith("--")), "").partition("=")[0]
    if not flag:
        return f"unexpected {' '.join(words)!r}"
    names: dict[str, list[str]] = {}  # each flag by its name, and by the last part of it
    for known in (*parser.short, *(each for action in parser._actions for each in action.option_strings)):
        for name in {known[2:], known.rpartition(".")[2].removeprefix("--")}:
            names.setdefault(name, []).extend(
                [*(short for short, full in parser.short.items() if full == known), known]
            )
    near = difflib.get_close_matches(flag[2:], names, n=1)
    return f"unknown flag {flag}{_meant(list(dict.fromkeys(names[near[0]])) if near else [])}"


def _meant(names: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""
