"""Trainings to compare: with the step as one recorded whole, and as Lightning's loop takes it to pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from torch import Tensor

from eirehn.models import LanguageModel, LanguageNetwork
from eirehn.models.io import read_values
from eirehn.training.callbacks import Saving, Stopped
from eirehn.training.checkpoint import WholeFiles
from eirehn.training.config import Hardware, LanguageOptimisation, Recipe
from eirehn.training.tasks import LanguageModelling
from eirehn.training.trainer import quiet, train
from helpers.resume import StopAt
from helpers.small import small, with_network

RATE = 2.0**-7  # the same number in float32 and float64
ALL = {"clip": 0.1, "price": 1e-3, "average": 0.9, "weight_decay": 0.01}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam"},
    "adamw and all options": {"optimizer": "adamw", **ALL},
    "sgd": {"optimizer": "sgd", **ALL},
    "adam that stops early": {"optimizer": "adam", "early": 0.6, "price": 1e-3},
    "soap": {"optimizer": "soap", "epochs": 28, **ALL},  # 112 steps: it has a basis after 100
}


def recipe(
    *, capture: bool, accelerator: str, precision: str = "32-true", dropout: float = 0.0, **options: Any
) -> Recipe:
    """4 batches an epoch, the last of 12 sequences in place of 16."""
    made = small(**{"learning_rate": RATE, **options})
    made = with_network(made, input_dropout=dropout, hidden_dropout=dropout)
    return replace(made, hardware=Hardware(accelerator=accelerator, precision=precision, capture=capture))


def trained(recipe: Recipe, folder: Path) -> tuple[dict[str, Tensor], str]:
    train(recipe, folder)
    return read_values(folder / "last.safetensors"), (folder / "metrics.csv").read_text()


def same(one: Path, other: Path) -> None:
    ours, theirs = (read_values(folder / "last.safetensors") for folder in (one, other))
    for key, value in theirs.items():
        assert torch.equal(ours[key], value), key
    assert (one / "metrics.csv").read_text() == (other / "metrics.csv").read_text()


class Passes:
    """Lightning takes a list for several loaders."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches
        self.position = 0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        first = self.position % len(self)
        for index in range(first, len(self)):
            self.position = index + 1
            yield self.batches[index]
        self.position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Sentences(pl.LightningDataModule):
    """Words of a text that repeats itself, cut into parts that go on where the last one ended."""

    def __init__(self, members: int, device: str) -> None:
        super().__init__()
        text = (torch.arange(4 * 33) % 3).view(4, 33).to(device)
        parts = [(text[:, i : i + 5], text[:, i + 1 : i + 6]) for i in range(0, 28, 5)]
        parts.append((text[:, 30:32], text[:, 31:33]))  # a shorter one at the end
        self.parts = [tuple(part.expand(members, 4, -1) for part in pair) for pair in parts]

    def train_dataloader(self) -> Any:
        return Passes([(*pair, 1.0) for pair in self.parts])

    def val_dataloader(self) -> Any:
        return Passes([tuple(part[0] for part in pair) for pair in self.parts])


def read(
    members: int,
    accelerator: str,
    *,
    capture: bool,
    epochs: int = 3,
    callbacks: Sequence[pl.Callback] = (),
    checkpoint: Path | None = None,
) -> LanguageModelling:
    """A language model that has read the sentences, from where `checkpoint` left them."""
    torch.manual_seed(0)
    models = [
        LanguageModel(LanguageNetwork("EIREHN", 8, max_depth=2, hidden_dropout=0.1), 3) for _ in range(members)
    ]
    task = LanguageModelling(models, LanguageOptimisation(epochs=epochs, learning_rate=RATE))
    task.capture = capture
    trainer = pl.Trainer(
        use_distributed_sampler=False,
        callbacks=list(callbacks),
        plugins=[WholeFiles()],
        accelerator=accelerator,
        devices=1,
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    with quiet():
        data = Sentences(members, "cuda" if accelerator == "gpu" else "cpu")
        trainer.fit(task, datamodule=data, ckpt_path=checkpoint)
    return task


def read_with_a_stop(members: int, accelerator: str, step: int, path: Path) -> LanguageModelling:
    with pytest.raises(Stopped):
        read(members, accelerator, capture=True, callbacks=[StopAt(step, killed=False), Saving(path)])
    return read(members, accelerator, capture=True, callbacks=[Saving(path)], checkpoint=path)


def same_readers(one: LanguageModelling, other: LanguageModelling) -> None:
    for ours, theirs in zip(one.ensemble.stacked, other.ensemble.stacked, strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(one.carried, other.carried)
    assert torch.equal(one.latest["perplexity"], other.latest["perplexity"])


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
