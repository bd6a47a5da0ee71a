"""The estimators: a class, or a number or several, of sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from .base import ElasticEstimator


@dataclass(kw_only=True, eq=False, repr=False)
class ElasticClassifier(ClassifierMixin, ElasticEstimator):
    """Classifies sequences by a network of elastic depth.

    `X` is (cases, time, channels), a table (cases, time) of one channel, or a list of sequences of any lengths.
    All settings but this one are those of `ElasticEstimator`:

    Args:
        class_weight: what an error on each class counts: a mapping from class to weight, "balanced", so that each
            class counts the same in all, or None.

    >>> model = ElasticClassifier(hidden_size=32).fit(X, y)  # doctest: +SKIP
    >>> model.predict_proba(X2)  # doctest: +SKIP
    """

    dropout: float = 0.2
    class_weight: Mapping[Any, float] | str | None = None

    def fit(self, X: Any, y: Any) -> Self:
        """Trains on sequences `X` of the classes `y` (cases,)."""
        cases = self._to_fit(X, y)
        y = column_or_1d(y, warn=True)
        check_consistent_length(cases, y)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"there must be more than one class in y, got 1 class: {self.classes_.tolist()[0]!r}")
        rows = self._held_out(len(cases), codes)
        weights = self._weights(y[rows[0]])
        self._train(cases, codes.astype(np.int64), rows, len(self.classes_), weights)
        return self

    def _weights(self, y: npt.NDArray[Any]) -> list[float] | None:
        """Of each class, such that their mean over `y` is 1."""
        if self.class_weight is None:
            return None
        weights = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
        if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
            raise ValueError(
                f"class_weight must be finite, at least 0 and not 0 for all, got {self.class_weight!r}"
            )
        mean = weights[np.searchsorted(self.classes_, y)].mean()
        return [float(weight) for weight in weights / mean]

    def check_loaded(self) -> None:
        """That what a file says fits together."""
        channels, outputs = self.members_[0].input_size, self.members_[0].output_size
        if self.n_channels_in_ != channels or self.classes_.shape != (outputs,):
            raise ValueError("the network has other sizes than the estimator")

    def predict_proba(self, X: Any, *, max_depth: int | None = None) -> npt.NDArray[np.float64]:
        """The chance of each of `classes_`, (cases, classes); by `max_depth` inner steps at most, in place of the
        network's own."""
        return self._mean(X, max_depth, lambda prediction: prediction.softmax(-1))

    def predict(self, X: Any, *, max_depth: int | None = None) -> npt.NDArray[Any]:
        """The most likely class of each sequence, (cases,): see `predict_proba`."""
        likely = self.predict_proba(X, max_depth=max_depth).argmax(1)
        return np.asarray(self.classes_[likely])


class ElasticRegressor(RegressorMixin, ElasticEstimator):
    """Predicts a number, or several, of a sequence by a network of elastic depth.

    `X` is (cases, time, channels), a table (cases, time) of one channel, or a list of sequences of any lengths.
    Its settings are those of `ElasticEstimator`.

    >>> ElasticRegressor(hidden_size=32).fit(X, y).predict(X2)  # doctest: +SKIP
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Trains on sequences `X` and their numbers `y`, (cases,) or (cases, outputs)."""
        cases = self._to_fit(X, y)
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=self)
        check_consistent_length(cases, y)
        if y.ndim > 2:
            raise ValueError(f"y must be (cases,) or (cases, outputs), got {y.shape}")
        self.single_ = y.ndim == 1
        target = y.reshape(len(y), -1)
        self._train(cases, target, self._held_out(len(cases), None), target.shape[1])
        return self

    def check_loaded(self) -> None:
        """That what a file says fits together."""
        channels, outputs = self.members_[0].input_size, self.members_[0].output_size
        if self.n_channels_in_ != channels or self.single_ not in (False, outputs == 1):
            raise ValueError("the network has other sizes than the estimator")

    def predict(self, X: Any, *, max_depth: int | None = None) -> npt.NDArray[np.float64]:
        """(cases,), or (cases, outputs) where `y` was; by `max_depth` inner steps at most, in place of the
        network's own."""
        found = self._mean(X, max_depth, lambda prediction: prediction)
        return found[:, 0] if self.single_ else found
