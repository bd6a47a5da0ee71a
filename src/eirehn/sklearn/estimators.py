"""The estimators: classification and regression of sequences."""

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
    """Classifier of sequences: a recurrent network with elastic depth, as a scikit-learn estimator.

    Args:
        kind: `"EIREHN"`, `"SREHN"`, `"ACT"`, `"RHN"`, `"SRHN"`, `"LSTM"`, `"GRU"` or `"RNN"`. Default: `"EIREHN"`.
        hidden_size: units of a layer. Default: 32.
        num_layers: layers stacked on each other. Default: 1.
        max_depth: most inner steps of a time step; of RHN and SRHN their number. Default: 5.
        bidirectional: whether to read each sequence in both directions. Default: `False`.
        pooling: what the prediction is made from: `"mean"`, the mean of the outputs over time, or `"last"`, the
            last output. Default: `"mean"`.
        dropout: dropout between layers, and, of the highway networks, on the state inside the matrix products, with
            one mask per sequence. Default: 0.2.
        depth_penalty: cost of an inner step, as a share of the loss: the larger, the fewer inner steps. Default:
            1, and 0 for layers that do not choose their depth.
        early: share of the training steps that stop the network after fewer inner steps than `max_depth`, so that
            predictions with a smaller `max_depth` are accurate, too. Default: 0.
        epochs: passes over the training data. Default: 100.
        batch_size: sequences of a training step. Default: 16.
        learning_rate: the largest learning rate: it rises over the first twentieth of the steps and falls to zero
            along a cosine. Default: 0.01.
        weight_decay: decoupled weight decay, as in AdamW. Default: 0.01.
        standardise: whether to shift and scale each channel to mean 0 and standard deviation 1 over the
            training data. Default: `True`.
        early_stopping: whether to hold out sequences for validation, keep the best epoch on them, and stop after
            `patience` epochs without a better one. Default: `False`.
        validation_fraction: share of the sequences held out. Default: 0.1.
        patience: epochs without improvement before training stops. Default: 10.
        members: networks trained together from different initialisations, whose predictions are averaged. Default:
            1.
        random_state: an integer makes `fit` reproducible, to the bit on one machine. Default: `None`.
        device: `"cpu"`, `"cuda"`, or `"auto"`, a GPU if there is one. Default: `"auto"`.
        verbose: whether to show the progress of training. Default: `False`.
        class_weight: weight of the errors on each class: a mapping from class to weight; `"balanced"`, inversely
            proportional to its number of sequences; or `None`, equal. Default: `None`.

    Attributes:
        classes_ (np.ndarray): the classes, sorted, `(classes,)`.
        n_channels_in_ (int): channels of the training data.

    Shape:
        N is the number of sequences.

        - X: an array `(N, T, channels)`; a table `(N, T)` of one channel; or a list of N sequences `(T, channels)`
          or `(T,)` of any lengths.
        - y: `(N,)`.

    Examples:
        >>> from eirehn.sklearn import ElasticClassifier
        >>> y = np.arange(40) % 2
        >>> X = np.random.default_rng(0).normal(size=(40, 12, 3)) + y[:, None, None]
        >>> model = ElasticClassifier(hidden_size=8, epochs=10, random_state=0).fit(X, y)
        >>> model.predict_proba(X).shape
        (40, 2)
        >>> model.score(X, y) > 0.9
        True
    """

    dropout: float = 0.2
    class_weight: Mapping[Any, float] | str | None = None

    def fit(self, X: Any, y: Any) -> Self:
        """Trains the classifier.

        Args:
            X: sequences: an array `(N, T, channels)`, a table `(N, T)`, or a list of N sequences `(T, channels)` or
                `(T,)`.
            y: the class of each, `(N,)`: numbers or strings.

        Returns:
            The estimator itself.

        Raises:
            ValueError: if the data cannot be trained on, or training diverged.

        Examples:
            >>> from eirehn.sklearn import ElasticClassifier
            >>> X = [np.random.randn(length, 3) for length in (12, 7, 9, 12)]
            >>> ElasticClassifier(hidden_size=4, epochs=1).fit(X, ["walk", "run", "run", "walk"]).classes_
            array(['run', 'walk'], dtype='<U4')
        """
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
        """The weight of each class, scaled such that the mean over `y` is 1."""
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
        """Raises an error if the content of a file is inconsistent."""
        channels, outputs = self.members_[0].input_size, self.members_[0].output_size
        if self.n_channels_in_ != channels or self.classes_.shape != (outputs,):
            raise ValueError("the network has other sizes than the estimator")

    def predict_proba(self, X: Any, *, max_depth: int | None = None) -> npt.NDArray[np.float64]:
        """Predicts the probability of each class.

        Args:
            X: sequences, as for `fit`.
            max_depth: most inner steps of a time step. Default: the network's own.

        Returns:
            Probabilities `(N, classes)`, in the order of `classes_`.

        Examples:
            >>> from eirehn.sklearn import ElasticClassifier
            >>> X, y = np.random.randn(20, 12, 3), np.arange(20) % 2
            >>> ElasticClassifier(hidden_size=4, epochs=1).fit(X, y).predict_proba(X, max_depth=2).shape
            (20, 2)
        """
        return self._mean(X, max_depth, lambda prediction: prediction.softmax(-1))

    def predict(self, X: Any, *, max_depth: int | None = None) -> npt.NDArray[Any]:
        """Predicts the most likely class of each sequence.

        Args:
            X: sequences, as for `fit`.
            max_depth: most inner steps of a time step. Default: the network's own.

        Returns:
            Classes `(N,)`.

        Examples:
            >>> from eirehn.sklearn import ElasticClassifier
            >>> X, y = np.random.randn(20, 12, 3), np.arange(20) % 2
            >>> ElasticClassifier(hidden_size=4, epochs=1).fit(X, y).predict(X).shape
            (20,)
        """
        likely = self.predict_proba(X, max_depth=max_depth).argmax(1)
        return np.asarray(self.classes_[likely])


class ElasticRegressor(RegressorMixin, ElasticEstimator):
    """Regressor of sequences: a recurrent network with elastic depth, as a scikit-learn estimator.

    Args:
        kind: `"EIREHN"`, `"SREHN"`, `"ACT"`, `"RHN"`, `"SRHN"`, `"LSTM"`, `"GRU"` or `"RNN"`. Default: `"EIREHN"`.
        hidden_size: units of a layer. Default: 32.
        num_layers: layers stacked on each other. Default: 1.
        max_depth: most inner steps of a time step; of RHN and SRHN their number. Default: 5.
        bidirectional: whether to read each sequence in both directions. Default: `False`.
        pooling: what the prediction is made from: `"mean"`, the mean of the outputs over time, or `"last"`, the
            last output. Default: `"mean"`.
        dropout: dropout between layers, and, of the highway networks, on the state inside the matrix products, with
            one mask per sequence. Default: 0.
        depth_penalty: cost of an inner step, as a share of the loss: the larger, the fewer inner steps. Default:
            0.03, and 0 for layers that do not choose their depth.
        early: share of the training steps that stop the network after fewer inner steps than `max_depth`, so that
            predictions with a smaller `max_depth` are accurate, too. Default: 0.
        epochs: passes over the training data. Default: 100.
        batch_size: sequences of a training step. Default: 16.
        learning_rate: the largest learning rate: it rises over the first twentieth of the steps and falls to zero
            along a cosine. Default: 0.01.
        weight_decay: decoupled weight decay, as in AdamW. Default: 0.01.
        standardise: whether to shift and scale each channel and target to mean 0 and standard deviation 1 over the
            training data. Default: `True`.
        early_stopping: whether to hold out sequences for validation, keep the best epoch on them, and stop after
            `patience` epochs without a better one. Default: `False`.
        validation_fraction: share of the sequences held out. Default: 0.1.
        patience: epochs without improvement before training stops. Default: 10.
        members: networks trained together from different initialisations, whose predictions are averaged. Default:
            1.
        random_state: an integer makes `fit` reproducible, to the bit on one machine. Default: `None`.
        device: `"cpu"`, `"cuda"`, or `"auto"`, a GPU if there is one. Default: `"auto"`.
        verbose: whether to show the progress of training. Default: `False`.

    Attributes:
        n_channels_in_ (int): channels of the training data.

    Shape:
        N is the number of sequences.

        - X: an array `(N, T, channels)`; a table `(N, T)` of one channel; or a list of N sequences `(T, channels)`
          or `(T,)` of any lengths.
        - y: `(N,)`, or `(N, outputs)`.

    Examples:
        >>> from eirehn.sklearn import ElasticRegressor
        >>> y = np.linspace(-2, 2, 40)
        >>> X = np.random.default_rng(0).normal(size=(40, 12, 3)) + y[:, None, None]
        >>> model = ElasticRegressor(hidden_size=8, epochs=10, random_state=0).fit(X, y)
        >>> model.predict(X).shape
        (40,)
        >>> model.score(X, y) > 0.9
        True
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Trains the regressor.

        Args:
            X: sequences: an array `(N, T, channels)`, a table `(N, T)`, or a list of N sequences `(T, channels)` or
                `(T,)`.
            y: the numbers to predict, `(N,)` or `(N, outputs)`.

        Returns:
            The estimator itself.

        Raises:
            ValueError: if the data cannot be trained on, or training diverged.

        Examples:
            >>> from eirehn.sklearn import ElasticRegressor
            >>> X, y = np.random.randn(20, 12, 3), np.random.randn(20, 2)
            >>> ElasticRegressor(hidden_size=4, epochs=1).fit(X, y).n_channels_in_
            3
        """
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
        """Raises an error if the content of a file is inconsistent."""
        channels, outputs = self.members_[0].input_size, self.members_[0].output_size
        if self.n_channels_in_ != channels or self.single_ not in (False, outputs == 1):
            raise ValueError("the network has other sizes than the estimator")

    def predict(self, X: Any, *, max_depth: int | None = None) -> npt.NDArray[np.float64]:
        """Predicts the numbers of each sequence.

        Args:
            X: sequences, as for `fit`.
            max_depth: most inner steps of a time step. Default: the network's own.

        Returns:
            `(N,)` or `(N, outputs)`, as the `y` of `fit`.

        Examples:
            >>> from eirehn.sklearn import ElasticRegressor
            >>> X, y = np.random.randn(20, 12, 3), np.random.randn(20, 2)
            >>> ElasticRegressor(hidden_size=4, epochs=1).fit(X, y).predict(X, max_depth=2).shape
            (20, 2)
        """
        found = self._mean(X, max_depth, lambda prediction: prediction)
        return found[:, 0] if self.single_ else found
