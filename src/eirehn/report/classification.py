"""What a report says of classification: which classes are taken for which, and where depth is spent on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .checking import (
    check_length,
    check_names,
    check_numbers,
    check_positive,
    check_spread,
    check_text,
    check_whole,
    is_number,
)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Confusion:
    """How many sequences of each class were taken for each: `counts[seed][true][predicted]`."""

    label: str
    classes: Sequence[str]
    counts: Sequence[Sequence[Sequence[int]]]

    def __post_init__(self) -> None:
        check_text("Confusion.label", self.label)
        check_names("Confusion.classes", self.classes)
        if len(self.counts) == 0:
            raise ValueError("Confusion.counts needs at least one seed, got none")
        for seed, matrix in enumerate(self.counts):
            check_length(f"Confusion.counts[{seed}]", matrix, len(self.classes), "classes")
            for row, numbers in enumerate(matrix):
                check_length(f"Confusion.counts[{seed}][{row}]", numbers, len(self.classes), "classes")
                check_whole(f"Confusion.counts[{seed}][{row}]", numbers)

    @property
    def summed(self) -> npt.NDArray[np.int64]:
        """Over the seeds, (true, predicted)."""
        total: npt.NDArray[np.int64] = np.array(self.counts, np.int64).sum(0)
        return total

    @property
    def shares(self) -> Floats:
        """Of each true class, what part was taken for each, (true, predicted); NaN where it does not occur."""
        return _ratio(self.summed, self.summed.sum(1, keepdims=True))

    @property
    def precision(self) -> Floats:
        """Of what was taken for each class, the part that is it, (predicted,)."""
        return _ratio(self.summed.diagonal(), self.summed.sum(0))


@dataclass(frozen=True)
class ClassDepth:
    """How well each class is told, and how much depth is spent on it: means and deviations over the seeds."""

    label: str
    classes: Sequence[str]
    accuracy: Sequence[float]
    """The share of its sequences that are told; NaN where the class does not occur."""
    depth: Sequence[float]
    """Mean inner steps a time step, and a layer where there are several."""
    count: Sequence[int]
    """Sequences."""
    accuracy_std: Sequence[float] | None = None
    depth_std: Sequence[float] | None = None
    layers: int = 1

    def __post_init__(self) -> None:
        check_text("ClassDepth.label", self.label)
        check_names("ClassDepth.classes", self.classes)
        for name in ("accuracy", "depth", "count", "accuracy_std", "depth_std"):
            values = getattr(self, name)
            if values is None and name.endswith("_std"):
                continue
            check_length(f"ClassDepth.{name}", values, len(self.classes), "classes")
            (check_spread if name.endswith("_std") else check_numbers)(f"ClassDepth.{name}", values)
        check_whole("ClassDepth.count", self.count)
        check_positive("ClassDepth.layers", self.layers)


@dataclass(frozen=True)
class Window:
    """One test sequence: its `signals` (T, X), the mean `depth` over the layers at each step (T,), what it is, what
    the model takes it for, and how sure the model is of that."""

    label: str
    names: Sequence[str]
    signals: Sequence[Sequence[float]]
    depth: Sequence[float]
    true: str
    predicted: str
    probability: float
    """Of `predicted`, as the model has it."""
    layers: int = 1
    frame: int = 1
    """Time steps that the model reads at once, on which it spends the same depth."""

    def __post_init__(self) -> None:
        for name in ("label", "true", "predicted"):
            check_text(f"Window.{name}", getattr(self, name))
        check_names("Window.names", self.names)
        if len(self.signals) == 0:
            raise ValueError("Window.signals needs at least one time step, got none")
        for t, values in enumerate(self.signals):
            check_length(f"Window.signals[{t}]", values, len(self.names), "signals")
            check_numbers(f"Window.signals[{t}]", values)
        check_length("Window.depth", self.depth, len(self.signals), "time steps")
        check_spread("Window.depth", self.depth)
        if not is_number(self.probability) or not 0 <= self.probability <= 1:
            raise ValueError(f"Window.probability must be a number from 0 to 1, got {self.probability!r}")
        check_positive("Window.layers", self.layers)
        check_positive("Window.frame", self.frame)

    @property
    def right(self) -> bool:
        return self.true == self.predicted


def _ratio(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> Floats:
    return np.where(whole > 0, part / np.maximum(whole, 1), math.nan)
