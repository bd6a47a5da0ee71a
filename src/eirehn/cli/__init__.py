"""The command line: parses, calls, prints."""

from __future__ import annotations

import difflib
import io
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from .. import __version__
from .._internal.extras import missing
from .._internal.files import RunError
from .._internal.memory import out_of_memory
from .common import UsageError, as_command, one_line

COMMANDS = (
    "reproduce",
    "compare",
    "train",
    "tune",
    "evaluate",
    "predict",
    "generate",
    "score",
    "export",
    "report",
    "recipes",
    "data",
    "warmup",
)
SAVING = ("reproduce", "compare", "train", "tune")
"""Commands that save their state, and resume from it."""
STOPPED = 130
USAGE = """usage: eirehn COMMAND …

Recurrent networks with elastic depth.

  reproduce NAME   train and report the results behind a table of the paper
  compare DATA     compare layers on a task of the paper or on your own file
  train            train one model, by a recipe of the package or your own
  tune             search for the best settings of a recipe on validation data
  evaluate RUN     print the metrics of a trained model
  predict RUN FILE predict classes, numbers or next words for a new file
  generate RUN     write text with a trained language model
  score RUN TEXT   measure how well a language model predicts your text
  export RUN FILE  write a trained model as an ONNX file
  report RUN …     write an HTML report of trained runs
  recipes          list the recipes
  data NAME        download and check a data set: har or ptb
  warmup           compile the CPU kernels before they are needed

`eirehn COMMAND --help` lists the flags of a command; `eirehn --version` prints
the version.
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
        resumes = f"; the same command resumes the training: {as_command(given)}"
        print(f"eirehn: stopped{resumes if given[0] in SAVING else ''}", file=sys.stderr)
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


def run(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if given else 2
    if given[0] == "--version":
        print(__version__)
        return 0
    name, rest = given[0], given[1:]
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        meant = f"did you mean {near[0]!r}?" if near else f"the commands are {', '.join(COMMANDS)}"
        raise UsageError(f"unknown command {name!r}; {meant} (eirehn --help)")
    command = getattr(import_module(f".{name}", __package__), name)  # a command alone is imported
    return command(rest) or 0


def in_one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Warnings of this package on one line; those of libraries as Python shows them."""
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
