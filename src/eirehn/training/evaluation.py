"""The figures of a trained run on any split of its data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from ..data.splits import Splits
from ..files import read_json
from ..loading import KEPT, check_values, read_values
from .batches import Parts
from .fit import make_task
from .folder import RunFolder


class Figures(NamedTuple):
    metric: str
    seeds: tuple[int, ...]
    values: list[float]
    depths: list[float]


def evaluate(run: Path, *, split: str = "test", which: str = "best", max_depth: int | None = None) -> Figures:
    """Each member's metric and mean depth."""
    if split not in Splits._fields:
        raise ValueError(f"split must be one of {', '.join(Splits._fields)}, got {split!r}")
    if which not in KEPT:
        raise ValueError(f"which must be one of {', '.join(KEPT)}, got {which!r}")
    recipe = RunFolder(run).recipe()
    task = make_task(recipe)
    values = read_values(run / f"{which}.safetensors")
    check_values(task.ensemble.values(), values, run / f"{which}.safetensors")
    task.to(next(iter(values.values())).dtype)
    own = getattr(recipe.data.load(), split)
    if not len(own.x):
        raise ValueError(f"{run} holds no sequences out for {split}")
    metric, depths = task.measure(Parts(own), values, max_depth=max_depth)
    if which == "best":  # a member that diverged from its first epoch on has no best one
        scores = read_json(run / "model.json")["best_score"]
        metric = [math.nan if score is None else value for value, score in zip(metric, scores, strict=True)]
    return Figures(task.metric, recipe.seeds, metric, depths)
