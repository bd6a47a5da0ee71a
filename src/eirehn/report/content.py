"""The content of a report, as plain data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .tables import Metric, metric_of

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Learning curves of one row of the table. `train`, `validation` and the others are [seed][epoch], NaN from
    where a seed has diverged."""

    label: str
    epochs: Sequence[int]
    train: Sequence[Sequence[float]] | None
    """The metric on training data; None if it is not measured there."""
    validation: Sequence[Sequence[float]] | None
    """The metric on validation data; None if there are none."""
    depth: Sequence[Sequence[float]] | None = None
    loss: Sequence[Sequence[float]] | None = None
    """The training loss, where that is not the metric."""
    seconds: Sequence[float] | None = None
    """Training time until the end of each epoch, for all seeds together."""

    @property
    def seeds(self) -> Sequence[Sequence[float]]:
        """The values that show the progress of each seed, [seed][epoch]."""
        return next((part for part in (self.validation, self.train, self.loss) if part is not None), ())

    @property
    def diverged(self) -> int:
        """The number of seeds that diverged."""
        return sum(not np.isfinite(np.array(seed, np.float64)).all() for seed in self.seeds)


@dataclass(frozen=True)
class DepthHistogram:
    """How many time steps of the test data took d inner steps: `counts[d]`, from d = 0 on."""

    label: str
    counts: Sequence[int]
    layers: int = 1
    """With several layers, each is counted separately."""


@dataclass(frozen=True)
class Example:
    """One test sequence: its points `x` (T, 2), and at each the model's inner steps `spent`, those `taken` by the
    generator, and the model's `error`."""

    x: Sequence[Sequence[float]]
    spent: Sequence[int]
    taken: Sequence[int]
    error: Sequence[float]


@dataclass(frozen=True)
class Saving:
    """The result of a trained model and its cost."""

    label: str
    group: Literal["elastic", "fixed"]
    penalty: float | None
    """The depth penalty in training; None for a fixed depth."""
    depth: float
    """Mean inner steps a time step."""
    milliseconds: float
    mean: float
    std: float | None = None


@dataclass(frozen=True)
class EarlyCurve:
    """The metric of one trained model when its depth is capped at inference."""

    label: str
    caps: Sequence[int]
    mean: Sequence[float]
    std: Sequence[float] | None = None


@dataclass(frozen=True)
class TrueDepth:
    """Inner steps of a model where the generator has `taken` each number, over `count` time steps."""

    label: str
    taken: Sequence[int]
    spent_mean: Sequence[float]
    spent_std: Sequence[float]
    count: Sequence[int]


@dataclass(frozen=True)
class Confusion:
    """How many sequences of each class were predicted as each: `counts[seed][true][predicted]`."""

    label: str
    classes: Sequence[str]
    counts: Sequence[Sequence[Sequence[int]]]

    @property
    def summed(self) -> npt.NDArray[np.int64]:
        """Over the seeds, (true, predicted)."""
        total: npt.NDArray[np.int64] = np.array(self.counts, np.int64).sum(0)
        return total

    @property
    def shares(self) -> Floats:
        """The share of each true class predicted as each class, (true, predicted); NaN for a class that does not
        occur."""
        return _ratio(self.summed, self.summed.sum(1, keepdims=True))

    @property
    def precision(self) -> Floats:
        """The share of the predictions of each class that are correct, (predicted,)."""
        return _ratio(self.summed.diagonal(), self.summed.sum(0))

    @property
    def f1(self) -> Floats:
        """The harmonic mean of precision and recall, (classes,); NaN for a class that does not occur in either."""
        return _ratio(2 * self.summed.diagonal(), self.summed.sum(0) + self.summed.sum(1))

    @property
    def macro_f1(self) -> float:
        """The mean of F1 over the classes that occur or are predicted."""
        return float(np.nanmean(self.f1))


def _ratio(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> Floats:
    return np.where(whole > 0, part / np.maximum(whole, 1), math.nan)


@dataclass(frozen=True)
class ClassDepth:
    """Recall and depth of each class: means and standard deviations over the seeds."""

    label: str
    classes: Sequence[str]
    accuracy: Sequence[float]
    """The share of its sequences that are predicted correctly; NaN if the class does not occur."""
    depth: Sequence[float]
    """Mean inner steps a time step and layer."""
    count: Sequence[int]
    """Sequences."""
    accuracy_std: Sequence[float] | None = None
    depth_std: Sequence[float] | None = None
    layers: int = 1


@dataclass(frozen=True)
class Window:
    """One test sequence: its `signals` (T, X), the mean `depth` over the layers at each step (T,), its class or
    number, and the predicted one."""

    label: str
    names: Sequence[str]
    signals: Sequence[Sequence[float]]
    depth: Sequence[float]
    true: str
    predicted: str
    probability: float | None
    """Of the predicted class, by the model; None where numbers are predicted."""
    layers: int = 1
    frame: int = 1
    """Time steps that the model reads at once, with the same depth."""

    @property
    def right(self) -> bool:
        return self.true == self.predicted


@dataclass(frozen=True)
class Predictions:
    """A number of each test sequence in its own units, `true` (N,), and as predicted by each model, [seed][N]."""

    label: str
    target: str
    """The name of the number."""
    true: Sequence[Any]
    predicted: Sequence[Any]

    @property
    def errors(self) -> Floats:
        return np.array(self.predicted, np.float64) - np.array(self.true, np.float64)  # (S, N)

    @property
    def mse(self) -> Floats:
        """Mean squared error, (S,)."""
        return _mean(np.square(self.errors))

    @property
    def mae(self) -> Floats:
        """Mean absolute error, (S,)."""
        return _mean(np.abs(self.errors))

    @property
    def r2(self) -> Floats:
        """Share of the variance that is explained, (S,); NaN where the number does not vary."""
        variance = np.array(self.true, np.float64).var(-1)
        return np.where(variance > 0, 1 - self.mse / np.where(variance > 0, variance, 1.0), math.nan)


def _mean(values: Floats) -> Floats:
    mean: Floats = values.mean(-1)
    return mean


@dataclass(frozen=True)
class WordGroups:
    """Groups of the words of a text, and how many words of each took d inner steps: `counts[group][d]`."""

    label: str
    names: Sequence[str]
    ticks: Sequence[str]
    """Short forms of the names, for the axis."""
    counts: Sequence[Sequence[int]]
    perplexity: Sequence[float]
    """Of the words themselves; NaN where none was predicted."""
    next_perplexity: Sequence[float]
    """Of the words after them, which are predicted with this depth."""
    layers: int = 1
    """With several layers, each is counted separately."""
    effective: Sequence[float] | None = None
    """Effective depth: the depth before rounding, the mean over words."""

    @property
    def shares(self) -> Floats:
        """The share of each group that took each depth, (group, depth)."""
        counts = np.array(self.counts, np.float64)
        shares: Floats = counts / counts.sum(1, keepdims=True)
        return shares

    @property
    def mean(self) -> Floats:
        """Mean inner steps, (group,)."""
        return self.shares @ np.arange(self.shares.shape[1])

    @property
    def std(self) -> Floats:
        """Standard deviation of the inner steps, (group,)."""
        squares = self.shares @ np.square(np.arange(self.shares.shape[1]))
        deviation: Floats = np.sqrt(np.maximum(squares - self.mean**2, 0.0))
        return deviation

    @property
    def words(self) -> list[int]:
        """Words in each group, over all models."""
        return [sum(numbers) // self.layers for numbers in self.counts]


@dataclass(frozen=True)
class Passage:
    """A piece of text as a model reads it: its tokens, the mean `depth` over the layers at each, and the predicted
    probability `chance` of each."""

    label: str
    tokens: Sequence[str]
    depth: Sequence[float]
    chance: Sequence[float | None]
    """None for the first token of a text, which is not predicted."""
    end: str = "<eos>"
    """The token that ends a line."""
    spaced: bool = True
    """Whether tokens are separated by spaces: words, not characters."""
    taken: float | None = None
    """The inner steps of every token, if they are the same; then `depth` is the effective depth."""


@dataclass(frozen=True)
class TableRow:
    """A row of a table of the paper or of our results: perplexities, None where missing."""

    table: str
    model: str
    millions: float | None
    """Of parameters."""
    paper_validation: float | None = None
    paper_test: float | None = None
    validation: float | None = None
    test: float | None = None


@dataclass(frozen=True)
class Tried:
    """A trial of a search for settings."""

    number: int
    state: str
    """complete, pruned, failed, or running in another process."""
    value: float | None
    """The validation metric of its best epoch; None if it has none."""
    epochs: int
    settings: Mapping[str, Any]
    error: str | None = None


@dataclass(frozen=True)
class Searched:
    """A search for settings: the `fields` with their ranges in words, the trials, and the number of the best."""

    metric: Metric
    fields: Mapping[str, str]
    trials: Sequence[Tried]
    best: int

    @property
    def ranked(self) -> list[Tried]:
        """Complete trials, best first, then the others by number."""
        sign = 1 if self.metric.lower_is_better else -1

        def rank(each: Tried) -> tuple[bool, float]:
            complete = each.state == "complete" and each.value is not None
            return not complete, sign * (each.value or 0.0) if complete else each.number

        return sorted(self.trials, key=rank)

    def __str__(self) -> str:
        """The number of trials by state, in words."""
        counts = Counter(each.state for each in self.trials)
        states = ", ".join(f"{counts[state]} {state}" for state in counts)
        return f"{len(self.trials)} trial{'s' if len(self.trials) > 1 else ''} ({states})"


@dataclass(frozen=True)
class Report:
    """Everything that the page shows. Sections without data are omitted."""

    title: str
    summary: str
    results: Mapping[str, Any]
    """The results file; its rows are described in `tables.py`."""
    notice: str | None = None
    """Shown at the top: what a reader must know before comparing."""
    curves: Sequence[Curve] = ()
    histograms: Sequence[DepthHistogram] = ()
    examples: Sequence[Example] = ()
    savings: Sequence[Saving] = ()
    early: Sequence[EarlyCurve] = ()
    true_depth: Sequence[TrueDepth] = ()
    confusions: Sequence[Confusion] = ()
    class_depths: Sequence[ClassDepth] = ()
    predictions: Sequence[Predictions] = ()
    windows: Sequence[Window] = ()
    windows_chosen: str = ""
    """How `windows` were chosen."""
    frequencies: Sequence[WordGroups] = ()
    """By word frequency."""
    positions: Sequence[WordGroups] = ()
    """By position in the line."""
    passages: Sequence[Passage] = ()
    tables: Sequence[TableRow] = ()
    """In the order of the tables."""
    measured_on: str = ""
    """The data that depth was measured on."""
    loss_name: str = "training loss"
    """The name of `Curve.loss`."""
    own: bool = False
    """Whether it is about a user's own data, without anything of the paper."""
    own_metric: Metric | None = None
    """The metric in the units of these data."""
    search: Searched | None = None

    @property
    def metric(self) -> Metric:
        return self.own_metric or metric_of(self.results)
