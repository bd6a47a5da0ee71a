"""The command line: parses, calls, prints."""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from .. import __version__
from .._internal.checks import nearest
from .._internal.extras import missing
from .._internal.files import RunError
from .common import UsageError, as_command, one_line
from .compare import compare
from .data import data
from .evaluate import evaluate
from .generate import generate
from .recipes import recipes
from .report import report
from .reproduce import reproduce
from .score import score
from .train import train

USAGE = """usage: eirehn COMMAND …

Recurrent networks with elastic depth.

  reproduce NAME   a table or figure of the paper, trained and reported
  compare DATA     which layer to use for a task of the paper or a file of yours
  train            one training, by a recipe of ours or your own
  evaluate RUN     the metrics of a trained model
  generate RUN     text from a trained language model
  score RUN TEXT   how well it predicts a text of yours, word by word
  report RUN …     an HTML report of trained runs
  recipes          the recipes there are
  data NAME        a data set, fetched and checked: har or ptb

`eirehn COMMAND --help` says more. `eirehn --version` prints the version.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = run(given)
        sys.stdout.flush()
        return code
    except (UsageError, RunError, ValueError) as error:
        print(f"eirehn: {one_line(error)}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "eirehn":
            raise
        print(f"eirehn: {missing(error.name)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        goes_on = f"; the same command goes on from what is saved: {as_command(given)}"
        print(f"eirehn: stopped{goes_on if given[0] in SAVING else ''}", file=sys.stderr)
        return STOPPED
    except BrokenPipeError:  # whoever read our output has gone, and Python would say so when it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        print(f"eirehn: {one_line(error)}", file=sys.stderr)
        return 2
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        print(f"eirehn: not enough memory: {one_line(error)}", file=sys.stderr)
        return 2


def out_of_memory(error: Exception) -> bool:
    """Whether a device or the machine had no more to give: torch has a type of its own for devices only."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return "can't allocate memory" in str(error) or "not enough memory" in str(error)


def run(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if given else 2
    if given[0] == "--version":
        print(__version__)
        return 0
    name, rest = given[0], given[1:]
    if name not in COMMANDS:
        raise UsageError(f"there is no command {name!r}; did you mean {nearest(name, COMMANDS)!r}?")
    return COMMANDS[name](rest) or 0


COMMANDS: dict[str, Callable[[list[str]], int | None]] = {
    "reproduce": reproduce,
    "compare": compare,
    "train": train,
    "evaluate": evaluate,
    "generate": generate,
    "score": score,
    "report": report,
    "recipes": recipes,
    "data": data,
}
STOPPED = 130
SAVING = ("reproduce", "compare", "train")
"""Commands that save their state, and resume from it."""


def in_one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning of ours for users of the command; those of libraries as Python shows them."""
    if filename.startswith(str(Path(__file__).parents[1])):
        return f"eirehn: warning: {' '.join(str(message).split())}\n"
    return f"{filename}:{lineno}: {category.__name__}: {message}\n"


def entry() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # where a terminal lacks a letter
    warnings.formatwarning = in_one_line
    try:
        code = main()
    except KeyboardInterrupt:  # sent twice at once, as timeout(1) does
        code = STOPPED
    if code == STOPPED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Python would report a second one while it ends
    sys.exit(code)
