"""What comes next in a series."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..data.dataset import check_single, moments
from ..models import Scaling
from .base import ElasticEstimator, splits_of, whole

STRATEGIES = ("recursive", "direct")
WINDOW = 24
Floats = npt.NDArray[np.float64]


class ElasticForecaster(ElasticEstimator):
    """Forecasts a series, of one channel or several, by a network of elastic depth that reads its last values.

    All settings but these are those of `ElasticEstimator`:

    Args:
        strategy: "recursive": the network predicts one step, which is then read as if it had been seen, and so on;
            "direct": it predicts `horizon` steps at once.
        horizon: steps that `predict` gives unless it is told otherwise; with "direct" the most it can give.
        window: values that are read for a forecast; two seasons, or 24, where None.
        season: steps after which the series resembles itself, as 12 for months. The network then learns how a value
            differs from the one a season before, and a trend is no trouble. 1: from the value just before.

    >>> ElasticForecaster(season=12).fit(series).predict(24)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        strategy: str = "recursive",
        horizon: int = 1,
        window: int | None = None,
        season: int | None = None,
        kind: str = "EIREHN",
        hidden_size: int = 32,
        num_layers: int = 1,
        max_depth: int = 5,
        bidirectional: bool = False,
        pooling: str = "last",
        dropout: float = 0.0,
        price: float = 0.0,
        early: float = 0.0,
        epochs: int = 100,
        batch_size: int = 16,
        learning_rate: float = 0.01,
        weight_decay: float = 0.01,
        standardise: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        patience: int = 10,
        members: int = 1,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        super().__init__(
            kind=kind,
            hidden_size=hidden_size,
            num_layers=num_layers,
            max_depth=max_depth,
            bidirectional=bidirectional,
            pooling=pooling,
            dropout=dropout,
            price=price,
            early=early,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            standardise=standardise,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            patience=patience,
            members=members,
            random_state=random_state,
            device=device,
            verbose=verbose,
        )
        self.strategy = strategy
        self.horizon = horizon
        self.window = window
        self.season = season

    def fit(self, series: Any, y: Any = None) -> Self:
        """Trains on `series`, (time,) or (time, channels), oldest first. `y` is not used."""
        from ..training.memory import Tensors

        if self.strategy not in STRATEGIES:
            raise ValueError(f"strategy must be one of {', '.join(STRATEGIES)}, got {self.strategy!r}")
        ahead = whole("horizon", self.horizon) if self.strategy == "direct" else 1
        season = 0 if self.season is None else whole("season", self.season)
        window = max(2 * season, WINDOW) if self.window is None else whole("window", self.window)
        values = _series(series)
        self.flat_ = (series.ndim if isinstance(series, Tensor) else np.ndim(series)) == 1
        self.n_channels_in_ = values.shape[1]
        changes = _differences(values, season)
        count = len(changes) - window - ahead + 1
        if count < 2:
            raise ValueError(
                f"series must have more than {season + window + ahead} steps for a window of {window}, a season of "
                f"{season} and {ahead} steps ahead, got {len(values)}"
            )
        rows = self._latest(count, window + ahead)
        scaling = self._scaling(changes[: len(rows[0]) + window + ahead - 1], ahead)  # all that is trained on
        cut = np.lib.stride_tricks.sliding_window_view
        x = cut(changes[: len(changes) - ahead], window, 0).swapaxes(1, 2)  # (N, window, C)
        target = cut(changes[window:], ahead, 0).swapaxes(1, 2).reshape(count, -1)  # (N, ahead · C)
        with np.errstate(over="ignore"):
            scaled = torch.from_numpy(((target - scaling.target_mean) / scaling.target_scale).astype(np.float32))
        check_single(scaled, "series")
        splits = splits_of(x, scaled, rows, scaling)
        self.members_ = self._train(Tensors(splits, "regression", target.shape[1]), scaling)
        self.window_, self.season_ = window, season
        self.history_ = values[-(window + season) :]
        return self

    def predict(self, horizon: int | None = None, *, history: Any = None, max_depth: int | None = None) -> Floats:
        """The `horizon` steps that follow the series fitted, or `history`, (horizon,) or (horizon, channels); by
        `max_depth` inner steps at most, in place of the network's own."""
        check_is_fitted(self)
        wanted = whole("horizon", self.horizon if horizon is None else horizon)
        reach = self.members_[0].output_size // self.n_channels_in_  # as it was fitted, whatever has been set since
        direct = reach > 1 or self.strategy == "direct"
        if direct and wanted > reach:
            raise ValueError(f"a direct forecaster of horizon={reach} cannot predict {wanted} steps")
        past = self._past(history)
        changes = _differences(past, self.season_)[-self.window_ :]  # (window, C)
        if direct:
            ahead = self._next(changes, max_depth)[:wanted]
        else:
            for _ in range(wanted):
                changes = np.concatenate([changes, self._next(changes[-self.window_ :], max_depth)])
            ahead = changes[self.window_ :]
        found = _undone(ahead, past, self.season_)
        return found[:, 0] if self.flat_ else found

    def depths(self, history: Any = None, *, max_depth: int | None = None) -> Floats:
        """Where the values that a forecast reads needed thought, (window,): see `ElasticEstimator.depths`."""
        check_is_fitted(self)
        changes = _differences(self._past(history), self.season_)[-self.window_ :]
        ((outcomes, _),) = self._outcomes(changes[None], max_depth)
        depth = torch.stack([each.depth.double().mean(0) for each in outcomes]).mean(0)
        return np.asarray(depth[0].cpu().numpy())

    def check_loaded(self) -> None:
        """That what a file says fits together."""
        channels, outputs = self.members_[0].input_size, self.members_[0].output_size
        ahead = self.horizon if self.strategy == "direct" else 1
        if (self.n_channels_in_, outputs) != (channels, ahead * channels):
            raise ValueError("the network has other sizes than the estimator")
        if self.history_.shape != (self.window_ + self.season_, channels) or self.history_.dtype != np.float64:
            raise ValueError("history_ does not fit window_ and season_")
        if not isinstance(self.flat_, bool) or not np.isfinite(self.history_).all():
            raise ValueError("history_ or flat_ has no meaning")

    def _scaling(self, changes: Floats, ahead: int) -> Scaling:
        channels = changes.shape[1]
        mean, scale = moments(changes) if self.standardise else ((0.0,) * channels, (1.0,) * channels)
        return Scaling(mean, scale, mean * ahead, scale * ahead)

    def _latest(self, count: int, overlap: int) -> tuple[Any, Any]:
        """To choose the epoch by, the last windows, none of which shares a value with one to train on."""
        if not self.early_stopping:
            return np.arange(count), np.arange(0)
        held = max(1, round(self._share() * count))
        if count - held - overlap < 1:
            raise ValueError("series is too short for early_stopping: no windows are left to train on")
        return np.arange(count - held - overlap), np.arange(count - held, count)

    def _past(self, history: Any) -> Floats:
        if history is None:
            return np.asarray(self.history_)
        values = _series(history)
        if values.shape[1] != self.n_channels_in_:
            raise ValueError(f"history must have {self.n_channels_in_} channels, got {values.shape[1]}")
        if len(values) < self.window_ + self.season_:
            raise ValueError(f"history must have at least {self.window_ + self.season_} steps, got {len(values)}")
        return values[-(self.window_ + self.season_) :]

    def _next(self, changes: Floats, max_depth: int | None) -> Floats:
        """What follows a window, (ahead, C)."""
        ((outcomes, _),) = self._outcomes(changes[None], max_depth)
        mean = torch.stack([each.prediction.double() for each in outcomes]).mean(0)  # (1, ahead · C)
        return mean.cpu().numpy().reshape(-1, changes.shape[1])


def _series(series: Any) -> Floats:
    try:
        series = series.double().numpy(force=True) if isinstance(series, Tensor) else series
        values = np.array(series, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"series must be numbers, (time,) or (time, channels): {error}") from None
    if values.ndim not in (1, 2) or 0 in values.shape:
        raise ValueError(f"series must be (time,) or (time, channels), got {values.shape}")
    values = values.reshape(len(values), -1)
    for step, channel in np.argwhere(~np.isfinite(values))[:1]:
        raise ValueError(f"series contains NaN or infinity: row {step}, column {channel}; fill it in before")
    return values


def _differences(values: Floats, season: int) -> Floats:
    return values[season:] - values[:-season] if season else values


def _undone(changes: Floats, past: Floats, season: int) -> Floats:
    """Values from their differences to a season before, the first of which are `past`."""
    if not season:
        return changes
    values = list(past[-season:])
    for change in changes:
        values.append(values[-season] + change)
    return np.array(values[season:])
