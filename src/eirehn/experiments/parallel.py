"""Trainings in parallel with joblib: in processes of this machine, or on a dask or ray cluster.

Parent and workers share only a file system. A sweep has a folder next to the runs: each worker appends its reports
to a file there, and stops when the file "running" has been deleted.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import joblib  # type: ignore[import-untyped]  # it has no types
import pytorch_lightning as pl
import torch
from joblib._parallel_backends import LokyBackend, SequentialBackend  # type: ignore[import-untyped]
from joblib.parallel import get_active_backend  # type: ignore[import-untyped]

from .._internal.checks import UnstableTraining
from .._internal.files import RunError
from ..training.callbacks import Event, Saving, Stopped
from ..training.config import Recipe
from ..training.provenance import cores
from ..training.run import RunFolder
from ..training.trainer import train

POLL = 0.2  # seconds between checks of a file
LATE = 60.0  # seconds until a network file system shows a new file

Tell: TypeAlias = Callable[[Event], None]
Say: TypeAlias = Callable[[str], None]
Ended: TypeAlias = Callable[[Recipe, dict[str, Any]], None]
Job: TypeAlias = Callable[[str, Tell, Say, pl.Callback], None]
"""What a worker does for a name: trainings with this callback, which stops them. It reports events and lines."""
Outcome: TypeAlias = tuple[str, bool, str | None]
"""A name, whether its job ended, and its error. If neither, it was stopped."""


def train_all(
    recipes: Sequence[Recipe],
    folder: Path,
    *,
    jobs: int | None = None,
    tell: Tell = lambda event: None,
    ended: Ended = lambda recipe, result: None,
) -> None:
    """Trains each recipe in its own folder under `folder`, `jobs` at a time.

    Runs that ended earlier are not repeated. If one fails or this process is stopped, the others save their state
    and stop. Another backend is chosen as usual in joblib: `with joblib.parallel_config(backend="dask")`.
    """
    folder = folder.resolve()  # workers may have another working directory
    waiting = {}
    for recipe in recipes:
        with RunFolder(folder / recipe.name) as run:
            run.open(recipe)
        if run.read_result() is None:
            waiting[recipe.name] = recipe
    number = number_of_jobs(jobs, list(waiting.values()))
    if number == 1 and is_local():
        for recipe in waiting.values():
            ended(recipe, train(recipe, folder / recipe.name, tell=tell))
    elif waiting:
        run_all(
            list(waiting),
            partial(train_row, str(folder)),
            folder,
            number,
            tell=tell,
            ended=lambda name: ended(waiting[name], _result(folder / name)),
        )


def run_all(
    names: Sequence[str],
    job: Job,
    folder: Path,
    jobs: int,
    *,
    tell: Tell,
    say: Say = lambda line: None,
    ended: Callable[[str], None] = lambda name: None,
) -> None:
    """Runs `job` for each name in workers, `jobs` at a time. They communicate through files in `folder`."""
    with _terminated_is_interrupted(), warnings.catch_warnings(), Sweep(folder) as sweep:
        # loky replaces workers whose memory has grown, with a warning.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        _run_all(names, job, sweep, jobs, tell, say, ended)


def number_of_jobs(jobs: int | None, recipes: Sequence[Recipe]) -> int:
    """By default that of the user's backend; otherwise one for each core, or two on a GPU, of which one prepares
    while the other computes."""
    own = joblib.effective_n_jobs(None)  # 1 if nothing was chosen
    on_gpu = torch.cuda.is_available() and any(each.hardware.accelerator != "cpu" for each in recipes)
    usual = own if own > 1 else 2 if on_gpu else cores()
    return min(jobs or usual, len(recipes))


def is_local() -> bool:
    """Whether all workers are on this machine."""
    return isinstance(get_active_backend()[0], LokyBackend | SequentialBackend)


class Sweep:
    """The folder by which parent and workers communicate."""

    def __init__(self, runs: Path) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix=".sweep-", dir=runs, ignore_cleanup_errors=True)
        self.runs, self.path = runs, Path(self._folder.name)
        self._read: dict[Path, int] = {}  # bytes of each file

    def __enter__(self) -> Sweep:
        (self.path / "running").touch()
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def stop(self) -> None:
        """Asks all workers to save and stop."""
        (self.path / "running").unlink(missing_ok=True)

    def messages(self) -> Iterator[dict[str, Any]]:
        """Complete lines that workers have written since the last call."""
        for path in sorted(self.path.glob("*.jsonl")):
            with open(path, "rb") as file:
                file.seek(self._read.get(path, 0))
                whole, end, _ = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(whole + end)
            yield from map(json.loads, whole.splitlines())


def _run_all(
    names: Sequence[str], job: Job, sweep: Sweep, jobs: int, tell: Tell, say: Say, ended: Callable[[str], None]
) -> None:
    """Callbacks run in this thread. Another thread waits for joblib, which Ctrl-C would abort."""
    outcomes: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
    gathering = threading.Thread(target=_gather, args=(_start(names, job, sweep, jobs), outcomes))
    gathering.start()
    try:
        left = len(names)
        while left:
            outcome = None
            with suppress(queue.Empty):
                outcome = outcomes.get(timeout=POLL)
            for message in sweep.messages():
                _pass_on(message, tell, say)
            if outcome is not None:
                ended(_name(outcome))
                left -= 1
    except BaseException as error:
        sweep.stop()
        gathering.join()  # until all have saved their state
        if isinstance(error, KeyboardInterrupt):
            raise Stopped from None
        raise


def _start(names: Iterable[str], job: Job, sweep: Sweep, jobs: int) -> Iterable[Outcome]:
    # No backend is named, so that a user's `parallel_config` is used; the default is loky.
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    calls = (joblib.delayed(run_job)(job, name, str(sweep.path), os.getpid()) for name in names)
    with _without_interrupts():
        outcomes: Iterable[Outcome] = parallel(calls)
    return outcomes


def _gather(outcomes: Iterable[Outcome], into: queue.SimpleQueue[Outcome | BaseException]) -> None:
    try:
        for outcome in outcomes:
            into.put(outcome)
    except BaseException as error:  # raised again by the reader
        into.put(error)


def _name(outcome: Outcome | BaseException) -> str:
    """The name whose job ended; raises an error if none did."""
    if isinstance(outcome, BrokenProcessPool):
        raise RunError("a training process was killed, perhaps because memory ran out: try a smaller --jobs")
    if isinstance(outcome, BaseException):
        raise outcome
    name, has_ended, error = outcome
    if error is not None:
        raise RunError(error)
    if not has_ended:
        raise KeyboardInterrupt
    return name


def _result(folder: Path) -> dict[str, Any]:
    """The result of a training that has ended."""
    run, until = RunFolder(folder), time.monotonic() + LATE
    while (result := run.read_result()) is None:
        if time.monotonic() > until:
            raise RunError(f"{run.path} has ended, but its result.json is not visible on this machine")
        time.sleep(POLL)
    return result


def _pass_on(message: dict[str, Any], tell: Tell, say: Say) -> None:
    if "warning" in message:
        warnings.warn(message["warning"], UnstableTraining, stacklevel=2)
    elif "line" in message:
        say(message["line"])
    else:
        tell(Event(**message))


_alone = threading.Lock()
"""One training at a time in a process: each sets the random state and the warnings of the process."""


def train_row(runs: str, name: str, tell: Tell, say: Say, stopping: pl.Callback) -> None:
    """Trains the run of this name in the folder `runs`."""
    folder = Path(runs) / name
    train(RunFolder(folder).recipe(), folder, tell=tell, callbacks=[stopping])


def run_job(job: Job, name: str, sweep: str, parent: int) -> Outcome:
    """Runs a job as a worker for the process `parent`."""
    running, reports = Path(sweep) / "running", Path(sweep) / f"{name}.jsonl"
    child = os.getppid() == parent

    def orphaned() -> bool:
        return child and os.getppid() != parent

    def report(message: dict[str, Any]) -> None:
        with (
            suppress(FileNotFoundError),
            open(reports, "a", encoding="utf-8") as file,
        ):  # deleted when the sweep is over
            file.write(json.dumps(message) + "\n")

    stopping = StopWhen(lambda: orphaned() or not running.exists())
    with _alone, _reported_warnings(lambda text: report({"warning": text})):
        try:
            if running.exists():
                job(name, lambda event: report(asdict(event)), lambda line: report({"line": line}), stopping)
                return name, True, None
        except (Stopped, KeyboardInterrupt):
            if orphaned():
                os._exit(1)  # otherwise it would wait forever
        except (RunError, ValueError) as error:
            return name, False, str(error)
        except Exception as error:  # returned: joblib would end the others at once if it were raised
            traceback.print_exc()
            return name, False, f"the training of {name} failed: {type(error).__name__}: {error}"
    return name, False, None


class StopWhen(pl.Callback):
    """Saves and stops a training when `over` returns True; it is called now and then."""

    def __init__(self, over: Callable[[], bool]) -> None:
        self.over = over
        self._asked = 0.0

    def on_train_batch_end(self, trainer: pl.Trainer, task: pl.LightningModule, *_: Any) -> None:
        if time.monotonic() - self._asked < POLL:
            return
        self._asked = time.monotonic()
        if self.over():
            for each in trainer.callbacks:  # type: ignore[attr-defined]  # Lightning hides it from checkers
                if isinstance(each, Saving):
                    each.ask_to_stop()


@contextmanager
def _reported_warnings(report: Callable[[str], None]) -> Iterator[None]:
    """Passes on warnings of an unstable training, of this thread only."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UnstableTraining)
        show, own = warnings.showwarning, threading.get_ident()

        def showwarning(message: Warning | str, category: type[Warning], *where: Any, **options: Any) -> None:
            if issubclass(category, UnstableTraining) and threading.get_ident() == own:
                report(str(message))
            else:
                show(message, category, *where, **options)

        warnings.showwarning = showwarning
        yield


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Makes child processes ignore Ctrl-C, which a terminal sends to all: they stop when they are asked to."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _terminated_is_interrupted() -> Iterator[None]:
    """Treats SIGTERM as Ctrl-C, so that the workers save."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
