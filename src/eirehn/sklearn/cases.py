"""What `fit` and `predict` are given, as sequences of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data
from torch import Tensor

from ..data.dataset import padded

Floats = npt.NDArray[Any]
Cases = Floats | list[Floats]  # (N, T, X), or N of (T, X), each T its own


def read_cases(estimator: BaseEstimator, X: Any, *, reset: bool) -> Cases:
    """Sequences from an array (cases, time, channels), a table (cases, time) of one channel, or a list of sequences
    (time, channels) or (time,) of any lengths."""
    cases: Cases
    if isinstance(X, Tensor):
        X = X.float() if X.dtype == torch.bfloat16 else X  # which NumPy does not know
        X = X.numpy(force=True)
    for name in ("n_features_in_", "feature_names_in_") if reset else ():  # of a table that was fitted before
        vars(estimator).pop(name, None)
    if _is_ragged(X):
        cases = [_sequence(each, index) for index, each in enumerate(X)]
        channels = {each.shape[1] for each in cases}
        if len(channels) > 1:
            raise ValueError(f"X: all sequences must have as many channels, got {sorted(channels)}")
    elif isinstance(X, (np.ndarray, list, tuple)) and np.ndim(X) == 3:
        if isinstance(X, np.ndarray) and X.dtype.kind == "f":  # whatever else is wrong, scikit-learn says
            for row, step, channel in np.argwhere(~np.isfinite(X))[:1]:
                raise ValueError(f"X contains NaN or infinity: sequence {row}, step {step}, column {channel}")
        if 0 in np.shape(X):
            raise ValueError(f"X: there must be cases, steps and channels, got {np.shape(X)}")
        cases = check_array(X, allow_nd=True, dtype=(np.float64, np.float32), input_name="X", estimator=estimator)
    else:
        table = validate_data(estimator, X, reset=reset, dtype=(np.float64, np.float32))
        cases = table[:, :, None]
    return cases


def channels(cases: Cases) -> int:
    return int(cases[0].shape[-1])


def batches(cases: Cases, size: int) -> Iterator[tuple[Tensor, Tensor | None]]:
    """`size` sequences at a time, (B, T, X), with their lengths where these differ."""
    for first in range(0, len(cases), size):
        part = cases[first : first + size]
        if isinstance(part, list):
            yield padded(part, np.float64)
        else:
            yield torch.from_numpy(np.array(part, np.float64)), None


def _is_ragged(X: Any) -> bool:
    """Whether X is a collection of sequences that are arrays of their own, and not one array."""
    if isinstance(X, np.ndarray):
        return X.dtype == object and X.ndim == 1 and len(X) > 0 and np.ndim(X[0]) > 0
    if not isinstance(X, (list, tuple)) or not len(X):
        return False
    if all(isinstance(each, np.ndarray) and each.ndim == 2 for each in X):
        return True
    try:
        np.asarray(X)
    except ValueError:  # of unequal lengths
        return all(np.ndim(_first(each)) < 2 for each in X)
    return False


def _first(each: Any) -> Any:
    return next(iter(each), 0.0) if hasattr(each, "__iter__") else 0.0


def _sequence(each: Any, index: int) -> Floats:
    try:
        array = np.asarray(each, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"X: sequence {index} must be numbers, (time, channels) or (time,): {error}") from None
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"X: sequence {index} must be (time, channels) or (time,), got {np.shape(each)}")
    for step, channel in np.argwhere(~np.isfinite(array))[:1]:
        raise ValueError(f"X contains NaN or infinity: sequence {index}, step {step}, column {channel}")
    return array
