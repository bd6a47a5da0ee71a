"""The figures of trained runs on any split of their data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import positive_int, usable_device
from ..data.language import LanguageData
from ..data.splits import Split, Splits
from ..data.vocabulary import Vocabulary
from ..files import RunError, read_json
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
    left_out: list[str]
    """Members that have no best epoch, and so no values to count by."""


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
    metric = [value if there else math.nan for value, there in zip(metric, _trained(run, which), strict=True)]
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
    """The perplexity of all members of these runs as one language model, that expects what they do on average.

    Members that have diverged from their first epoch on are left out where their best epoch is asked for.
    """
    chances: Tensor | None = None  # (N,): the sum over members of what each gave the token that came
    members, left_out = 0, []
    own = text_of_all(runs, split)
    for run in runs:
        recipe, task, values = _read(run, which, device)
        there = _trained(run, which)
        left_out += [f"{run}, seed {seed}" for seed, ready in zip(recipe.seeds, there, strict=True) if not ready]
        if not any(there):
            continue
        task.ensemble.load(values)
        found = _chances(recipe, task, own, _columns(batch), max_depth, torch.tensor(there))
        chances = found if chances is None else chances + found
        members += sum(there)
    if chances is None:
        raise ValueError("there are no models to evaluate together: none has a best epoch")
    return Together("perplexity", members, math.exp(-(chances / members).log().mean().item()), left_out)


def text_of_all(runs: Sequence[Path], split: str = "test") -> Split:
    """The text that these runs are evaluated on together; refused where they are none of one text."""
    found: list[tuple[Split, Vocabulary]] = []
    for run in runs:
        recipe = RunFolder(run).recipe()
        if not isinstance(recipe.data, LanguageData):
            raise ValueError(f"only language models are evaluated together, and {run} is none")
        own = _split(recipe, split), recipe.data.vocabulary()
        if found and not _same(own, found[0]):
            raise ValueError(f"models are evaluated together on one text, and that of {run} is another")
        found.append(own)
    if not found:
        raise ValueError("there are no runs to evaluate together")
    return found[0][0]


def _same(one: tuple[Split, Vocabulary], other: tuple[Split, Vocabulary]) -> bool:
    """Whether these are the same tokens, and not only the same numbers, of which other words may be the numbers."""
    (text, vocabulary), (text_, vocabulary_) = one, other
    if vocabulary != vocabulary_ or text.x.shape != text_.x.shape:
        return False
    return bool((text.target == text_.target).all())


def _trained(run: Path, which: str) -> list[bool]:
    """Whether each member has values of this kind: one that diverged from its first epoch on has no best one."""
    scores = read_json(run / "model.json")["best_score"]
    return [which != "best" or score is not None for score in scores]


@torch.no_grad()
def _chances(
    recipe: Recipe, task: Task, split: Split, batch: int | None, max_depth: int | None, counted: Tensor
) -> Tensor:
    """What the members that are `counted`, (M,), gave each token that came, summed over them, (N,)."""
    task.eval()
    task.carried = None
    found = []
    with precision(recipe, task.device):
        for x, target, _ in final_parts(recipe, split, batch):
            inputs, wanted = (each.to(task.device).expand(task.ensemble.size, *each.shape) for each in (x, target))
            outcome = task.ensemble(inputs, task.carried, max_depth=max_depth)
            task.carry(outcome.state)
            likely = outcome.prediction.double().log_softmax(-1).gather(-1, wanted.unsqueeze(-1))
            found.append(likely[counted.to(likely.device)].exp().sum(0).flatten())
    return torch.cat(found)


def _read(run: Path, which: str, device: str | None) -> tuple[Recipe, Task, dict[str, Tensor]]:
    """A run's recipe, its task on the device, and the values asked for."""
    if which not in KEPT:
        raise ValueError(f"which must be one of {', '.join(KEPT)}, got {which!r}")
    recipe = RunFolder(run).recipe()
    path = run / f"{which}.safetensors"
    if not path.exists():
        raise RunError(f"{run} holds no trained model: it has no {path.name}")
    task = make_task(recipe)
    values = read_values(path)
    check_values(task.ensemble.values(), values, path)
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
