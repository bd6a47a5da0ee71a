"""What classifier and regressor share: parameters, inputs, training, files."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, validate_data
from torch import Tensor

from .._internal.checks import finite, one_of, positive_int
from ..data.dataset import Splits, standardised
from ..data.table import hold_out
from ..models import ELASTIC, FIXED, Outcome, SequenceModel, SequenceNetwork
from ..models.inputs import as_array, check_finite, is_ragged, sequence
from ..models.sequence import outcomes
from ..training.config import DEPTH_PENALTIES, PARTS, Hardware, Recipe

if TYPE_CHECKING:
    from ..models.inputs import Cases

ACCELERATORS = {"auto": "auto", "cpu": "cpu", "cuda": "gpu", "gpu": "gpu"}


@dataclass(kw_only=True, eq=False, repr=False)
class ElasticEstimator(BaseEstimator):
    """Base class of `ElasticClassifier` and `ElasticRegressor`, which document its parameters."""

    kind: str = "EIREHN"
    hidden_size: int = 32
    num_layers: int = 1
    max_depth: int = 5
    bidirectional: bool = False
    pooling: str = "mean"
    dropout: float = 0.0
    depth_penalty: float | None = None
    early: float = 0.0
    epochs: int = 100
    batch_size: int = 16
    learning_rate: float = 0.01
    weight_decay: float = 0.01
    standardise: bool = True
    early_stopping: bool = False
    validation_fraction: float = 0.1
    patience: int = 10
    members: int = 1
    random_state: Any = None
    device: str = "auto"
    verbose: bool = False

    def depths(self, X: Any, *, max_depth: int | None = None) -> Any:
        """Returns the number of inner steps taken at each time step, the mean over layers, directions and members.

        Args:
            X: sequences, as for `fit`.
            max_depth: most inner steps of a time step. Default: the network's own.

        Returns:
            An array `(N, T)`, or a list of N arrays `(T,)` for a list of sequences.

        Examples:
            >>> from eirehn.sklearn import ElasticClassifier
            >>> X, y = np.random.randn(20, 12, 3), np.arange(20) % 2
            >>> ElasticClassifier(hidden_size=4, epochs=1).fit(X, y).depths(X).shape
            (20, 12)
        """
        cases = self._cases(X)
        found: list[npt.NDArray[np.float64]] = []
        for found_by, lengths in self._outcomes(cases, max_depth):
            depth = torch.stack([each.depth.double().mean(0) for each in found_by]).mean(0).cpu().numpy()  # (B, T)
            ends = [depth.shape[1]] * len(depth) if lengths is None else lengths.tolist()
            found += [row[:end] for row, end in zip(depth, ends, strict=True)]
        return found if isinstance(cases, list) else np.stack(found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the fitted estimator to one file, in safetensors' format.

        Args:
            path: the file, which is replaced if it exists.

        Raises:
            NotFittedError: if `fit` was not called before.

        Examples:
            >>> from eirehn.sklearn import ElasticClassifier
            >>> X, y = np.random.randn(20, 12, 3), np.arange(20) % 2
            >>> ElasticClassifier(hidden_size=4, epochs=1).fit(X, y).save("model.safetensors")
        """
        from .saving import write

        check_is_fitted(self)
        write(self, Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Loads an estimator that `save` wrote. The file is not pickled: loading it does not run code from it.

        Args:
            path: the file.

        Returns:
            The fitted estimator.

        Raises:
            RunError: if it is not a file of this estimator, or is damaged.

        Examples:
            >>> from eirehn.sklearn import ElasticRegressor
            >>> X = np.random.randn(20, 12, 3)
            >>> model = ElasticRegressor(hidden_size=4, epochs=1).fit(X, X.sum((1, 2)))
            >>> model.save("model.safetensors")
            >>> loaded = ElasticRegressor.load("model.safetensors")
            >>> (loaded.predict(X) == model.predict(X)).all()
            np.True_
        """
        from .saving import read

        estimator: Self = read(cls, Path(path))
        return estimator

    def _network(self) -> SequenceNetwork:
        return SequenceNetwork(
            self.kind,
            hidden_size=whole("hidden_size", self.hidden_size),
            num_layers=whole("num_layers", self.num_layers),
            max_depth=whole("max_depth", self.max_depth),
            bidirectional=bool(self.bidirectional),
            pooling=self.pooling,
            dropout=float(self.dropout) if self.num_layers > 1 else 0.0,
            hidden_dropout=float(self.dropout) if self.kind in FIXED + ELASTIC else 0.0,
        )

    def _depth_penalty(self, task: str) -> float:
        if self.depth_penalty is not None:
            return float(self.depth_penalty)
        return DEPTH_PENALTIES[task] if self.kind in (*ELASTIC, "ACT") else 0.0

    def _recipe(self, data: Any) -> Recipe:
        one_of("device", self.device, ACCELERATORS)
        first = check_random_state(self.random_state).randint(2**31 - 1)
        return Recipe(
            name=type(self).__name__,
            network=self._network(),
            data=data,
            optimisation=PARTS[data.task].optimisation(
                epochs=whole("epochs", self.epochs),
                batch_size=whole("batch_size", self.batch_size),
                optimizer="adamw",
                learning_rate=float(self.learning_rate),
                schedule="cosine",
                warmup=0.05,
                weight_decay=float(self.weight_decay),
                clip=1.0,
                depth_penalty=self._depth_penalty(data.task),
                early=float(self.early),
            ),
            seeds=tuple(range(int(first), int(first) + whole("members", self.members))),
            hardware=Hardware(accelerator=ACCELERATORS[self.device]),
        )

    def _train(
        self,
        cases: Cases,
        target: npt.NDArray[Any],
        rows: Sequence[npt.NDArray[np.int64]],
        outputs: int,
        weights: list[float] | None = None,
    ) -> None:
        """Trains on sequences with classes (N,) or numbers (N, O) as targets; `rows` are the indices of the
        training and validation data."""
        from ..training.in_memory import Tensors, train_in_memory

        self.n_channels_in_ = int(cases[0].shape[-1])
        (train, validation), scaling = standardised(
            cases, target, rows, self.standardise, ragged=isinstance(cases, list), names=("X", "y")
        )
        task = "classification" if target.ndim == 1 else "regression"
        data = Tensors(Splits(train, validation, validation), task, outputs, weights=weights)
        with _display(bool(self.verbose)) as tell:
            patience = whole("patience", self.patience) if self.early_stopping else None
            self.members_ = train_in_memory(self._recipe(data), patience=patience, tell=tell)
        for member in self.members_:
            member.scaling = scaling

    def _held_out(self, count: int, classes: npt.NDArray[np.int64] | None) -> tuple[Any, Any]:
        """Indices of the training data, and of those held out for validation."""
        everything = np.arange(count)
        if not self.early_stopping:
            return everything, everything[:0]
        share = finite("validation_fraction", self.validation_fraction)
        if not 0 < share < 1:
            raise ValueError(f"validation_fraction must be above 0 and below 1, got {share!r}")
        random = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        out, rest = hold_out(everything, share, classes, None, random)
        if not len(out) or not len(rest):
            raise ValueError(f"early_stopping needs sequences to hold out, got n_samples={count}")
        return rest, out

    def _to_fit(self, X: Any, y: Any) -> Cases:
        """The sequences, if there are targets for them."""
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None"
            )
        return _read(self, X, reset=True)

    def _cases(self, X: Any) -> Cases:
        check_is_fitted(self)
        cases = _read(self, X, reset=False)
        if (width := cases[0].shape[-1]) != self.n_channels_in_:
            raise ValueError(
                f"X has {width} channels, but {type(self).__name__} is expecting {self.n_channels_in_} channels "
                "as input"
            )
        return cases

    def _outcomes(
        self, cases: Cases, max_depth: int | None = None
    ) -> Iterator[tuple[list[Outcome], Tensor | None]]:
        """The outcomes of each ensemble member for the sequences, batch by batch, with at most `max_depth` inner
        steps."""
        if max_depth is not None:
            max_depth = whole("max_depth", max_depth)
        return outcomes(self._placed(), cases, max_depth, name="X")

    def _mean(self, X: Any, max_depth: int | None, change: Callable[[Tensor], Tensor]) -> npt.NDArray[np.float64]:
        """The mean over the ensemble members of their predictions with `change` applied, (N, outputs)."""
        parts = []
        for found, _ in self._outcomes(self._cases(X), max_depth):
            each = torch.stack([change(outcome.prediction.double()) for outcome in found])  # (M, B, O)
            parts.append(each.mean(0).cpu().numpy())
        return np.concatenate(parts)

    def _placed(self) -> Sequence[SequenceModel]:
        on_gpu = self.device in ("cuda", "gpu") or (self.device == "auto" and torch.cuda.is_available())
        return [copy.deepcopy(member).to("cuda") for member in self.members_] if on_gpu else self.members_


def _read(estimator: BaseEstimator, X: Any, *, reset: bool) -> Cases:
    """Sequences from an array (N, T, channels), a table (N, T) of one channel, or a list of N sequences (T,
    channels) or (T,) of any lengths."""
    cases: Cases
    X = as_array(X)
    for name in ("n_features_in_", "feature_names_in_") if reset else ():  # of a table in an earlier fit
        vars(estimator).pop(name, None)
    if is_ragged(X):
        cases = [sequence(each, index, "X") for index, each in enumerate(X)]
        widths = {each.shape[1] for each in cases}
        if len(widths) > 1:
            raise ValueError(f"X: all sequences must have as many channels, got {sorted(widths)}")
    elif isinstance(X, (np.ndarray, list, tuple)) and np.ndim(X) == 3:
        if isinstance(X, np.ndarray) and X.dtype.kind == "f":  # scikit-learn reports all other errors
            check_finite(X, "X")
        if 0 in np.shape(X):
            raise ValueError(f"X: there must be cases, steps and channels, got {np.shape(X)}")
        cases = check_array(X, allow_nd=True, dtype=(np.float64, np.float32), input_name="X", estimator=estimator)
    else:
        table = validate_data(estimator, X, reset=reset, dtype=(np.float64, np.float32))
        cases = table[:, :, None]
    return cases


def whole(name: str, value: Any) -> int:
    """A positive integer, which may be NumPy's, as parameter searches give."""
    return positive_int(name, int(value) if isinstance(value, np.integer) else value)


def _display(verbose: bool) -> AbstractContextManager[Callable[..., None] | None]:
    if not verbose:
        return nullcontext()
    from rich.console import Console

    from ..training.display import Display

    return Display(Console(stderr=True))
