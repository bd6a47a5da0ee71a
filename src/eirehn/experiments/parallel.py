"""Many trainings at once by joblib: in processes of this machine, or on the machines of a dask or ray cluster.

Parent and workers share a file system and nothing else. While a sweep runs it has a folder of its own beside the
runs: each worker appends what it reports to a file there, and stops once the file "running" is gone.
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

POLL = 0.2  # seconds between two looks at a file
LATE = 60.0  # seconds after which a network file system shows a new file at the latest

Tell: TypeAlias = Callable[[Event], None]
Ended: TypeAlias = Callable[[Recipe, dict[str, Any]], None]
Outcome: TypeAlias = tuple[str, bool, str | None]
"""A row, whether its training ended, and what went wrong. Where neither, it was stopped."""


def train_all(
    recipes: Sequence[Recipe],
    folder: Path,
    *,
    jobs: int | None = None,
    tell: Tell = lambda event: None,
    ended: Ended = lambda recipe, result: None,
) -> None:
    """Trains each recipe in its own folder under `folder`, `jobs` at a time.

    Runs that ended earlier are not repeated. If one fails or this process is stopped, so are the others, with their
    state saved. Another backend is chosen as for any use of joblib: `with joblib.parallel_config(backend="dask")`.
    """
    folder = folder.resolve()  # workers may have another working directory
    waiting = {}
    for recipe in recipes:
        with RunFolder(folder / recipe.name) as run:
            run.open(recipe)
        if run.read_result() is None:
            waiting[recipe.name] = recipe
    number = _number(jobs, list(waiting.values()))
    if number == 1 and _is_local():
        for recipe in waiting.values():
            ended(recipe, train(recipe, folder / recipe.name, tell=tell))
    elif waiting:
        with _terminated_is_interrupted(), warnings.catch_warnings(), Sweep(folder) as sweep:
            # loky replaces a worker that has grown, as one that trains does, and warns of it.
            warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
            _train_waiting(waiting, sweep, number, tell, ended)


def _number(jobs: int | None, recipes: Sequence[Recipe]) -> int:
    """By default that of the user's own backend; else one for each core, and on a GPU two, of which one sets up
    while the other computes."""
    own = joblib.effective_n_jobs(None)  # 1 where nothing was chosen
    on_gpu = torch.cuda.is_available() and any(each.hardware.accelerator != "cpu" for each in recipes)
    usual = own if own > 1 else 2 if on_gpu else cores()
    return min(jobs or usual, len(recipes))


def _is_local() -> bool:
    """Whether no backend was chosen that may reach other machines."""
    return isinstance(get_active_backend()[0], LokyBackend | SequentialBackend)


class Sweep:
    """The folder through which parent and workers reach each other."""

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
        """What workers have written since the last call; a line that is not whole waits for the next."""
        for path in sorted(self.path.glob("*.jsonl")):
            with open(path, "rb") as file:
                file.seek(self._read.get(path, 0))
                whole, end, _ = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(whole + end)
            yield from map(json.loads, whole.splitlines())


def _train_waiting(waiting: dict[str, Recipe], sweep: Sweep, jobs: int, tell: Tell, ended: Ended) -> None:
    """Whatever calls back does so in this thread. Another one waits for joblib, which Ctrl-C would abort."""
    outcomes: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
    gathering = threading.Thread(target=_gather, args=(_start(waiting, sweep, jobs), outcomes))
    gathering.start()
    try:
        left = len(waiting)
        while left:
            outcome = None
            with suppress(queue.Empty):
                outcome = outcomes.get(timeout=POLL)
            for message in sweep.messages():
                _pass_on(message, tell)
            if outcome is not None:
                name, result = _result(outcome, sweep.runs)
                ended(waiting[name], result)
                left -= 1
    except BaseException as error:
        sweep.stop()
        gathering.join()  # until all have saved their state
        if isinstance(error, KeyboardInterrupt):
            raise Stopped from None
        raise


def _start(names: Iterable[str], sweep: Sweep, jobs: int) -> Iterable[Outcome]:
    # No backend is named, so that a user's `parallel_config` holds; joblib's own choice is loky.
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    calls = (joblib.delayed(train_row)(name, str(sweep.runs), str(sweep.path), os.getpid()) for name in names)
    with _without_interrupts():
        outcomes: Iterable[Outcome] = parallel(calls)
    return outcomes


def _gather(outcomes: Iterable[Outcome], into: queue.SimpleQueue[Outcome | BaseException]) -> None:
    try:
        for outcome in outcomes:
            into.put(outcome)
    except BaseException as error:  # raised again where it is read
        into.put(error)


def _result(outcome: Outcome | BaseException, runs: Path) -> tuple[str, dict[str, Any]]:
    if isinstance(outcome, BrokenProcessPool):
        raise RunError("a process that trained was killed, perhaps for want of memory: try fewer jobs at a time")
    if isinstance(outcome, BaseException):
        raise outcome
    name, has_ended, error = outcome
    if error is not None:
        raise RunError(error)
    if not has_ended:
        raise KeyboardInterrupt
    run, until = RunFolder(runs / name), time.monotonic() + LATE
    while (result := run.read_result()) is None:
        if time.monotonic() > until:
            raise RunError(f"{run.path} has ended, but its result.json is not to be seen from here")
        time.sleep(POLL)
    return name, result


def _pass_on(message: dict[str, Any], tell: Tell) -> None:
    if "warning" in message:
        warnings.warn(message["warning"], UnstableTraining, stacklevel=2)
    else:
        tell(Event(**message))


_alone = threading.Lock()
"""Held by the one training of this process: each sets the random state and the warnings of the whole process."""


def train_row(name: str, runs: str, sweep: str, parent: int) -> Outcome:
    """What a worker does: the run of this name in the folder `runs`, for the sweep of the process `parent`."""
    folder, running, reports = Path(runs) / name, Path(sweep) / "running", Path(sweep) / f"{name}.jsonl"
    child = os.getppid() == parent

    def orphaned() -> bool:
        return child and os.getppid() != parent

    def report(message: dict[str, Any]) -> None:
        with suppress(FileNotFoundError), open(reports, "a", encoding="utf-8") as file:  # gone once all is over
            file.write(json.dumps(message) + "\n")

    stopping = StopWhen(lambda: orphaned() or not running.exists())
    with _alone, _reported_warnings(lambda text: report({"warning": text})):
        try:
            if running.exists():
                recipe = RunFolder(folder).recipe()
                train(recipe, folder, tell=lambda event: report(asdict(event)), callbacks=[stopping])
                return name, True, None
        except (Stopped, KeyboardInterrupt):
            if orphaned():
                os._exit(1)  # else it would wait for more from nobody
        except (RunError, ValueError) as error:
            return name, False, str(error)
        except Exception as error:  # returned, since joblib ends the others at once where one raises
            traceback.print_exc()
            return name, False, f"the training of {name} failed: {type(error).__name__}: {error}"
    return name, False, None


class StopWhen(pl.Callback):
    """Stops a training, with its state saved, once `over` says so, which is asked now and then."""

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
    """Those of an unstable training; of this thread alone, as the parent may be another one of this process."""
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
    """Processes started here never get Ctrl-C, which a terminal sends to all: they stop when they are asked to."""
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
    """SIGTERM as Ctrl-C, so that the workers are asked to save."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
