"""Many runs at once, in processes of their own."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from ..files import RunError
from .callbacks import Stopped
from .config import Recipe
from .folder import RunFolder
from .progress import Event
from .provenance import cores
from .stability import UnstableTraining


def train_all(
    recipes: Sequence[Recipe],
    folder: Path,
    *,
    jobs: int | None = None,
    tell: Callable[[Event], None],
    ended: Callable[[Recipe, dict[str, Any]], None] = lambda recipe, result: None,
) -> list[dict[str, Any]]:
    """Trains each recipe in its own folder under `folder`, `jobs` at a time, and returns their results.

    Runs that ended earlier are not repeated. If this process is stopped, so are the others, with their state saved.
    """
    waiting = []
    for recipe in recipes:
        run = RunFolder(folder / recipe.name)
        with run:
            run.open(recipe)
        if run.read_result() is None:
            waiting.append(recipe)
    if waiting:
        jobs = min(jobs or _usual_jobs(waiting), len(waiting))
        _Pool(waiting, folder, jobs, tell, ended).run()
    results = [RunFolder(folder / recipe.name).read_result() for recipe in recipes]
    return [result for result in results if result is not None]


def _usual_jobs(recipes: Sequence[Recipe]) -> int:
    """One for each core; on a GPU two, of which one sets up while the other computes."""
    on_gpu = torch.cuda.is_available() and any(each.hardware.accelerator != "cpu" for each in recipes)
    return 2 if on_gpu else cores()


class _Pool:
    def __init__(
        self,
        recipes: Sequence[Recipe],
        folder: Path,
        jobs: int,
        tell: Callable[[Event], None],
        ended: Callable[[Recipe, dict[str, Any]], None],
    ) -> None:
        self.waiting = {str(folder / recipe.name): recipe for recipe in recipes}
        self.recipes = dict(self.waiting)
        self.jobs, self.tell, self.ended = jobs, tell, ended
        self.messages: queue.Queue[tuple[subprocess.Popen[str], dict[str, Any] | None]] = queue.Queue()
        self.at_work: dict[subprocess.Popen[str], str | None] = {}

    def run(self) -> None:
        try:
            with _terminated_is_interrupted():
                for _ in range(self.jobs):
                    self._hire()
                self._follow()
        except BaseException as error:
            self._stop()
            if isinstance(error, KeyboardInterrupt):
                raise Stopped from None
            raise

    def _follow(self) -> None:
        while self.at_work:
            process, message = self.messages.get()
            self._hear(process, message)

    def _hire(self) -> None:
        threads = max(1, cores() // self.jobs)
        # Libraries that start threads when they are imported read these before we can tell them.
        limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
        process = subprocess.Popen(
            [sys.executable, "-m", "eirehn.training.worker", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, **limits},
            start_new_session=True,  # Ctrl-C reaches us alone, and we tell them
        )
        self.at_work[process] = None
        threading.Thread(target=self._listen, args=(process,), daemon=True).start()
        self._give(process)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.messages.put((process, json.loads(line)))
        self.messages.put((process, None))

    def _give(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        self.at_work[process] = None
        if not self.waiting:
            process.stdin.close()
            return
        name = next(iter(self.waiting))
        del self.waiting[name]
        self.at_work[process] = name
        with suppress(OSError):  # it has died; that it has is the next we hear of it
            process.stdin.write(json.dumps(name) + "\n")
            process.stdin.flush()

    def _hear(self, process: subprocess.Popen[str], message: dict[str, Any] | None) -> None:
        if message is None:
            name, code = self.at_work.pop(process), process.wait()
            if name is not None:
                why = (
                    "killed, perhaps for want of memory"
                    if code < 0
                    else f"exit code {code}, see its messages above"
                )
                raise RunError(f"the process that trained {name} died ({why})")
        elif "event" in message:
            self.tell(Event(**message["event"]))
        elif "warning" in message:
            warnings.warn(message["warning"], UnstableTraining, stacklevel=2)
        elif "done" in message:
            recipe = self.recipes[message["done"]]
            result = RunFolder(message["done"]).read_result()
            assert result is not None
            self.ended(recipe, result)
            self._give(process)
        elif "failed" in message:
            raise RunError(message["message"])
        else:
            raise KeyboardInterrupt

    def _stop(self) -> None:
        """Asks all to save and stop, and waits until they have."""
        for process in self.at_work:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.at_work:
            process.wait()


@contextmanager
def _terminated_is_interrupted() -> Iterator[None]:
    """SIGTERM as Ctrl-C, so that the processes at work are told to save."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
