"""No training fails in silence: skipped steps are reported, and a seed that learns nothing more is stopped."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import pytorch_lightning as pl

from ..checks import UnstableTraining
from ..models import ELASTIC, SHALLOW
from .config import Recipe
from .modules import Task

__all__ = ["UnstableTraining", "Watch", "stopped_seeds"]

WORTH_A_WARNING = 0.05
"""Share of an epoch's steps that may be skipped without a warning."""


class Watch(pl.Callback):
    """Warns once of each seed that skips many steps and of each that stops, and ends the training with the last."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._warned: set[int] = set()

    def on_train_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        self._end(trainer, task)  # a training that ended so may have been killed before it wrote its result

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        steps, epoch = int(trainer.num_training_batches), trainer.current_epoch
        for seed, skipped, stopped in zip(
            self.recipe.seeds, task.skipped.tolist(), task.stopped.tolist(), strict=True
        ):
            if stopped == epoch:
                why = "no step of it had a finite gradient" if skipped >= steps else "its weights are not finite"
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
    epochs = result.get("stopped_epoch") or ()  # results of version 0.1 do not have it
    return {seed: epoch for seed, epoch in zip(seeds, epochs, strict=False) if epoch is not None}
