"""What all commands share."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._internal.extras import need

if TYPE_CHECKING:
    from ..training.display import Display


FAILED = 1
"""Exit code where the training of a seed diverged or was stopped."""


class UsageError(Exception):
    """A mistake in what was typed; the message is one line."""


def check_counts(asked: Any, *names: str) -> None:
    for name in names:
        if asked[name] is not None and asked[name] < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1, got {asked[name]}")


def displayed(work: Callable[[Display], dict[str, Any]]) -> dict[str, Any]:
    """The result of `work`, with the progress of its trainings in the terminal."""
    from rich.console import Console

    from ..training.callbacks import Stopped
    from ..training.display import Display

    with Display(Console(stderr=True)) as display:
        try:
            return work(display)
        except Stopped:
            raise KeyboardInterrupt from None


@contextmanager
def on_cluster(address: str | None) -> Iterator[None]:
    """Parallel trainings run on the dask cluster with a scheduler at this address; None: on this machine."""
    if address is None:
        yield
        return
    need("distributed")
    import joblib  # type: ignore[import-untyped]  # it has no types
    from distributed import Client

    with Client(address), joblib.parallel_config(backend="dask"):
        yield


def check_can_be_written(flag: str, path: Path | None) -> None:
    """Raises an error, before the work is done, where a file cannot be written."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"{flag} must be a file, and {path} is a folder")
    if path.exists() and not path.is_file():  # the file would replace it: /dev/null would be gone
        raise UsageError(f"{flag} must be a file, and {path} is not one")
    folder = next(each for each in path.absolute().parents if each.exists())
    if not folder.is_dir():
        raise UsageError(f"{flag} must lie in a folder, and {folder} is not one")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{flag} cannot be {path}: {folder} is not writable")


def check_apart(flag: str, path: Path | None, *runs: Path) -> None:
    """Raises an error where the file would replace one of these runs' own."""
    from ..training.run import RunFolder

    for run in runs:
        if path is not None and RunFolder(run).consists_of(path):
            raise UsageError(f"{flag} must be a file of its own, and {path} is part of the run")


def diverged(value: float | None) -> bool:
    """Whether this value of a result is of a seed that never had a finite one."""
    return value is None or not math.isfinite(value)


def exit_code(results: dict[str, Any]) -> int:
    """`FAILED` where a seed of a row was stopped or diverged, and 0 otherwise."""
    return (
        FAILED if any(row["stopped_seeds"] or any(map(diverged, row["values"])) for row in results["rows"]) else 0
    )


def as_command(given: Sequence[str]) -> str:
    return shlex.join(["eirehn", *given])


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
