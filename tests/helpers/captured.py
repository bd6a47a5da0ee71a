"""Trainings to compare: with the step as one recorded whole, and as Lightning's loop takes it to pieces."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from eirehn.training.config import Hardware, Recipe
from helpers.language import small_language_recipe, written
from helpers.small import small, with_network

RATE = 2.0**-7  # the same number in float32 and float64
ALL = {"clip": 0.1, "depth_penalty": 1e-3, "average": 0.9, "weight_decay": 0.01}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam"},
    "adamw and all options": {"optimizer": "adamw", **ALL},
    "sgd": {"optimizer": "sgd", **ALL},
    "adam that stops early": {"optimizer": "adam", "early": 0.6, "depth_penalty": 1e-3},
    "soap": {"optimizer": "soap", "epochs": 28, **ALL},  # 112 steps: it has a basis after 100
}


def recipe(
    *, capture: bool, accelerator: str, precision: str = "32-true", dropout: float = 0.0, **options: Any
) -> Recipe:
    """4 batches an epoch, the last of 12 sequences in place of 16."""
    made = small(**{"learning_rate": RATE, **options})
    made = with_network(made, input_dropout=dropout, hidden_dropout=dropout)
    return replace(made, hardware=Hardware(accelerator=accelerator, precision=precision, capture=capture))


def reading(folder: Path, members: int, *, capture: bool, accelerator: str) -> Recipe:
    """A language model, whose state is carried from batch to batch; 6 batches an epoch."""
    made = small_language_recipe(written(folder, train=500, test=100), learning_rate=RATE)
    hardware = Hardware(accelerator=accelerator, capture=capture)
    return replace(made, seeds=tuple(range(members)), hardware=hardware)


class Watching(pl.Callback):
    """Lets no step from `first` of an epoch on wait for the GPU, and counts what was recorded."""

    graphs = 0

    def __init__(self, first: int) -> None:
        self.first = first

    def on_train_batch_start(self, trainer: pl.Trainer, task: Any, batch: Any, index: int) -> None:
        if trainer.current_epoch > 0 and index == self.first:
            torch.cuda.set_sync_debug_mode("error")

    def on_train_batch_end(self, trainer: pl.Trainer, task: Any, outputs: Any, batch: Any, index: int) -> None:
        if index == trainer.num_training_batches - 1:
            torch.cuda.set_sync_debug_mode("default")
        assert task.captured is not None
        self.graphs = len(task.captured.recorded)


def forbid_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a training that was not to be recorded fail where it is."""
    monkeypatch.setattr("eirehn.training.cuda_graph.Captured.__init__", None)
