"""A user's own sequences: settings that do well on small data without a search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..data.table import FileData
from ..models import SequenceNetwork
from ..training.config import DEPTH_PENALTIES, ClassifierOptimisation, Optimisation, Recipe

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
    """Classification: a class for each sequence."""
    network = replace(NETWORK, hidden_dropout=0.2)
    optimisation = ClassifierOptimisation(**SETTINGS, depth_penalty=DEPTH_PENALTIES["classification"])
    return Recipe("classify", network, FileData(), optimisation, SEEDS)


def regress() -> Recipe:
    """Regression: a number for each sequence."""
    optimisation = Optimisation(**SETTINGS, depth_penalty=DEPTH_PENALTIES["regression"])
    return Recipe("regress", NETWORK, FileData(task="regression"), optimisation, SEEDS)


def recipes() -> list[Recipe]:
    return [classify(), regress()]
