"""Training on tensors in memory, without files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import pytorch_lightning as pl
import torch

from ..data.dataset import Splits
from ..models import SequenceModel
from .callbacks import Event, Reporting, Watch
from .checkpoint import seeded
from .config import Recipe
from .loaders import Data
from .task import Task
from .trainer import interruptible, make_task, make_trainer, quiet

ONE_AT_A_TIME = threading.Lock()
"""All threads of a process share torch's random generators, which initial values and dropout use."""


@dataclass(frozen=True, eq=False)
class Tensors:
    """Data in memory, for a recipe that is not written to a file."""

    splits: Splits
    task: str
    output_size: int
    last: bool = True
    weights: Sequence[float] | None = None

    kind: ClassVar[str] = "tensors"
    augment = None

    @property
    def input_size(self) -> int:
        return self.splits.train.x.size(-1)

    def load(self) -> Splits:
        return self.splits

    def smaller(self, train: int) -> Tensors:
        raise ValueError("data in memory cannot be made smaller")


class Patience(pl.Callback):
    """Ends a training when no member has improved for this many epochs, without counting the warm-up."""

    def __init__(self, epochs: int, warmup: int) -> None:
        self.epochs, self.warmup = epochs, warmup

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        if trainer.current_epoch - max(self.warmup, int(task.best.epoch.max())) >= self.epochs:
            trainer.should_stop = True


def train_in_memory(
    recipe: Recipe, *, patience: int | None = None, tell: Callable[[Event], None] | None = None
) -> list[SequenceModel]:
    """The members of `recipe` trained on its data, each with the weights of its best epoch on validation data, or
    of its last where there are no validation data. Only one thread trains at a time."""
    callbacks: list[pl.Callback] = [Watch(recipe)]
    if patience is not None:
        callbacks.append(Patience(patience, int(recipe.optimisation.warmup * recipe.optimisation.epochs)))
    if tell is not None:
        callbacks.append(Reporting(recipe, tell))
    with ONE_AT_A_TIME:
        task = make_task(recipe)
        with quiet(), seeded(recipe.seeds[0]):
            interruptible(make_trainer(recipe, None, callbacks), task, Data(recipe, recipe.data.load()))
    if diverged := [seed for seed, epoch in zip(recipe.seeds, task.best.epoch.tolist(), strict=True) if epoch < 0]:
        raise ValueError(f"the training diverged (seeds {diverged}): choose a smaller learning rate")
    task.ensemble.load(task.best.values)
    members = [cast(SequenceModel, task.ensemble.member(index).cpu().eval()) for index in range(task.ensemble.size)]
    x, _, lengths = recipe.data.load().train.map(lambda each: each[:16])
    with torch.no_grad():
        found = [[*member.parameters(), member.run(x, lengths=lengths).prediction] for member in members]
    if not all(value.isfinite().all() for values in found for value in values):
        raise ValueError("the training diverged: choose a smaller learning rate")
    return members
