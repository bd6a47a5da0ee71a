"""Callbacks of a training: history, saving, progress, and warnings of instability."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl

from .._internal.checks import UnstableTraining
from .._internal.files import write_text
from ..models import ELASTIC, SHALLOW
from .checkpoint import generator_states, set_generator_states
from .config import Recipe
from .task import Task


class Stopped(Exception):  # noqa: N818  # not an error: the user asked for it
    """The training was asked to stop; its state has been saved."""


class History(pl.Callback):
    """The metrics of every epoch and seed, in a CSV file and in the loggers; part of the training's state, so
    that a resumed run has its whole history."""

    def __init__(self, path: Path, seeds: Sequence[int]) -> None:
        self.path, self.seeds = path, tuple(seeds)
        self.epochs: list[dict[str, list[float]]] = []

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        metrics = {name: values.tolist() for name, values in task.epoch_metrics.items()}
        self.epochs.append(metrics)
        if trainer.is_global_zero:
            self.write()
        for logger in trainer.loggers:
            flat = {
                f"{name}/seed_{seed}": value
                for name, values in metrics.items()
                for seed, value in zip(self.seeds, values, strict=True)
            }
            logger.log_metrics(flat, step=len(self.epochs))

    def write(self) -> None:
        if not self.epochs:
            return
        rows: list[list[Any]] = [["epoch", "seed", *self.epochs[0]]]
        for number, metrics in enumerate(self.epochs, 1):
            for index, seed in enumerate(self.seeds):
                rows.append([number, seed, *(metrics[name][index] for name in self.epochs[0])])
        write_text(self.path, "".join(",".join(map(str, row)) + "\n" for row in rows))

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        older = {"steps_left_out": "skipped_steps"}  # as version 0.1 called them
        self.epochs = [{older.get(name, name): own for name, own in epoch.items()} for epoch in state["epochs"]]


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Saving(pl.Callback):
    """Saves the training's state every `seconds` and at its end, and on Ctrl-C or SIGTERM saves and stops. The
    caller of `fit` restores the signal handlers.

    With several processes it saves between epochs only: within an epoch each process has its own sums.
    """

    IMPATIENT = 1.0  # seconds within which a second signal is ignored: timeout(1) and shells send it twice

    def __init__(self, path: Path, *, seconds: float, on_save: Callable[[Task], None]) -> None:
        self.path, self.seconds, self.on_save = path, seconds, on_save
        self.elapsed = 0.0  # seconds of training, including those before it was resumed
        self.gpu_seconds = 0.0  # the same, of each GPU
        self._since = self._saved = time.monotonic()
        self._cost = 0.0
        self._asked: float | None = None  # when
        self._generators: dict[str, Any] | None = None

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._since = self._saved = time.monotonic()
        if self._generators is not None:  # only now: the setup may have drawn random numbers
            set_generator_states(self._generators)
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                signal.signal(number, self._note)

    def ask_to_stop(self) -> None:
        """The training saves its state and stops after this batch."""
        self._asked = self._asked or time.monotonic()

    def _note(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if self._asked is None:
            self._asked = now
        elif now - self._asked > self.IMPATIENT:  # stop at once, with the state that was saved last
            raise Stopped

    def on_train_batch_end(self, trainer: pl.Trainer, task: pl.LightningModule, *_: Any) -> None:
        # After the last batch on_train_epoch_end saves.
        if trainer.world_size == 1 and not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            self._save_if_due(trainer, task)

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._save_if_due(
            trainer, task, last=trainer.should_stop or trainer.current_epoch + 1 == trainer.max_epochs
        )

    def _save_if_due(self, trainer: pl.Trainer, task: pl.LightningModule, *, last: bool = False) -> None:
        stop = self._asked is not None
        if trainer.world_size > 1:
            stop = trainer.strategy.reduce_boolean_decision(stop, all=False)
        # Several processes must save together, so they do not go by their clocks. Slow saves are made less often.
        wait = max(self.seconds, 50 * self._cost)
        due = trainer.world_size > 1 or time.monotonic() - self._saved >= wait
        if not (last or stop or due):
            return
        now = time.monotonic()
        self.elapsed += now - self._since
        self.gpu_seconds += (now - self._since) * (trainer.world_size if task.device.type == "cuda" else 0)
        self._since = now
        trainer.save_checkpoint(self.path)
        if trainer.is_global_zero:
            assert isinstance(task, Task)
            self.on_save(task)
        self._saved = time.monotonic()
        self._cost = self._saved - now
        if stop:
            raise Stopped

    def state_dict(self) -> dict[str, Any]:
        return {"generators": generator_states(), "elapsed": self.elapsed, "gpu_seconds": self.gpu_seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._generators, self.elapsed = state["generators"], state["elapsed"]
        self.gpu_seconds = state.get("gpu_seconds", 0.0)  # missing in older states


@dataclass(frozen=True)
class Event:
    """The progress of one run."""

    run: str
    step: int
    steps: int
    epoch: int
    epochs: int
    figures: dict[str, float]
    """Metrics at the end of the last epoch, means over the seeds that are still trained."""
    stopped: tuple[int, ...] = ()
    """The seeds whose training has stopped."""
    ended: bool = False
    """Whether the training has ended early."""


class Reporting(pl.Callback):
    """Calls `tell` at the end of every epoch, and between steps at most every 0.3 seconds."""

    def __init__(self, recipe: Recipe, tell: Callable[[Event], None]) -> None:
        self.run, self.seeds, self.tell = recipe.name, recipe.seeds, tell
        self._metrics: dict[str, float] = {}
        self._stopped: tuple[int, ...] = ()
        self._reported = 0.0

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._report(trainer, trainer.current_epoch)

    def on_train_batch_end(self, trainer: pl.Trainer, task: pl.LightningModule, *_: Any) -> None:
        if time.monotonic() - self._reported > 0.3:
            self._report(trainer, trainer.current_epoch)

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        learning = task.stopped < 0
        found = task.epoch_metrics.items()
        self._metrics = {name: values.cpu()[learning].nanmean().item() for name, values in found}
        self._stopped = tuple(seed for seed, alive in zip(self.seeds, learning, strict=True) if not alive)
        self._report(trainer, trainer.current_epoch + 1)

    def _report(self, trainer: pl.Trainer, epoch: int) -> None:
        self._reported = time.monotonic()
        if trainer.is_global_zero:
            step, epochs = trainer.global_step, trainer.max_epochs or 1
            steps, ended = int(epochs * trainer.num_training_batches), trainer.should_stop
            self.tell(Event(self.run, step, steps, epoch, epochs, self._metrics, self._stopped, ended))


def seeds_in_words(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


WORTH_A_WARNING = 0.05
"""Share of an epoch's steps that may be skipped without a warning."""


class Watch(pl.Callback):
    """Warns once of each seed that skips many steps or stops, and ends the training when all seeds have stopped."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._warned: set[int] = set()

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        self._end(trainer, task)  # it may have been killed after that, before it wrote its result

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        steps, epoch = int(trainer.num_training_batches), trainer.current_epoch
        for seed, skipped, stopped in zip(
            self.recipe.seeds, task.skipped.tolist(), task.stopped.tolist(), strict=True
        ):
            if stopped == epoch:
                why = (
                    "none of its steps had a finite gradient" if skipped >= steps else "its weights are not finite"
                )
                self._warn(trainer, f"seed {seed}: training stopped after epoch {epoch + 1}: {why}")
            elif stopped < 0 and skipped > WORTH_A_WARNING * steps and seed not in self._warned:
                self._warned.add(seed)
                self._warn(
                    trainer,
                    f"seed {seed}: {skipped:.0f} of the {steps} steps of epoch {epoch + 1} were skipped because "
                    "their gradients were not finite",
                )
        self._end(trainer, task)

    def _warn(self, trainer: pl.Trainer, what: str) -> None:
        if trainer.is_global_zero:
            text = f"{self.recipe.name}, {what}. The network is unstable: {remedy(self.recipe)}"
            warnings.warn(text, UnstableTraining, stacklevel=2)

    @staticmethod
    def _end(trainer: pl.Trainer, task: Task) -> None:
        if (task.stopped >= 0).all():
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        return {"warned": sorted(self._warned)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._warned = set(state["warned"])


def remedy(recipe: Recipe) -> str:
    found = ["lower the learning rate"]
    if recipe.optimisation.clip is None:
        found.append("clip the gradients")
    if recipe.network.kind not in SHALLOW and recipe.network.max_depth > 1:
        found.append("lower max_depth")
    if recipe.network.kind == "EIREHN" and recipe.network.weight_update != "bounded":
        found.append("use the weight update 'bounded'")
    if recipe.network.kind in ELASTIC and {"alpha", "gate_bias"} & set(recipe.network.start):
        found.append("use the default initialisation (no network.start)")
    return ", or ".join(found)


def stopped_seeds(seeds: Sequence[int], result: Mapping[str, Any]) -> dict[int, int]:
    """The seeds of a result whose training stopped, each with its last epoch, counted from 1."""
    epochs = result.get("stopped_epoch") or ()  # missing in results of version 0.1
    return {seed: epoch for seed, epoch in zip(seeds, epochs, strict=False) if epoch is not None}
