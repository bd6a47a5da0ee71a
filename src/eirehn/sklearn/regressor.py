"""Numbers that belong to sequences."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, check_consistent_length

from ..data.dataset import check_single, moments
from ..models import Scaling
from .base import ElasticEstimator, splits_of
from .cases import channels, chosen, read_cases, steps


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
        from ..training.in_memory import Tensors

        if y is None:
            raise ValueError("This ElasticRegressor estimator requires y to be passed, but the target y is None")
        cases = read_cases(self, X, reset=True)
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y", estimator=self)
        check_consistent_length(cases, y)
        if y.ndim > 2:
            raise ValueError(f"y must be (cases,) or (cases, outputs), got {y.shape}")
        self.single_ = y.ndim == 1
        self.n_channels_in_ = channels(cases)
        target = y.reshape(len(y), -1)
        rows = self._held_out(len(cases), None)
        answers = moments(target[rows[0]], self.standardise)
        scaling = Scaling(*moments(steps(chosen(cases, rows[0])), self.standardise), *answers)
        with np.errstate(over="ignore"):
            scaled = torch.from_numpy(((target - answers[0]) / answers[1]).astype(np.float32))
        check_single(scaled, "y")
        splits = splits_of(cases, scaled, rows, scaling)
        self.members_ = self._train(Tensors(splits, "regression", target.shape[1]), scaling)
        return self

    def check_loaded(self) -> None:
        """That what a file says fits together."""
        channels, outputs = self.members_[0].input_size, self.members_[0].output_size
        if self.n_channels_in_ != channels or self.single_ not in (False, outputs == 1):
            raise ValueError("the network has other sizes than the estimator")

    def predict(self, X: Any, *, max_depth: int | None = None) -> npt.NDArray[np.float64]:
        """(cases,), or (cases, outputs) where `y` was; by `max_depth` inner steps at most, in place of the
        network's own."""
        parts = []
        for outcomes, _ in self._outcomes(self._cases(X), max_depth):
            mean = torch.stack([each.prediction.double() for each in outcomes]).mean(0)
            parts.append(mean.cpu().numpy())
        found: npt.NDArray[np.float64] = np.concatenate(parts)
        return found[:, 0] if self.single_ else found
