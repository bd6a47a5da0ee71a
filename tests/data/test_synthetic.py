import math
import time

import numpy as np
import pytest
import torch

from eirehn.data.synthetic import SyntheticData, synthetic, turned


def by_hand(seed, count, steps, max_depth, theta):
    """Algorithm 2 without noise, one sequence at a time, from the same initial states."""
    starts = np.random.default_rng(seed).uniform(-1.0, 1.0, (count, 2))
    x, depth = np.empty((count, steps, 2)), np.empty((count, steps), int)
    for n, h in enumerate(starts):
        for t in range(steps):
            R = round((max_depth - 1) * (h[0] ** 2 + h[1] ** 2)) + 1
            for _ in range(R):
                a, b = h
                h = np.tanh([math.cos(theta) * a - math.sin(theta) * b, math.sin(theta) * a + math.cos(theta) * b])
            x[n, t] = R / max_depth * np.tanh([h[0] + h[1], h[0] - h[1]])
            depth[n, t] = R
    return x, depth


def test_without_noise_it_is_algorithm_2():
    data = synthetic(50, 6, max_depth=7, theta=0.9, noise_std=0.0, seed=4)
    x, depth = by_hand(4, 50, 6, 7, 0.9)
    np.testing.assert_array_equal(data.depth, depth)
    np.testing.assert_allclose(data.x, x, atol=1e-6)


def test_noise_enters_at_every_inner_step():
    """One inner step from the origin: the state is tanh of the noise itself."""
    data = synthetic(20_000, 1, max_depth=1, noise_std=0.02, theta=0.0)
    clean = synthetic(20_000, 1, max_depth=1, noise_std=0.0, theta=0.0)
    # Undo the tanh of the observation and of the state; what is left is the noise of the two components.
    recovered = []
    for each in (data, clean):
        a, b = np.arctanh(each.x[:, 0].astype(float)).T
        recovered.append(np.arctanh(np.clip(np.stack([(a + b) / 2, (a - b) / 2], 1), -0.999, 0.999)))
    inside = (np.abs(recovered[1]) < 0.7).all(1)
    noise = (recovered[0] - recovered[1])[inside]
    assert noise.std() == pytest.approx(0.02, rel=0.03)
    assert abs(noise.mean()) < 1e-3


def test_same_seed_same_data_other_seed_other_data():
    np.testing.assert_array_equal(synthetic(10, seed=1).x, synthetic(10, seed=1).x)
    assert not np.array_equal(synthetic(10, seed=1).x, synthetic(10, seed=2).x)


def test_ten_thousand_sequences_take_less_than_a_second():
    start = time.perf_counter()
    data = synthetic(10_000)
    assert time.perf_counter() - start < 1.0
    assert data.x.shape == (10_000, 21, 2)
    assert data.x.dtype == np.float32
    assert data.depth.min() >= 1
    assert data.depth.max() > 10  # ‖h‖² may exceed one


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"count": 0}, ValueError),
        ({"count": 5, "steps": -1}, ValueError),
        ({"count": 5, "noise_std": -0.1}, ValueError),
        ({"count": 5, "noise_std": math.nan}, ValueError),
        ({"count": 5, "max_depth": 2.5}, TypeError),
        ({"count": 5, "theta": math.inf}, ValueError),
    ],
)
def test_wrong_arguments(options, error):
    with pytest.raises(error):
        synthetic(**options)


def test_quarter_turns_are_exact():
    x = torch.tensor([[[1.0, 2.0]]]).expand(4, 1, 2)
    expected = torch.tensor([[1.0, 2.0], [-2.0, 1.0], [-1.0, -2.0], [2.0, -1.0]])[:, None]
    assert torch.equal(turned(x, torch.arange(4)), expected)


def test_a_quarter_turn_is_a_symmetry_of_the_task():
    """A turned hidden state stays turned through an inner step and is seen as turned points, at the same depth."""
    h = torch.from_numpy(np.random.default_rng(0).uniform(-1.0, 1.0, (100, 1, 2)))
    c, s = math.cos(math.pi / 6), math.sin(math.pi / 6)
    rotation = torch.tensor([[c, s], [-s, c]], dtype=torch.float64)
    sums = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)
    for quarters in range(4):
        here, back = torch.full((100,), quarters), torch.full((100,), -quarters % 4)
        turns = turned(h, here)
        torch.testing.assert_close(torch.tanh(turns @ rotation), turned(torch.tanh(h @ rotation), here))
        torch.testing.assert_close(torch.tanh(turns @ sums), turned(torch.tanh(h @ sums), back))  # a reflection


def test_turning_draws_by_seed():
    data = SyntheticData(train=8, validation=2, test=2, turn=True)
    batch = [part.expand(3, *part.shape) for part in data.load().train[:2]]  # of three members
    x, target = data.augment(batch, [np.random.default_rng(seed) for seed in (0, 0, 1)])
    assert torch.equal(x[0], x[1])
    assert not torch.equal(x[0], x[2])
    # Inputs and targets turn together: both are cut from one sequence.
    assert torch.equal(x[:, :, 1:], target[:, :, :-1])
