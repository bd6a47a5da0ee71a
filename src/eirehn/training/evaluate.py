"""The figures of trained runs on any split of their data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .._internal.checks import positive_int, usable_device
from .._internal.files import RunError, read_json
from ..data.dataset import Split, Splits
from ..data.text import LanguageData
from ..data.vocabulary import Vocabulary
from ..models.io import KEPT, check_values, read_values
from .config import Recipe
from .loaders import final_parts
from .run import RunFolder
from .task import Task
from .trainer import make_task, precision

TEMPERATURES = (0.6, 1.6)
"""Where `calibrate` looks."""


class Figures(NamedTuple):
    metric: str
    seeds: tuple[int, ...]
    values: list[float]
    depths: list[float]


class Calibrated(NamedTuple):
    metric: str
    seeds: tuple[int, ...]
    temperatures: list[float]
    values: list[float]


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


def calibrate(
    run: Path,
    *,
    split: str = "test",
    which: str = "best",
    max_depth: int | None = None,
    batch: int | None = None,
    device: str | None = None,
) -> Calibrated:
    """Each member's perplexity if all its logits are divided by the temperature at which it expects validation data
    best: above 1 for a member that is too sure of itself. Temperatures outside of `TEMPERATURES` are not looked
    for: what is found at one of its ends may lie beyond.

    Validation data are read in as many columns as in training, unless `batch` says another number.
    """
    check_of_text(run)
    recipe, task, values = _read(run, which, device)
    own, known = _split(recipe, split), _split(recipe, "validation")
    task.ensemble.load(values)
    lowest, highest = TEMPERATURES
    grid = torch.linspace(1 / highest, 1 / lowest, 13, dtype=torch.float64)
    side = recipe.optimisation.batch_size if batch is None else _columns(batch)
    sharpness = _lowest(grid, _losses(recipe, task, known, side, max_depth, grid.expand(task.ensemble.size, -1)))
    found = _losses(recipe, task, own, _columns(batch), max_depth, sharpness.unsqueeze(-1)).squeeze(-1)
    found[~torch.tensor(_trained(run, which))] = math.nan
    sharpness[found.isnan()] = math.nan
    return Calibrated(task.metric, recipe.seeds, (1 / sharpness).tolist(), found.exp().tolist())


def check_of_text(run: Path) -> None:
    if not isinstance(RunFolder(run).recipe().data, LanguageData):
        raise ValueError(f"only language models are calibrated, and {run} is not one")


def check_trained(run: Path, which: str) -> None:
    """That there are values of this kind."""
    if which not in KEPT:
        raise ValueError(f"which must be one of {', '.join(KEPT)}, got {which!r}")
    RunFolder(run).recipe()  # says so where it is no run at all
    if not (run / f"{which}.safetensors").exists():
        raise RunError(f"{run} holds no trained model: it has no {which}.safetensors")


def check_together(runs: Sequence[Path], split: str, which: str) -> Split:
    """That there is something to evaluate together, on one text: this."""
    own = text_of_all(runs, split)
    for run in runs:
        check_trained(run, which)
    if not any(ready for run in runs for ready in _trained(run, which)):
        raise ValueError("there are no models to evaluate together: none has a best epoch")
    return own


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
    own = check_together(runs, split, which)
    chances: Tensor | None = None  # (N,): the sum over members of what each gave the token that came
    members, left_out = 0, []
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
    assert chances is not None  # one of them has a best epoch
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
    found = []
    for logits, wanted in _readings(recipe, task, split, batch, max_depth):
        likely = logits.double().log_softmax(-1).gather(-1, wanted)
        found.append(likely[counted.to(likely.device)].exp().sum(0).flatten())
    return torch.cat(found)


@torch.no_grad()
def _losses(
    recipe: Recipe, task: Task, split: Split, batch: int | None, max_depth: int | None, sharpness: Tensor
) -> Tensor:
    """Mean cross-entropy of each member if its logits are multiplied by each of its `sharpness`, (M, K)."""
    sums, count = torch.zeros_like(sharpness), 0
    for logits, wanted in _readings(recipe, task, split, batch, max_depth):
        right = logits.gather(-1, wanted).double().flatten(1)  # (M, tokens)
        count += right.size(1)
        for each, factor in enumerate(sharpness.t().to(logits)):  # all at once would be K times the logits
            whole = (logits * factor.view(-1, *[1] * (logits.dim() - 1))).logsumexp(-1).double().flatten(1)
            sums[:, each] += (whole - right * factor.double().unsqueeze(-1)).sum(1).cpu()
    return sums / count


def _lowest(grid: Tensor, losses: Tensor) -> Tensor:
    """Where on `grid`, (K,), each row of `losses`, (M, K), which are convex, is lowest: by the parabola through its
    lowest value and those beside it."""
    at = losses.nan_to_num(math.inf).argmin(-1).clamp(1, len(grid) - 2)
    left, here, right = (losses.gather(-1, (at + step).unsqueeze(-1)).squeeze(-1) for step in (-1, 0, 1))
    width, bend = grid[1] - grid[0], left - 2 * here + right
    aside = torch.where(bend > 0, (left - right) / (2 * bend), 0.0).clamp(-1, 1)
    return grid[at] + width * aside


def _readings(
    recipe: Recipe, task: Task, split: Split, batch: int | None, max_depth: int | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """The members' logits, part by part of a text, (M, B, T, V), and what came, (M, B, T, 1)."""
    task.eval()
    task.carried = None
    for x, target, _ in final_parts(recipe, split, batch):
        inputs, wanted = (each.to(task.device).expand(task.ensemble.size, *each.shape) for each in (x, target))
        with precision(recipe, task.device):
            outcome = task.ensemble(inputs, task.carried, max_depth=max_depth)
        task.carry(outcome.state)
        yield outcome.prediction, wanted.unsqueeze(-1)


def _read(run: Path, which: str, device: str | None) -> tuple[Recipe, Task, dict[str, Tensor]]:
    """A run's recipe, its task on the device, and the values asked for."""
    check_trained(run, which)
    recipe, path = RunFolder(run).recipe(), run / f"{which}.safetensors"
    if isinstance(recipe.data, LanguageData):
        recipe.data.check_trained_on(run)
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
