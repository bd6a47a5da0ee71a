"""What a report is made of: plain data, checked where it is put together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .checking import (
    check_at_least_zero,
    check_length,
    check_numbers,
    check_positive,
    check_rising,
    check_spread,
    check_text,
    check_whole,
    is_number,
)
from .classification import ClassDepth, Confusion, Window
from .language import Passage, TableRow, WordGroups
from .table import results_table


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
    """What training lowers, where that is not the metric."""
    seconds: Sequence[float] | None = None
    """Of training until the end of each epoch, all seeds together."""

    def __post_init__(self) -> None:
        check_text("Curve.label", self.label)
        check_rising("Curve.epochs", self.epochs)
        for name in ("train", "validation", "depth", "loss"):
            seeds = getattr(self, name)
            if seeds is None:
                continue
            if len(seeds) == 0:
                raise ValueError(f"Curve.{name} needs at least one seed, got none")
            for seed, values in enumerate(seeds):
                check_length(f"Curve.{name}[{seed}]", values, len(self.epochs), "epochs")
                check_numbers(f"Curve.{name}[{seed}]", values)
        if self.seconds is not None:
            check_length("Curve.seconds", self.seconds, len(self.epochs), "epochs")
            for value in self.seconds:
                check_at_least_zero("Curve.seconds", value)
        if len(self.seeds) == 0:
            raise ValueError("Curve needs one of train, validation and loss, got none")

    @property
    def seeds(self) -> Sequence[Sequence[float]]:
        """The figures that say how far each seed came, [seed][epoch]."""
        return next((part for part in (self.validation, self.train, self.loss) if part is not None), ())


@dataclass(frozen=True)
class DepthHistogram:
    """How many time steps of the test data took d inner steps: `counts[d]`, from d = 0 on."""

    label: str
    counts: Sequence[int]
    layers: int = 1
    """Each of several counts by itself."""

    def __post_init__(self) -> None:
        check_text("DepthHistogram.label", self.label)
        check_whole("DepthHistogram.counts", self.counts)
        if sum(self.counts) <= 0:
            raise ValueError("DepthHistogram.counts must count at least one time step, got none")
        check_positive("DepthHistogram.layers", self.layers)


@dataclass(frozen=True)
class Example:
    """One test sequence: its points `x` (T, 2), the inner steps `spent` on each, those the generator had `taken`,
    and the model's `error` at each."""

    x: Sequence[Sequence[float]]
    spent: Sequence[int]
    taken: Sequence[int] | None = None
    error: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if len(self.x) == 0:
            raise ValueError("Example.x needs at least one time step, got none")
        for t, point in enumerate(self.x):
            check_length(f"Example.x[{t}]", point, 2, "coordinates")
            check_numbers(f"Example.x[{t}]", point)
        steps = len(self.x)
        check_length("Example.spent", self.spent, steps, "time steps of x")
        check_whole("Example.spent", self.spent)
        if self.taken is not None:
            check_length("Example.taken", self.taken, steps, "time steps of x")
            check_whole("Example.taken", self.taken)
        if self.error is not None:
            check_length("Example.error", self.error, steps, "time steps of x")
            check_numbers("Example.error", self.error)


@dataclass(frozen=True)
class Saving:
    """One point of what elastic depth saves: a trained model, what it costs and how well it does."""

    label: str
    group: str
    """"elastic" or "fixed"."""
    price: float | None
    """The price on depth it was trained with; None where there is none to pay."""
    depth: float
    """Mean inner steps a time step."""
    milliseconds: float
    mean: float
    std: float | None = None

    def __post_init__(self) -> None:
        check_text("Saving.label", self.label)
        if self.group not in ("elastic", "fixed"):
            raise ValueError(f'Saving.group must be "elastic" or "fixed", got {self.group!r}')
        if self.price is not None:
            check_at_least_zero("Saving.price", self.price)
        check_at_least_zero("Saving.depth", self.depth)
        check_at_least_zero("Saving.milliseconds", self.milliseconds)
        check_numbers("Saving.mean", [self.mean])
        check_spread("Saving.std", [self.std])


@dataclass(frozen=True)
class EarlyCurve:
    """The metric of one trained model when its depth is capped at inference."""

    label: str
    caps: Sequence[int]
    mean: Sequence[float]
    std: Sequence[float] | None = None

    def __post_init__(self) -> None:
        check_text("EarlyCurve.label", self.label)
        check_rising("EarlyCurve.caps", self.caps)
        check_length("EarlyCurve.mean", self.mean, len(self.caps), "caps")
        check_numbers("EarlyCurve.mean", self.mean)
        if self.std is not None:
            check_length("EarlyCurve.std", self.std, len(self.caps), "caps")
            check_spread("EarlyCurve.std", self.std)


@dataclass(frozen=True)
class TrueDepth:
    """Inner steps a model spent where the generator had `taken` so many, over `count` time steps each."""

    label: str
    taken: Sequence[int]
    spent_mean: Sequence[float]
    spent_std: Sequence[float]
    count: Sequence[int]

    def __post_init__(self) -> None:
        check_text("TrueDepth.label", self.label)
        check_rising("TrueDepth.taken", self.taken)
        for name in ("spent_mean", "spent_std", "count"):
            check_length(f"TrueDepth.{name}", getattr(self, name), len(self.taken), "depths taken")
        check_numbers("TrueDepth.spent_mean", self.spent_mean)
        check_spread("TrueDepth.spent_std", self.spent_std)
        check_whole("TrueDepth.count", self.count)


@dataclass(frozen=True)
class Report:
    """Everything the page shows. A section whose data is not given is left out.

    Stored values are multiplied by `scale` for display, and `metric_unit` says so beside them: `metric_of(results)`
    gives the four of them together.
    """

    title: str
    summary: str
    results: Mapping[str, Any]
    """The results file; its rows are described in `table.py`."""
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
    """What the figures of depth were measured on, where that is not all of the test data."""
    loss_name: str = "training loss"
    """What `Curve.loss` is."""
    figure1: bool = True
    metric_name: str = "test MSE"
    metric_unit: str = "×10⁻³"
    lower_is_better: bool = True
    scale: float = 1e3

    def __post_init__(self) -> None:
        check_text("Report.title", self.title)
        check_text("Report.metric_name", self.metric_name)
        check_text("Report.loss_name", self.loss_name)
        for name in ("summary", "metric_unit", "windows_chosen", "measured_on"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"Report.{name} must be text, got: {type(getattr(self, name)).__name__}")
        if self.notice is not None and not isinstance(self.notice, str):
            raise ValueError(f"Report.notice must be text or None, got: {type(self.notice).__name__}")
        if not is_number(self.scale) or not math.isfinite(self.scale) or self.scale <= 0:
            raise ValueError(f"Report.scale must be a finite number greater than zero, got {self.scale!r}")
        for name, kind in (
            ("curves", Curve),
            ("histograms", DepthHistogram),
            ("examples", Example),
            ("savings", Saving),
            ("early", EarlyCurve),
            ("true_depth", TrueDepth),
            ("confusions", Confusion),
            ("class_depths", ClassDepth),
            ("windows", Window),
            ("frequencies", WordGroups),
            ("positions", WordGroups),
            ("passages", Passage),
            ("tables", TableRow),
        ):
            for index, part in enumerate(getattr(self, name)):
                if not isinstance(part, kind):
                    raise ValueError(
                        f"Report.{name}[{index}] must be a {kind.__name__}, got: {type(part).__name__}"
                    )
        results_table(self.results, lower_is_better=self.lower_is_better)
