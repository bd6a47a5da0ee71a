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


def recipes() -> list[Recipe]:
    return [
        Recipe(
            "classify", replace(NETWORK, hidden_dropout=0.2), FileData(), ClassifierOptimisation(**SETTINGS), SEEDS
        ),
        Recipe("regress", NETWORK, FileData(task="regression"), Optimisation(**SETTINGS), SEEDS),
    ]
