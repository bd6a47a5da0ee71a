"""How far trainings are: bars in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pytorch_lightning as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .config import Recipe
from .modules import Task


@dataclass(frozen=True)
class Event:
    """Where one run stands."""

    run: str
    step: int
    steps: int
    epoch: int
    epochs: int
    figures: dict[str, float]
    """Means over the seeds that still learn, at the end of the last epoch."""
    stopped: tuple[int, ...] = ()
    """The seeds whose training has stopped."""
    ended: bool = False
    """Whether the training ends before its last epoch."""


class Telling(pl.Callback):
    """Tells of the end of every epoch, and of steps now and then."""

    def __init__(self, recipe: Recipe, tell: Callable[[Event], None]) -> None:
        self.run, self.seeds, self.tell = recipe.name, recipe.seeds, tell
        self._figures: dict[str, float] = {}
        self._stopped: tuple[int, ...] = ()
        self._told = 0.0

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self._tell(trainer, trainer.current_epoch)

    def on_train_batch_end(self, trainer: pl.Trainer, task: pl.LightningModule, *_: Any) -> None:
        if time.monotonic() - self._told > 0.3:
            self._tell(trainer, trainer.current_epoch)

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        learning = task.stopped < 0
        self._figures = {name: values.cpu()[learning].nanmean().item() for name, values in task.latest.items()}
        self._stopped = tuple(seed for seed, alive in zip(self.seeds, learning, strict=True) if not alive)
        self._tell(trainer, trainer.current_epoch + 1)

    def _tell(self, trainer: pl.Trainer, epoch: int) -> None:
        self._told = time.monotonic()
        if trainer.is_global_zero:
            epochs = trainer.max_epochs or 1
            steps = int(epochs * trainer.num_training_batches)
            self.tell(
                Event(
                    self.run,
                    trainer.global_step,
                    steps,
                    epoch,
                    epochs,
                    self._figures,
                    self._stopped,
                    trainer.should_stop,
                )
            )


class Display:
    """Shows what it is told, on `console`: a bar for each run under way, or a line at each tenth of a run."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar: Progress | None = None
        self._rows: dict[str, TaskID] = {}
        self._begun: dict[str, tuple[float, int]] = {}
        self._tenths: dict[str, int] = {}

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[figures]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=self.console, transient=True, refresh_per_second=4)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        if self._bar is not None:
            self._show_bar(self._bar, event)
        else:
            self._show_line(event)

    def _show_bar(self, bar: Progress, event: Event) -> None:
        if event.run not in self._rows:
            self._rows[event.run] = bar.add_task(event.run, total=event.steps, completed=event.step, figures="")
        row = self._rows[event.run]
        bar.update(row, completed=event.step, figures=_text(event))
        if event.ended or (event.step >= event.steps and event.epoch == event.epochs):
            bar.remove_task(row)
            del self._rows[event.run]

    def _show_line(self, event: Event) -> None:
        now = time.monotonic()
        begun, first = self._begun.setdefault(event.run, (now, event.step))
        tenth = event.epoch * 10 // event.epochs
        if self._tenths.setdefault(event.run, tenth) == tenth and not event.ended:
            return
        self._tenths[event.run] = tenth
        left = (now - begun) / max(1, event.step - first) * (event.steps - event.step)
        self.print(f"{event.run}  {_text(event)}  {left:.0f} s left")

    def print(self, text: str) -> None:
        self.console.print(text, soft_wrap=True, highlight=False, markup=False)


def _text(event: Event) -> str:
    known = {name: value for name, value in event.figures.items() if not math.isnan(value)}
    if known.get("skipped_steps") == 0:  # as it should be
        del known["skipped_steps"]
    words = [f"epoch {event.epoch}/{event.epochs}"]
    words += [f"{name.replace('_', ' ')} {value:.4g}" for name, value in known.items()]
    if event.stopped:
        words.append(f"stopped: {seeds_in_words(event.stopped)}")
    return "  ".join(words)


def seeds_in_words(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
