"""What a report is made of: plain data, from which it is drawn."""

from __future__ import annotations

import math
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
    """The metric on training data; None where it is not measured there."""
    validation: Sequence[Sequence[float]] | None
    """The metric on validation data; None where nothing is held out."""
    depth: Sequence[Sequence[float]] | None = None
    loss: Sequence[Sequence[float]] | None = None
    """The training loss, where that is not the metric."""
    seconds: Sequence[float] | None = None
    """Of training until the end of each epoch, all seeds together."""

    @property
    def seeds(self) -> Sequence[Sequence[float]]:
        """The values that say how far each seed came, [seed][epoch]."""
        return next((part for part in (self.validation, self.train, self.loss) if part is not None), ())

    @property
    def diverged(self) -> int:
        """How many seeds."""
        return sum(not np.isfinite(np.array(seed, np.float64)).all() for seed in self.seeds)


@dataclass(frozen=True)
class DepthHistogram:
    """How many time steps of the test data took d inner steps: `counts[d]`, from d = 0 on."""

    label: str
    counts: Sequence[int]
    layers: int = 1
    """Each of several counts by itself."""


@dataclass(frozen=True)
class Example:
    """One test sequence: its points `x` (T, 2), the inner steps `spent` on each, those the generator had `taken`,
    and the model's `error` at each."""

    x: Sequence[Sequence[float]]
    spent: Sequence[int]
    taken: Sequence[int]
    error: Sequence[float]


@dataclass(frozen=True)
class Saving:
    """One point of what elastic depth saves: a trained model, what it costs and how well it does."""

    label: str
    group: Literal["elastic", "fixed"]
    penalty: float | None
    """The depth penalty it was trained with; None where depth is fixed."""
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
    """Inner steps a model spent where the generator had `taken` so many, over `count` time steps each."""

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
        """Of each true class, what part was predicted as each, (true, predicted); NaN where it does not occur."""
        return _ratio(self.summed, self.summed.sum(1, keepdims=True))

    @property
    def precision(self) -> Floats:
        """Of what was predicted as each class, the part that is it, (predicted,)."""
        return _ratio(self.summed.diagonal(), self.summed.sum(0))

    @property
    def f1(self) -> Floats:
        """Of precision and recall, (classes,); NaN where a class neither occurs nor is predicted."""
        return _ratio(2 * self.summed.diagonal(), self.summed.sum(0) + self.summed.sum(1))

    @property
    def macro_f1(self) -> float:
        """The mean of F1 over the classes that occur or are predicted."""
        return float(np.nanmean(self.f1))


def _ratio(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> Floats:
    return np.where(whole > 0, part / np.maximum(whole, 1), math.nan)


@dataclass(frozen=True)
class ClassDepth:
    """How well each class is predicted, and how much depth is spent on it: means and deviations over the seeds."""

    label: str
    classes: Sequence[str]
    accuracy: Sequence[float]
    """The share of its sequences that are predicted correctly; NaN where the class does not occur."""
    depth: Sequence[float]
    """Mean inner steps a time step, and a layer where there are several."""
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
    """Time steps that the model reads at once, on which it spends the same depth."""

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
    """The words of a text in groups, and of each how often it took d inner steps: `counts[group][d]`, from d = 0
    on."""

    label: str
    names: Sequence[str]
    ticks: Sequence[str]
    """Short forms of the names, to stand beneath a figure."""
    counts: Sequence[Sequence[int]]
    perplexity: Sequence[float]
    """Of the words themselves; NaN where none was predicted."""
    next_perplexity: Sequence[float]
    """Of the words that follow them, which is what the depth was spent for."""
    layers: int = 1
    """Each of several counts by itself."""
    effective: Sequence[float] | None = None
    """How far elastic gates were open for each group, summed over inner steps, mean over units and words."""

    @property
    def shares(self) -> Floats:
        """Of each group, what part took each depth, (group, depth)."""
        counts = np.array(self.counts, np.float64)
        shares: Floats = counts / counts.sum(1, keepdims=True)
        return shares

    @property
    def mean(self) -> Floats:
        """Inner steps, (group,)."""
        return self.shares @ np.arange(self.shares.shape[1])

    @property
    def std(self) -> Floats:
        """Of the inner steps within each group, (group,)."""
        squares = self.shares @ np.square(np.arange(self.shares.shape[1]))
        deviation: Floats = np.sqrt(np.maximum(squares - self.mean**2, 0.0))
        return deviation

    @property
    def words(self) -> list[int]:
        """How many words each group counts, in all the models that read them."""
        return [sum(numbers) // self.layers for numbers in self.counts]


@dataclass(frozen=True)
class Passage:
    """A piece of text as a model reads it: its tokens, the mean `depth` over the layers spent on each, and the
    `chance` that the model had given each before it came."""

    label: str
    tokens: Sequence[str]
    depth: Sequence[float]
    chance: Sequence[float | None]
    """None where nothing was predicted, as at the beginning of a text."""
    end: str = "<eos>"
    """The token that ends a line."""
    spaced: bool = True
    """Whether there are spaces between tokens: words, not characters."""
    taken: float | None = None
    """Where every token took so many inner steps, and `depth` is how far gates were open, summed over them."""


@dataclass(frozen=True)
class TableRow:
    """A row of a table of the paper, of ours, or of both: perplexities, and None for what there is not."""

    table: str
    model: str
    millions: float | None
    """Of parameters."""
    paper_validation: float | None = None
    paper_test: float | None = None
    validation: float | None = None
    test: float | None = None


@dataclass(frozen=True)
class Report:
    """Everything the page shows. A section whose data is not given is left out."""

    title: str
    summary: str
    results: Mapping[str, Any]
    """The results file; its rows are described in `tables.py`."""
    notice: str | None = None
    """Shown prominently: what a reader must know before comparing."""
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
    """By how common words are."""
    positions: Sequence[WordGroups] = ()
    """By where words stand in the sentence."""
    passages: Sequence[Passage] = ()
    tables: Sequence[TableRow] = ()
    """Those of one table together."""
    measured_on: str = ""
    """What depth was measured on, where that is not all of the test data."""
    loss_name: str = "training loss"
    """What `Curve.loss` is."""
    own: bool = False
    """Whether it is about a user's own data: then there is nothing of the paper in it."""
    own_metric: Metric | None = None
    """Where the metric is shown in units of these data."""

    @property
    def metric(self) -> Metric:
        return self.own_metric or metric_of(self.results)
