"""How far a download is: a bar in a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .download import Tell

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def bar(name: str, console: Console) -> Iterator[Tell]:
    if not console.is_terminal:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as progress:
        row = progress.add_task(name, total=None)
        yield lambda done, total: progress.update(row, completed=done, total=total)
