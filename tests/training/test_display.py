"""What is shown of a training under way."""

from __future__ import annotations

import io
import math

from rich.console import Console

from eirehn.training.callbacks import Event
from eirehn.training.display import Display


def shown(stopped: tuple[int, ...] = (), **figures: float) -> str:
    text = io.StringIO()
    with Display(Console(file=text, width=200)) as display:
        display(Event("run", 0, 4, 0, 2, {}))
        display(Event("run", 4, 4, 2, 2, figures, stopped))
    return text.getvalue()


def test_metrics_that_there_are() -> None:
    line = shown(train_loss=0.5, mse=math.nan, depth=2.0)
    assert "epoch 2/2  train loss 0.5  depth 2" in line
    assert "mse" not in line


def test_skipped_steps_and_stopped_seeds_are_shown_where_there_were_some() -> None:
    plain = shown(train_loss=0.5, skipped_steps=0.0)
    assert "skipped" not in plain
    assert "stopped" not in plain
    assert "skipped steps 0.5" in shown(train_loss=0.5, skipped_steps=0.5)  # a mean over the seeds
    assert "stopped: seed 1" in shown(stopped=(1,))
    assert "stopped: seeds 1, 3" in shown(stopped=(1, 3))
