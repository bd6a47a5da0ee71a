"""Evaluates trained runs on any split of their data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .._internal.checks import one_of, positive_int, usable_device
from .._internal.files import RunError, read_json
from ..data.dataset import Split, Splits
from ..data.text import LanguageData
from ..data.vocabulary import Vocabulary
from ..models.io import KEPT, check_values, read_values
from .config import Recipe
from .loaders import Parts, Windows, final_parts
from .run import RunFolder
from .trainer import make_task, precision

TEMPERATURES = (0.6, 1.6)
"""The range of temperatures that `calibrate` tries."""


class Figures(NamedTuple):
    """The result of `evaluate`.

    Examples:
        >>> from eirehn.training.evaluate import Figures
        >>> Figures("accuracy", seeds=(0, 1), values=[0.91, 0.93], depths=[2.1, 2.3]).values
        [0.91, 0.93]
    """

    metric: str
    """`"mse"`, `"accuracy"` or `"perplexity"`."""
    seeds: tuple[int, ...]
    """The seeds of the run."""
    values: list[float]
    """The metric of each seed; NaN for a seed without a best epoch."""
    depths: list[float]
    """The mean number of inner steps of each seed."""


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
    """Ensemble members without a best epoch, which have no weights to evaluate."""


def evaluate(
    run: Path,
    *,
    split: str = "test",
    which: str = "best",
    max_depth: int | None = None,
    batch: int | None = None,
    device: str | None = None,
) -> Figures:
    """Evaluates the models of a run.

    Args:
        run: the run folder.
        split: `"train"`, `"validation"` or `"test"`. Default: `"test"`.
        which: `"best"`, the weights of the best epoch, or `"last"`, those of the last. Default: `"best"`.
        max_depth: most inner steps of a time step. Default: the network's own.
        batch: for a text, the number of parallel streams it is read in, which is faster, but each of them starts
            from an empty state. Default: one stream.
        device: as torch calls it. Default: a GPU if there is one.

    Returns:
        The metric and the mean depth of each seed.

    Raises:
        RunError: if there is not a trained run in the folder.
        ValueError: if an argument is out of range, or there are no such data.

    Examples:
        >>> from pathlib import Path
        >>> from eirehn.training.evaluate import evaluate
        >>> found = evaluate(Path("runs/synthetic"), split="validation", max_depth=1)
        >>> found.metric, found.depths
        ('mse', [1.0, 1.0])
    """
    trained = _Trained(run, which, max_depth, device)
    recipe, task = trained.recipe, trained.task
    parts = trained.parts(_split(recipe, split), batch)
    with precision(recipe, task.device):
        metric, depths = task.measure(parts, trained.values, max_depth=max_depth)
    metric = [value if there else math.nan for value, there in zip(metric, trained.there, strict=True)]
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
    """The perplexity of each ensemble member after temperature scaling: its logits are divided by the temperature
    that is best on validation data, which is above 1 for an overconfident model. Temperatures outside of
    `TEMPERATURES` are not
    tried: if the best one is at one of the ends, there may be a better one beyond.

    Validation data are read in as many parallel streams as in training, or in `batch`.
    """
    check_of_text(run)
    trained = _Trained(run, which, max_depth, device)
    recipe = trained.recipe
    own, known = _split(recipe, split), _split(recipe, "validation")
    lowest, highest = TEMPERATURES
    grid = torch.linspace(1 / highest, 1 / lowest, 13, dtype=torch.float64)
    streams = trained.parts(known, recipe.optimisation.batch_size if batch is None else batch)
    sharpness = _lowest(grid, trained.losses(streams, grid.expand(len(recipe.seeds), -1)))
    found = trained.losses(trained.parts(own, batch), sharpness.unsqueeze(-1)).squeeze(-1)
    found[~torch.tensor(trained.there)] = math.nan
    sharpness[found.isnan()] = math.nan
    return Calibrated(trained.task.metric, recipe.seeds, (1 / sharpness).tolist(), found.exp().tolist())


def evaluate_together(
    runs: Sequence[Path],
    *,
    split: str = "test",
    which: str = "best",
    max_depth: int | None = None,
    batch: int | None = None,
    device: str | None = None,
) -> Together:
    """The perplexity of all ensemble members of these runs as one language model, which predicts the mean of their
    probabilities. Those that diverged in their first epoch are left out if the best epoch is asked for.
    """
    own = check_together(runs, split, which)
    sums: list[Tensor] = []  # (N,) each: the probability of the actual token, summed over the members of a run
    members, left_out = 0, []
    for run in runs:
        there = _there(run, which)
        seeds = RunFolder(run).recipe().seeds
        left_out += [f"{run}, seed {seed}" for seed, ready in zip(seeds, there, strict=True) if not ready]
        members += sum(there)
        if any(there):
            trained = _Trained(run, which, max_depth, device)
            sums.append(trained.probabilities(trained.parts(own, batch)))
    value = math.exp(-(torch.stack(sums).sum(0) / members).log().mean().item())
    return Together("perplexity", members, value, left_out)


def check_of_text(run: Path) -> None:
    if not isinstance(RunFolder(run).recipe().data, LanguageData):
        raise ValueError(f"only language models are calibrated, and {run} is not one")


def check_trained(run: Path, which: str) -> None:
    """Raises an error if the run has no weights of this kind."""
    one_of("which", which, KEPT)
    RunFolder(run).recipe()  # raises an error if it is not a run
    if not (run / f"{which}.safetensors").exists():
        raise RunError(f"{run} has no trained model: it has no {which}.safetensors")


def check_together(runs: Sequence[Path], split: str, which: str) -> Split:
    """The text that these runs are evaluated on together; an error where they are not models of one text."""
    found: list[tuple[Split, Vocabulary]] = []
    for run in runs:
        recipe = RunFolder(run).recipe()
        if not isinstance(recipe.data, LanguageData):
            raise ValueError(f"only language models are evaluated together, and {run} is not one")
        text, vocabulary = _split(recipe, split), recipe.data.vocabulary()
        found.append((text, vocabulary))
        target, first = text.target, found[0][0].target
        # The same numbers may stand for different words.
        if vocabulary != found[0][1] or target.shape != first.shape or not (target == first).all():
            raise ValueError(f"models are evaluated together on one text, and {run} was trained on a different one")
    for run in runs:
        check_trained(run, which)
    if not any(any(_there(run, which)) for run in runs):
        raise ValueError("there are no models to evaluate together: no seed has a best epoch")
    return found[0][0]


class _Trained:
    """The members of a run on a device."""

    def __init__(self, run: Path, which: str, max_depth: int | None, device: str | None) -> None:
        check_trained(run, which)
        self.recipe, path = RunFolder(run).recipe(), run / f"{which}.safetensors"
        if isinstance(self.recipe.data, LanguageData):
            self.recipe.data.check_trained_on(run)
        self.task, self.values = make_task(self.recipe), read_values(path)
        check_values(self.task.ensemble.values(), self.values, path)
        self.task.to(usable_device(device), next(iter(self.values.values())).dtype)
        self.task.ensemble.load(self.values)
        self.max_depth = max_depth
        self.there = _there(run, which)

    def parts(self, split: Split, batch: int | None) -> Parts | Windows:
        return final_parts(self.recipe, split, None if batch is None else positive_int("batch", batch))

    @torch.no_grad()
    def logits(self, parts: Parts | Windows) -> Iterator[tuple[Tensor, Tensor]]:
        """The logits of each part of a text, (M, B, T, V), and the actual tokens, (M, B, T, 1)."""
        task = self.task.eval()
        task.carried = None
        for x, target, _ in parts:
            inputs, wanted = (each.to(task.device).expand(task.ensemble.size, *each.shape) for each in (x, target))
            with precision(self.recipe, task.device):
                outcome = task.ensemble(inputs, task.carried, max_depth=self.max_depth)
            task.keep_state(outcome.state)
            yield outcome.prediction, wanted.unsqueeze(-1)

    def probabilities(self, parts: Parts | Windows) -> Tensor:
        """Probabilities of the actual tokens, summed over the members that have weights, (N,)."""
        found = []
        for logits, wanted in self.logits(parts):
            likely = logits.double().log_softmax(-1).gather(-1, wanted)
            found.append(likely[torch.tensor(self.there, device=likely.device)].exp().sum(0).flatten())
        return torch.cat(found)

    def losses(self, parts: Parts | Windows, sharpness: Tensor) -> Tensor:
        """Mean cross-entropy of each member with its logits multiplied by each value of `sharpness`, (M, K)."""
        sums, count = torch.zeros_like(sharpness), 0
        for logits, wanted in self.logits(parts):
            right = logits.gather(-1, wanted).double().flatten(1)  # (M, tokens)
            count += right.size(1)
            for each, factor in enumerate(sharpness.t().to(logits)):  # one by one, to save memory
                whole = (logits * factor.view(-1, *[1] * (logits.dim() - 1))).logsumexp(-1).double().flatten(1)
                sums[:, each] += (whole - right * factor.double().unsqueeze(-1)).sum(1).cpu()
        return sums / count


def _there(run: Path, which: str) -> list[bool]:
    """Whether each member has weights of this kind: one that diverged in its first epoch has no best ones."""
    scores = read_json(run / "model.json")["best_score"]
    return [which != "best" or score is not None for score in scores]


def _lowest(grid: Tensor, losses: Tensor) -> Tensor:
    """Where on `grid`, (K,), each row of `losses`, (M, K), which are convex, is lowest: by a parabola through its
    lowest value and the two next to it."""
    at = losses.nan_to_num(math.inf).argmin(-1).clamp(1, len(grid) - 2)
    left, here, right = (losses.gather(-1, (at + step).unsqueeze(-1)).squeeze(-1) for step in (-1, 0, 1))
    width, bend = grid[1] - grid[0], left - 2 * here + right
    aside = torch.where(bend > 0, (left - right) / (2 * bend), 0.0).clamp(-1, 1)
    return grid[at] + width * aside


def _split(recipe: Recipe, name: str) -> Split:
    one_of("split", name, Splits._fields)
    split: Split = getattr(recipe.data.load(), name)
    if not len(split.x):
        raise ValueError(f"{recipe.name} has no sequences for {name}")
    return split
