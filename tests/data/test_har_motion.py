"""Windows turned and scaled, against matrices written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from eirehn.data.har import Har, HarData, Windows
from eirehn.data.har_motion import moved, rotations


def exponentials(angles: np.ndarray) -> np.ndarray:
    """Of the matrices whose product with v is angle × v."""
    K = np.stack([np.cross(angles, np.eye(3)[i]) for i in range(3)], -1)
    return torch.linalg.matrix_exp(torch.from_numpy(K)).numpy()


def test_rotations_are_exponentials():
    angles = np.random.default_rng(0).normal(0, 2, (20, 3))
    angles[0], angles[1] = 0, [0, 1e-9, 0]
    expected = exponentials(angles)
    np.testing.assert_allclose(rotations(angles), expected, atol=1e-12)


@pytest.mark.parametrize("frame", [1, 4])
def test_the_three_vectors_of_a_window_turn_together(frame):
    random = np.random.default_rng(1)
    raw = random.normal(0, 1, (5, 128, 9))
    mean, scale = random.normal(0, 1, 9), random.uniform(0.5, 2, 9)
    standard = torch.from_numpy((raw - mean) / scale).reshape(5, 128 // frame, 9 * frame)
    target = torch.arange(5)
    options = {"mean": mean, "scale": scale, "tilt": 0.3, "gain": 0.1}
    # Two members, the second with draws of its own.
    batch = standard.expand(2, *standard.shape), target
    (x, other), same = moved(batch, [np.random.default_rng(seed) for seed in (2, 3)], **options)
    assert same is target
    assert not torch.equal(x, other)
    after = x.reshape(5, 128, 9).numpy() * scale + mean
    draws = np.random.default_rng(2)
    angles, gains = draws.normal(0, 0.3, (5, 3)), np.exp(draws.normal(0, 0.1, (5, 1, 1)))
    matrices = exponentials(angles) * gains
    for vector in (slice(0, 3), slice(3, 6), slice(6, 9)):
        expected = np.stack([raw[i, :, vector] @ matrices[i].T for i in range(5)])
        np.testing.assert_allclose(after[:, :, vector], expected, atol=1e-12)


def test_no_tilt_and_no_gain_change_nothing():
    x = torch.randn(1, 3, 32, 36, dtype=torch.float64)
    options = {"mean": np.zeros(9), "scale": np.ones(9), "tilt": 0.0, "gain": 0.0}
    torch.testing.assert_close(moved((x,), [np.random.default_rng(0)], **options)[0], x, rtol=1e-12, atol=1e-12)
    assert HarData().augment is None


def test_a_frame_is_steps_that_follow_each_other():
    x = np.random.default_rng(0).normal(0, 1, (12, 128, 9)).astype(np.float32)
    windows = Windows(x, np.arange(12) % 6, np.repeat([1, 2], 6))
    train = HarData(held_out=0, frame=4, standardise=False).splits(Har(windows, windows)).train
    assert train.x.shape == (12, 32, 36)
    np.testing.assert_array_equal(train.x[3, 5, 9:18], x[3, 21])
    assert HarData(frame=4).input_size == 36


@pytest.mark.parametrize(("name", "value"), [("frame", 3), ("frame", 256), ("tilt", -1.0), ("gain", math.inf)])
def test_bad_values(name, value):
    with pytest.raises(ValueError, match=name):
        HarData(**{name: value})
