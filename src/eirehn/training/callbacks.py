"""What happens beside the training: its history is kept, its state saved, signals are obeyed."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from ..files import write_text
from .checkpoints import generator_states, set_generator_states
from .modules import Task


class Stopped(Exception):  # noqa: N818  # no error: it was asked for
    """The training was asked to stop; a state of it is on the disk."""


class History(pl.Callback):
    """The figures of every epoch and seed, in a CSV file and in the loggers; a part of the training's state, so
    that a run that was stopped and went on has the history of one that was not."""

    def __init__(self, path: Path, seeds: Sequence[int]) -> None:
        self.path, self.seeds = path, tuple(seeds)
        self.epochs: list[dict[str, list[float]]] = []

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        figures = {name: values.tolist() for name, values in task.latest.items()}
        self.epochs.append(figures)
        if trainer.is_global_zero:
            self.write()
        for logger in trainer.loggers:
            flat = {
                f"{name}/seed_{seed}": value
                for name, values in figures.items()
                for seed, value in self._named(values)
            }
            logger.log_metrics(flat, step=len(self.epochs))

    def _named(self, values: Sequence[float]) -> list[tuple[int, float]]:
        return list(zip(self.seeds, values, strict=True))

    def write(self) -> None:
        if self.epochs:
            write_text(self.path, self.csv())

    def csv(self) -> str:
        names = list(self.epochs[0])
        lines = [",".join(["epoch", "seed", *names])]
        for number, figures in enumerate(self.epochs, 1):
            for index, seed in enumerate(self.seeds):
                lines.append(",".join([str(number), str(seed), *(repr(figures[name][index]) for name in names)]))
        return "\n".join(lines) + "\n"

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        older = {"steps_left_out": "skipped_steps"}  # as version 0.1 called them
        self.epochs = [{older.get(name, name): own for name, own in epoch.items()} for epoch in state["epochs"]]


class Saving(pl.Callback):
    """Saves the training's state every `seconds` and at its end, and on Ctrl-C or SIGTERM saves and stops.

    With several processes only between epochs: each has sums of its own in the middle of one.
    """

    IMPATIENT = 1.0  # seconds after a signal from which on another is meant: timeout(1) and shells send it twice

    def __init__(self, path: Path, *, seconds: float = 30.0, on_save: Callable[[Task], None] | None = None) -> None:
        self.path, self.seconds, self.on_save = path, seconds, on_save
        self.elapsed = 0.0  # seconds of training, over all times it was started
        self.gpu_seconds = 0.0  # the same, of each GPU
        self._since = self._saved = time.monotonic()
        self._cost = 0.0
        self._asked: float | None = None  # when
        self._handlers: dict[int, Any] = {}
        self._generators: dict[str, Any] | None = None

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._since = self._saved = time.monotonic()
        if self._generators is not None:  # now, since setting up may have drawn numbers
            set_generator_states(self._generators)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._note)

    def ask_to_stop(self) -> None:
        """The training saves its state and stops after this batch."""
        self._asked = self._asked or time.monotonic()

    def _note(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if self._asked is None:
            self._asked = now
        elif now - self._asked > self.IMPATIENT:  # no waiting, and what was saved last is what there is
            raise Stopped

    def on_train_batch_end(self, trainer: pl.Trainer, task: pl.LightningModule, *_: Any) -> None:
        # The last batch of an epoch is followed at once by its end.
        if trainer.world_size == 1 and not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            self._save_if_due(trainer, task)

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._save_if_due(
            trainer, task, last=trainer.should_stop or trainer.current_epoch + 1 == trainer.max_epochs
        )

    def _save_if_due(self, trainer: pl.Trainer, task: pl.LightningModule, *, last: bool = False) -> None:
        stop = self._asked_to_stop(trainer)
        # Several processes must agree to save, and their clocks do not.
        # And where saving itself takes long, it is done more seldom.
        wait = max(self.seconds, 50 * self._cost)
        due = trainer.world_size > 1 or time.monotonic() - self._saved >= wait
        if not (last or stop or due):
            return
        now = time.monotonic()
        self.elapsed += now - self._since
        self.gpu_seconds += (now - self._since) * (trainer.world_size if task.device.type == "cuda" else 0)
        self._since = now
        trainer.save_checkpoint(self.path)
        if self.on_save is not None and trainer.is_global_zero:
            assert isinstance(task, Task)
            self.on_save(task)
        self._saved = time.monotonic()
        self._cost = self._saved - now
        if stop:
            raise Stopped

    def _asked_to_stop(self, trainer: pl.Trainer) -> bool:
        if trainer.world_size == 1:
            return self._asked is not None
        return trainer.strategy.reduce_boolean_decision(self._asked is not None, all=False)

    def teardown(self, trainer: pl.Trainer, task: pl.LightningModule, stage: str) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def state_dict(self) -> dict[str, Any]:
        return {"generators": generator_states(), "elapsed": self.elapsed, "gpu_seconds": self.gpu_seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generators, self.elapsed = state["generators"], state["elapsed"]
        self.gpu_seconds = state.get("gpu_seconds", 0.0)  # which older states do not tell
