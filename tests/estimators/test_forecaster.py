"""Forecasts, against the network called by hand and the seasonal-naive forecast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.toys import QUICK
from sklearn.base import clone

from eirehn.sklearn import ElasticForecaster


def waves(count: int = 80, channels: int = 1) -> np.ndarray:
    steps = np.arange(count)[:, None]
    return 5.0 + 0.1 * steps + np.sin(steps * (0.7 + np.arange(channels)))


def ahead(model: ElasticForecaster, window: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model.members_[0](torch.from_numpy(window)[None])[0].double().numpy()


@pytest.mark.parametrize("season", [None, 1, 4])
def test_recursive_by_hand(season: int | None) -> None:
    series = waves(channels=2)
    model = ElasticForecaster(**QUICK, window=6, season=season).fit(series)
    extended = list(series)
    for _ in range(7):
        past = np.array(extended)
        changes = past if season is None else past[season:] - past[:-season]
        step = ahead(model, changes[-6:])
        extended.append(step if season is None else step + extended[-season])
    np.testing.assert_allclose(model.predict(7), extended[80:], rtol=1e-6)
    np.testing.assert_allclose(model.predict(7, history=series[:-10])[0], model.predict(1, history=series[:70])[0])


@pytest.mark.parametrize("strategy", ["recursive", "direct"])
def test_forecasts_by_fewer_inner_steps(strategy: str) -> None:
    series = waves(channels=2)
    model = ElasticForecaster(**QUICK, window=6, strategy=strategy, horizon=3, early=0.25).fit(series)
    np.testing.assert_array_equal(model.predict(3, max_depth=2), model.predict(3))
    assert model.depths(max_depth=1).max() == 1
    stopped = model.predict(3, max_depth=1)
    assert not np.allclose(stopped, model.predict(3), rtol=1e-6)
    model.members_[0].body.max_depth = 1
    for cell in model.members_[0].body.cells:
        cell.max_depth = 1
    np.testing.assert_allclose(model.predict(3), stopped, rtol=1e-6)


@pytest.mark.parametrize("season", [None, 3])
def test_direct_by_hand(season: int | None) -> None:
    series = waves(channels=2)
    model = ElasticForecaster(**QUICK, strategy="direct", horizon=5, window=6, season=season).fit(series)
    changes = series if season is None else series[season:] - series[:-season]
    expected = ahead(model, changes[-6:]).reshape(5, 2)
    extended = list(series)
    for step in expected:
        extended.append(step if season is None else step + extended[-season])
    np.testing.assert_allclose(model.predict(), extended[80:], rtol=1e-6)
    np.testing.assert_allclose(model.predict(2), extended[80:82], rtol=1e-6)
    with pytest.raises(ValueError, match="direct forecaster of horizon=5 cannot predict 6"):
        model.predict(6)
    five = model.predict(5)
    np.testing.assert_array_equal(model.set_params(strategy="recursive", horizon=3).predict(5), five)
    with pytest.raises(ValueError, match="direct forecaster of horizon=5 cannot predict 6"):
        model.predict(6)


def test_what_is_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows and what follows them, scaled; with early stopping none of the two parts shares a value."""
    seen: list[Any] = []
    train = ElasticForecaster._train
    monkeypatch.setattr(
        ElasticForecaster, "_train", lambda self, data, scaling: seen.append(data) or train(self, data, scaling)
    )
    series = np.arange(40.0)
    settings = {**QUICK, "standardise": False, "window": 4, "epochs": 1}
    ElasticForecaster(**settings, strategy="direct", horizon=3).fit(series)
    split = seen[0].splits.train
    assert split.x.shape == (34, 4, 1)
    np.testing.assert_array_equal(split.x[5, :, 0], [5, 6, 7, 8])
    np.testing.assert_array_equal(split.target[5], [9, 10, 11])
    np.testing.assert_array_equal(split.target[-1], [37, 38, 39])
    ElasticForecaster(**settings, early_stopping=True).fit(series)
    train_part, held = seen[1].splits.train, seen[1].splits.validation
    assert train_part.target.max() < held.x.min()
    assert held.target.max() == 39
    squares = np.arange(40.0) ** 2
    model = ElasticForecaster(**{**settings, "standardise": True}, early_stopping=True).fit(squares)
    known = squares[: len(seen[2].splits.train.x) + 4]
    np.testing.assert_allclose(model.members_[0].scaling.mean, [known.mean()], rtol=1e-12)
    np.testing.assert_allclose(model.members_[0].scaling.scale, [known.std()], rtol=1e-12)


def test_it_learns() -> None:
    """A wave it has seen often."""
    series = np.sin(np.arange(200) * 0.5)
    model = ElasticForecaster(hidden_size=12, max_depth=2, epochs=15, window=12, random_state=0, device="cpu")
    found = model.fit(series[:180]).predict(10)
    assert found.shape == (10,)
    assert np.abs(found - series[180:190]).mean() < 0.15
    assert model.depths().shape == (12,)


def test_wrong_use() -> None:
    model = ElasticForecaster(**QUICK, window=6)
    for series, message in (
        (np.arange(7.0), "series must have more than 7 steps"),
        ([1.0, np.nan, 3.0], "row 1, column 0"),
        (np.zeros((2, 2, 2)), "must be"),
        (["a"], "must be numbers"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(series)
    with pytest.raises(ValueError, match="strategy must be one of"):
        clone(model).set_params(strategy="guess").fit(waves())
    with pytest.raises(ValueError, match="validation_fraction must be"):
        clone(model).set_params(early_stopping=True, validation_fraction=-1.0).fit(waves())
    with pytest.raises(ValueError, match="too large to standardise"):
        clone(model).fit(waves() * 1e300)
    with pytest.raises(ValueError, match="series has values that are too large"):
        clone(model).set_params(standardise=False).fit(waves() * 1e39)
    model.fit(waves())
    with pytest.raises(ValueError, match="history must have 1 channels"):
        model.predict(2, history=waves(channels=2))
    with pytest.raises(ValueError, match="at least 6 steps"):
        model.predict(2, history=waves(5))
    with pytest.raises(ValueError, match="horizon must be"):
        model.predict(0)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["recursive", "direct"])
def test_ahead_of_the_seasonal_naive_forecast(strategy: str) -> None:
    """CO₂ over Mauna Loa by months: a year ahead from every half year of the last ten, which nothing was chosen on.

    The seasonal-naive forecast says what the same month of the year before was.
    """
    co2 = pytest.importorskip("statsmodels.datasets").co2.load_pandas().data["co2"]
    series = co2.resample("MS").mean().interpolate().to_numpy()
    known = len(series) - 120
    settings: dict[str, Any] = {"season": 12, "horizon": 12, "epochs": 10, "random_state": 0, "device": "cpu"}
    model = ElasticForecaster(strategy=strategy, **settings).fit(series[:known])
    ours, naive = [], []
    for origin in range(known, len(series) - 11, 6):
        truth = series[origin : origin + 12]
        ours.append(np.abs(model.predict(12, history=series[:origin]) - truth).mean())
        naive.append(np.abs(series[origin - 12 : origin] - truth).mean())
    assert np.mean(ours) < 0.5 * np.mean(naive)
