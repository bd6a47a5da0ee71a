"""What a report is made of: plain data, checked where it is put together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .table import results_table


@dataclass(frozen=True)
class Curve:
    """Learning curves of one row of the table. `train`, `validation` and `depth` are [seed][epoch], NaN from where
    a seed has diverged."""

    label: str
    epochs: Sequence[int]
    train: Sequence[Sequence[float]]
    validation: Sequence[Sequence[float]]
    depth: Sequence[Sequence[float]] | None = None

    def __post_init__(self) -> None:
        _text("Curve.label", self.label)
        _rising("Curve.epochs", self.epochs)
        for name in ("train", "validation", "depth"):
            seeds = getattr(self, name)
            if seeds is None and name == "depth":
                continue
            if len(seeds) == 0:
                raise ValueError(f"Curve.{name} needs at least one seed, got none")
            for seed, values in enumerate(seeds):
                _length(f"Curve.{name}[{seed}]", values, len(self.epochs), "epochs")
                _numbers(f"Curve.{name}[{seed}]", values)


@dataclass(frozen=True)
class DepthHistogram:
    """How many time steps of the test data took d inner steps: `counts[d]`, from d = 0 on."""

    label: str
    counts: Sequence[int]

    def __post_init__(self) -> None:
        _text("DepthHistogram.label", self.label)
        _whole("DepthHistogram.counts", self.counts)
        if sum(self.counts) <= 0:
            raise ValueError("DepthHistogram.counts must count at least one time step, got none")


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
            _length(f"Example.x[{t}]", point, 2, "coordinates")
            _numbers(f"Example.x[{t}]", point)
        steps = len(self.x)
        _length("Example.spent", self.spent, steps, "time steps of x")
        _whole("Example.spent", self.spent)
        if self.taken is not None:
            _length("Example.taken", self.taken, steps, "time steps of x")
            _whole("Example.taken", self.taken)
        if self.error is not None:
            _length("Example.error", self.error, steps, "time steps of x")
            _numbers("Example.error", self.error)


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
        _text("Saving.label", self.label)
        if self.group not in ("elastic", "fixed"):
            raise ValueError(f'Saving.group must be "elastic" or "fixed", got {self.group!r}')
        if self.price is not None:
            _at_least_zero("Saving.price", self.price)
        _at_least_zero("Saving.depth", self.depth)
        _at_least_zero("Saving.milliseconds", self.milliseconds)
        _numbers("Saving.mean", [self.mean])
        _spread("Saving.std", [self.std])


@dataclass(frozen=True)
class EarlyCurve:
    """The metric of one trained model when its depth is capped at inference."""

    label: str
    caps: Sequence[int]
    mean: Sequence[float]
    std: Sequence[float] | None = None

    def __post_init__(self) -> None:
        _text("EarlyCurve.label", self.label)
        _rising("EarlyCurve.caps", self.caps)
        _length("EarlyCurve.mean", self.mean, len(self.caps), "caps")
        _numbers("EarlyCurve.mean", self.mean)
        if self.std is not None:
            _length("EarlyCurve.std", self.std, len(self.caps), "caps")
            _spread("EarlyCurve.std", self.std)


@dataclass(frozen=True)
class TrueDepth:
    """Inner steps a model spent where the generator had `taken` so many, over `count` time steps each."""

    label: str
    taken: Sequence[int]
    spent_mean: Sequence[float]
    spent_std: Sequence[float]
    count: Sequence[int]

    def __post_init__(self) -> None:
        _text("TrueDepth.label", self.label)
        _rising("TrueDepth.taken", self.taken)
        for name in ("spent_mean", "spent_std", "count"):
            _length(f"TrueDepth.{name}", getattr(self, name), len(self.taken), "depths taken")
        _numbers("TrueDepth.spent_mean", self.spent_mean)
        _spread("TrueDepth.spent_std", self.spent_std)
        _whole("TrueDepth.count", self.count)


@dataclass(frozen=True)
class Report:
    """Everything the page shows. A section whose data is not given is left out.

    Stored values are multiplied by `scale` for display, and `metric_unit` says so beside them.
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
    figure1: bool = True
    metric_name: str = "test MSE"
    metric_unit: str = "×10⁻³"
    lower_is_better: bool = True
    scale: float = 1e3

    def __post_init__(self) -> None:
        _text("Report.title", self.title)
        _text("Report.metric_name", self.metric_name)
        for name in ("summary", "metric_unit"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"Report.{name} must be text, got: {type(getattr(self, name)).__name__}")
        if self.notice is not None and not isinstance(self.notice, str):
            raise ValueError(f"Report.notice must be text or None, got: {type(self.notice).__name__}")
        if not _is_number(self.scale) or not math.isfinite(self.scale) or self.scale <= 0:
            raise ValueError(f"Report.scale must be a finite number greater than zero, got {self.scale!r}")
        for name, kind in (
            ("curves", Curve),
            ("histograms", DepthHistogram),
            ("examples", Example),
            ("savings", Saving),
            ("early", EarlyCurve),
            ("true_depth", TrueDepth),
        ):
            for index, part in enumerate(getattr(self, name)):
                if not isinstance(part, kind):
                    raise ValueError(
                        f"Report.{name}[{index}] must be a {kind.__name__}, got: {type(part).__name__}"
                    )
        results_table(self.results, lower_is_better=self.lower_is_better)


def _is_number(value: object) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, (str, bool))


def _text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name} must be text that is not empty, got {value!r}")


def _length(name: str, values: Sequence[Any], expected: int, of: str) -> None:
    if len(values) != expected:
        raise ValueError(f"{name} must have one value for each of the {expected} {of}, got {len(values)}")


def _numbers(name: str, values: Iterable[object]) -> None:
    """NaN, infinity and None are numbers that diverged, and are shown as such."""
    for value in values:
        if value is not None and not _is_number(value):
            raise ValueError(f"{name} must hold numbers, got {value!r}")


def _spread(name: str, values: Iterable[Any]) -> None:
    for value in values:
        if value is not None and (not _is_number(value) or value < 0):
            raise ValueError(f"{name} must be a number of at least zero, got {value!r}")


def _at_least_zero(name: str, value: object) -> None:
    if not _is_number(value) or not 0 <= float(value) < math.inf:  # type: ignore[arg-type]
        raise ValueError(f"{name} must be a finite number of at least zero, got {value!r}")


def _whole(name: str, values: Sequence[Any]) -> None:
    for value in values:
        if not hasattr(value, "__index__") or isinstance(value, bool) or value < 0:
            raise ValueError(f"{name} must hold whole numbers of at least zero, got {value!r}")


def _rising(name: str, values: Sequence[Any]) -> None:
    _whole(name, values)
    if len(values) == 0:
        raise ValueError(f"{name} must not be empty")
    for before, after in pairwise(values):
        if after <= before:
            raise ValueError(f"{name} must rise from one to the next, got {after} after {before}")
