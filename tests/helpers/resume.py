"""Trainings that are stopped on the way, and compared with ones that were not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from eirehn._internal.files import read_json
from eirehn.models.io import read_values
from eirehn.training.callbacks import Saving, Stopped
from eirehn.training.config import Recipe
from eirehn.training.trainer import train


class StopAt(pl.Callback):
    """Stops a training after so many steps, with or without a chance to save."""

    def __init__(self, step: int, *, killed: bool) -> None:
        self.step, self.killed = step, killed

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            if self.killed:
                raise KilledError
            saving = next(each for each in trainer.callbacks if isinstance(each, Saving))
            saving._note(15, None)


class KilledError(Exception):
    pass


def train_with_stops(recipe: Recipe, folder: Path, stops: list[StopAt], every: float) -> None:
    for stop in stops:
        with pytest.raises((KilledError, Stopped)):
            train(recipe, folder, save_seconds=every, callbacks=[stop])
    train(recipe, folder, save_seconds=every)


def stopped(recipe: Recipe, folder: Path, step: int) -> None:
    """Trains up to `step`, saves and stops."""
    with pytest.raises(Stopped):
        train(recipe, folder, callbacks=[StopAt(step, killed=False)])


def same(one: Path, other: Path) -> None:
    for name in ("best", "last"):
        ours, theirs = read_values(one / f"{name}.safetensors"), read_values(other / f"{name}.safetensors")
        for key in theirs:
            assert torch.equal(ours[key], theirs[key]), (name, key)
    assert (one / "metrics.csv").read_text() == (other / "metrics.csv").read_text()
    apart = {"seconds": 0, "gpu_hours": 0, "commit": ""}
    a, b = ({**read_json(folder / "result.json"), **apart} for folder in (one, other))
    assert a == b
