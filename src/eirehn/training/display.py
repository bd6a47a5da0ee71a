"""The progress of trainings: bars in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from .callbacks import Event, seeds_in_words


class Display:
    """Shows events on `console`: a bar for each run, or without a terminal a line for each tenth of a run."""

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
                TextColumn("{task.fields[text]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=self.console, transient=True, refresh_per_second=4)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: Event) -> None:
        if self._bar is not None:
            self._show_bar(self._bar, event)
        else:
            self._show_line(event)

    def _show_bar(self, bar: Progress, event: Event) -> None:
        if event.run not in self._rows:
            self._rows[event.run] = bar.add_task(event.run, total=event.steps, completed=event.step, text="")
        row = self._rows[event.run]
        bar.update(row, completed=event.step, text=_text(event))
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
