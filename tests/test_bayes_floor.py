"""The Bayes floor against plain simulation, and against the constant that reports show."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eirehn.data.synthetic import BAYES_FLOOR, NOISE_STD, SyntheticData, bayes_floor, synthetic


@pytest.fixture
def floor(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return importlib.import_module("bayes_floor")


def test_known_for_the_noise_of_the_recipes_alone() -> None:
    assert bayes_floor(SyntheticData(train=5, turn=True)) == BAYES_FLOOR
    assert bayes_floor(SyntheticData(noise_std=0.1)) is None


@pytest.mark.slow
def test_the_constant_is_what_the_script_computes(floor: Any) -> None:
    found = floor.bayes_floor(floor.Task(noise_std=NOISE_STD))
    assert found.mean == pytest.approx(BAYES_FLOOR, rel=1e-9)
    assert found.per_step.shape == (20,)


def walk(task: Any, h: np.ndarray, depth: int, random: np.random.Generator) -> np.ndarray:
    for _ in range(depth):
        h = np.tanh(h @ task.rotation.T + task.noise_std * random.standard_normal(h.shape))
    return h


@pytest.mark.parametrize("settings", [(10, math.pi / 6, 0.056), (3, 0.9, 0.3), (1, -0.4, 0.2)])
def test_moments_of_the_next_point(floor: Any, settings: tuple[int, float, float]) -> None:
    task, random, n = floor.Task(*settings), np.random.default_rng(0), 100_000
    for depth in {1, min(4, task.deepest), task.deepest}:
        h = random.uniform(-1, 1, 2)
        a, b = walk(task, np.tile(h, (n, 1)), depth, random).T
        x = depth / task.max_depth * np.tanh(np.stack([a + b, a - b], 1))
        sample = np.column_stack([x, (x**2).sum(1)])
        found = floor.moments(task, h[None], np.array([depth]))[0]
        assert (np.abs(found - sample.mean(0)) < 4.5 * sample.std(0) / math.sqrt(n)).all()


def test_without_noise_next_to_nothing_is_unknown(floor: Any) -> None:
    found = floor.bayes_floor(floor.Task(noise_std=0.0), count=2_000)
    assert found.informed < 1e-13
    assert found.mean < 1e-6
    with pytest.raises(ValueError, match=r"noise_std must be 0 or at least 0\.03"):
        floor.bayes_floor(floor.Task(noise_std=0.01))


def test_a_single_depth_leaves_nothing_hidden(floor: Any) -> None:
    task, data = floor.Task(max_depth=1), synthetic(500, 5, max_depth=1)
    x = data.x.astype(np.float64)
    known = floor.informed_moments(task, x, data.depth)[..., :2]
    np.testing.assert_allclose(floor.bayes_predictions(task, x), known, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_the_expected_error_is_the_error_made(floor: Any) -> None:
    """The floor is a mean of conditional expectations; the plain mean over fresh data is the same."""
    data = synthetic(4_000, seed=77)
    errors = ((data.x[:, 1:] - floor.bayes_predictions(floor.Task(), data.x.astype(np.float64))) ** 2).mean((1, 2))
    assert errors.mean() == pytest.approx(BAYES_FLOOR, abs=3.5 * errors.std() / math.sqrt(len(errors)))


def test_the_script(floor: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["bayes_floor.py", "--count", "500"])
    floor.main()
    said = capsys.readouterr().out
    assert float(said.split()[1]) == pytest.approx(BAYES_FLOOR, rel=0.1)
