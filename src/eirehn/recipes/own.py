"""A user's own sequences: settings that do well on small data without a search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..data.table import FileData
from ..models import SequenceNetwork
from ..training.config import ClassifierOptimisation, Optimisation, Recipe

NETWORK = SequenceNetwork("EIREHN", 32, max_depth=5, pooling="mean")
SETTINGS: dict[str, Any] = {
    "epochs": 100,
    "batch_size": 16,
    "optimizer": "adamw",
    "learning_rate": 0.01,
    "schedule": "cosine",
    "warmup": 0.05,
    "weight_decay": 0.01,
    "clip": 1.0,
}
SEEDS = (0, 1, 2)


def classify() -> Recipe:
    """A class for each sequence."""
    network = replace(NETWORK, hidden_dropout=0.2)
    return Recipe("classify", network, FileData(), ClassifierOptimisation(**SETTINGS), SEEDS)


def regress() -> Recipe:
    """A number for each sequence."""
    return Recipe("regress", NETWORK, FileData(task="regression"), Optimisation(**SETTINGS), SEEDS)


def recipes() -> list[Recipe]:
    return [classify(), regress()]
