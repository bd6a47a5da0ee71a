"""The figures of trained runs on any split of their data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import positive_int, usable_device
from ..data.splits import Split, Splits
from ..files import read_json
from ..loading import KEPT, check_values, read_values
from .fit import final_parts, make_task, precision
from .folder import RunFolder
from .modules import Task
from .recipe import Recipe


class Figures(NamedTuple):
    metric: str
    seeds: tuple[int, ...]
    values: list[float]
    depths: list[float]


class Together(NamedTuple):
    metric: str
    members: int
    value: float


def evaluate(
    run: Path,
    *,
    split: str = "test",
    which: str = "best",
    max_depth: int | None = None,
    batch: int | None = None,
    device: str | None = None,
) -> Figures:
    """Each member's metric and mean depth.

    A text is read from its beginning to its end, or in `batch` columns side by side, which is faster and starts as
    often from nothing. The device is a GPU where there is one.
    """
    recipe, task, values = _read(run, which, device)
    parts = final_parts(recipe, _split(recipe, split), _columns(batch))
    with precision(recipe, task.device):
        metric, depths = task.measure(parts, values, max_depth=max_depth)
    if which == "best":  # a member that diverged from its first epoch on has no best one
        scores = read_json(run / "model.json")["best_score"]
        metric = [math.nan if score is None else value for value, score in zip(metric, scores, strict=True)]
    return Figures(task.metric, recipe.seeds, metric, depths)


def evaluate_together(
    runs: Sequence[Path],
    *,
    split: str = "test",
    which: str = "best",
    max_depth: int | None = None,
    batch: int | None = None,
    device: str | None = None,
) -> Together:
    """The perplexity of all members of these runs as one language model, that expects what they do on average."""
    chances: Tensor | None = None  # (N,): the sum over members of what each gave the token that came
    members, text = 0, None
    for run in runs:
        recipe, task, values = _read(run, which, device)
        own = _split(recipe, split)
        if recipe.data.task != "language":
            raise ValueError(f"only language models are evaluated together, and {run} is none")
        if text is not None and not torch.equal(own.target, text):
            raise ValueError(f"models are evaluated together on one text, and that of {run} is another")
        text = own.target
        task.ensemble.load(values)
        found = _chances(recipe, task, own, _columns(batch), max_depth)
        chances = found if chances is None else chances + found
        members += task.ensemble.size
    if chances is None:
        raise ValueError("there are no runs to evaluate together")
    return Together("perplexity", members, math.exp(-(chances / members).log().mean().item()))


@torch.no_grad()
def _chances(recipe: Recipe, task: Task, split: Split, batch: int | None, max_depth: int | None) -> Tensor:
    """What the members gave each token that came, summed over them, (N,)."""
    task.eval()
    task.carried = None
    found = []
    with precision(recipe, task.device):
        for x, target, _ in final_parts(recipe, split, batch):
            inputs, wanted = (each.to(task.device).expand(task.ensemble.size, *each.shape) for each in (x, target))
            outcome = task.ensemble(inputs, task.carried, max_depth=max_depth)
            task.carry(outcome.state)
            likely = outcome.prediction.double().log_softmax(-1).gather(-1, wanted.unsqueeze(-1))
            found.append(likely.exp().sum(0).flatten())
    return torch.cat(found)


def _read(run: Path, which: str, device: str | None) -> tuple[Recipe, Task, dict[str, Tensor]]:
    """A run's recipe, its task on the device, and the values asked for."""
    if which not in KEPT:
        raise ValueError(f"which must be one of {', '.join(KEPT)}, got {which!r}")
    recipe = RunFolder(run).recipe()
    task = make_task(recipe)
    values = read_values(run / f"{which}.safetensors")
    check_values(task.ensemble.values(), values, run / f"{which}.safetensors")
    place = usable_device(device)
    task.to(place, next(iter(values.values())).dtype)
    return recipe, task, values


def _split(recipe: Recipe, name: str) -> Split:
    if name not in Splits._fields:
        raise ValueError(f"split must be one of {', '.join(Splits._fields)}, got {name!r}")
    split: Split = getattr(recipe.data.load(), name)
    if not len(split.x):
        raise ValueError(f"{recipe.name} holds no sequences out for {name}")
    return split


def _columns(batch: int | None) -> int | None:
    return None if batch is None else positive_int("batch", batch)
