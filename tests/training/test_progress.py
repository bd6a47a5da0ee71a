"""What is shown of a training under way."""

from __future__ import annotations

import io
import math

from rich.console import Console

from eirehn.training.callbacks import Event
from eirehn.training.display import Display


def shown(**figures: float) -> str:
    text = io.StringIO()
    with Display(Console(file=text, width=200)) as display:
        display(Event("run", 0, 4, 0, 2, {}))
        display(Event("run", 4, 4, 2, 2, figures))
    return text.getvalue()


def test_figures_that_there_are() -> None:
    line = shown(train_loss=0.5, mse=math.nan, depth=2.0)
    assert "epoch 2/2  train loss 0.5  depth 2" in line
    assert "mse" not in line


def test_skipped_steps_are_shown_where_there_were_some() -> None:
    assert "skipped" not in shown(train_loss=0.5, skipped_steps=0.0)
    assert "skipped steps 0.5" in shown(train_loss=0.5, skipped_steps=0.5)  # a mean over the seeds
