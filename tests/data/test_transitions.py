"""Each mean and density against plain simulation."""

import math

import numpy as np
import pytest
from helpers.quick import quick

from eirehn.data.synthetic import synthetic
from eirehn.data.transitions import Task, log_prior, log_transition, moments, regain

TASKS = [Task(10, math.pi / 6, 0.056), Task(10, math.pi / 6, 0.1), Task(3, 0.9, 0.3), Task(1, -0.4, 0.2)]


def walk(task, h, depth, random):
    for _ in range(depth):
        a, b = h.T
        turned = np.stack(
            [
                math.cos(task.theta) * a - math.sin(task.theta) * b,
                math.sin(task.theta) * a + math.cos(task.theta) * b,
            ],
            1,
        )
        h = np.tanh(turned + task.noise_std * random.standard_normal(h.shape))
    return h


def box(centre, half, points):
    """A midpoint rule over a square, as points (n, 2) and the area of each."""
    offsets = half * ((np.arange(points) + 0.5) / points * 2 - 1)
    a, b = np.meshgrid(offsets, offsets)
    return centre + np.stack([a.ravel(), b.ravel()], 1), (2 * half / points) ** 2


@pytest.mark.parametrize("task", TASKS)
def test_moments(task):
    random = np.random.default_rng(0)
    n = 100_000
    for depth in {1, min(4, task.deepest), task.deepest}:
        h = random.uniform(-1, 1, 2)
        a, b = walk(task, np.tile(h, (n, 1)), depth, random).T
        x = depth / task.max_depth * np.tanh(np.stack([a + b, a - b], 1))
        sample = np.column_stack([x, (x**2).sum(1)])
        found = moments(task, h[None], np.array([depth]))[0]
        assert (np.abs(found - sample.mean(0)) < 4.5 * sample.std(0) / math.sqrt(n)).all()


def test_moments_without_noise_are_the_task_itself():
    task = Task(10, math.pi / 6, 0.0)
    data = synthetic(200, 4, noise_std=0.0)
    h, _ = regain(task, data.x[:, :-1].astype(float), data.depth[:, :-1])
    found = moments(task, h.reshape(-1, 2), data.depth[:, 1:].ravel())
    np.testing.assert_allclose(found[:, :2], data.x[:, 1:].reshape(-1, 2), rtol=0, atol=3e-6)


@pytest.mark.parametrize("task", TASKS)
def test_transition_density(task):
    """The share of walkers that end in a small square of v, against the integral of the density over it."""
    random = np.random.default_rng(1)
    n = 200_000
    for depth in {1, min(5, task.deepest), task.deepest}:
        h = random.uniform(-0.9, 0.9, 2)
        v = np.arctanh(walk(task, np.tile(h, (n, 1)), depth, random))
        for centre in v[:3]:
            points, area = box(centre, task.noise_std / 2, 8)
            density = np.exp(log_transition(task, np.tile(h, (64, 1)), points, np.full(64, depth)))
            expected = density.sum() * area
            share = (np.abs(v - centre) < task.noise_std / 2).all(1).mean()
            # 256 particles know a density to about a tenth.
            assert abs(share - expected) < 4 * math.sqrt(expected / n) + 0.25 * expected * (depth > 1)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_transition_density_integrates_to_one(task):
    for depth in (1, task.deepest):
        points, area = box(np.zeros(2), math.sqrt(2) + 6 * task.noise_std, 120)
        density = np.exp(log_transition(task, np.tile([0.5, -0.7], (14400, 1)), points, np.full(14400, depth)))
        assert density.sum() * area == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("task", quick(TASKS[3], of=TASKS))
def test_prior(task):
    """Depths and states of simulated first steps, counted in small squares."""
    random = np.random.default_rng(2)
    n = 400_000
    start = random.uniform(-1, 1, (n, 2))
    depth = np.rint((task.max_depth - 1) * (start**2).sum(1)).astype(int) + 1
    v = np.empty((n, 2))
    for r in np.unique(depth):
        v[depth == r] = np.arctanh(walk(task, start[depth == r], r, random))
    misses = []
    for index in range(60):
        points, area = box(v[index], 0.1, 12)
        expected = np.exp(log_prior(task, points, np.full(144, depth[index]))).sum() * area
        count = ((np.abs(v - v[index]) < 0.1).all(1) & (depth == depth[index])).sum()
        misses.append((count - n * expected) / math.sqrt(n * expected))
    assert np.abs(misses).max() < 4.5
    assert np.mean(np.square(misses)) == pytest.approx(1.0, abs=0.6)


def test_prior_without_noise():
    """Undoing the steps leads to a density of 1/4 times how much they shrank areas, or to none."""
    task = Task(10, math.pi / 6, 0.0)
    start = np.random.default_rng(3).uniform(-1, 1, (300, 2))
    depth = np.rint(9 * (start**2).sum(1)).astype(int) + 1

    def ahead(h):
        out = np.empty_like(h)
        for r in np.unique(depth):
            out[depth == r] = np.arctanh(walk(task, h[depth == r], r, np.random.default_rng(0)))
        return out

    step = 1e-5
    columns = [(ahead(start + step * e) - ahead(start - step * e)) / (2 * step) for e in np.eye(2)]
    areas = np.abs(np.linalg.det(np.stack(columns, -1)))
    np.testing.assert_allclose(log_prior(task, ahead(start), depth), np.log(0.25 / areas), rtol=0, atol=1e-5)
    wrong = np.where(depth > 3, depth - 2, depth + 2)
    assert np.isneginf(log_prior(task, ahead(start), wrong)).mean() > 0.7


@pytest.mark.parametrize("task", TASKS)
def test_regained_states(task):
    random = np.random.default_rng(4)
    v = random.normal(0, 0.8, (500, 2))
    depth = random.integers(1, task.deepest + 1, 500)

    def observe(v):
        a, b = np.tanh(v).T
        return (depth / task.max_depth)[:, None] * np.tanh(np.stack([a + b, a - b], 1))

    h, log_jacobian = regain(task, observe(v), depth)
    np.testing.assert_allclose(h, np.tanh(v), rtol=0, atol=1e-12)
    step = 1e-6
    columns = [(observe(v + step * e) - observe(v - step * e)) / (2 * step) for e in np.eye(2)]
    np.testing.assert_allclose(
        log_jacobian, -np.log(np.abs(np.linalg.det(np.stack(columns, -1)))), rtol=0, atol=1e-5
    )


def test_what_no_state_gives_is_said_to_be_impossible():
    task = TASKS[0]
    x = np.array([[0.5, 0.0], [0.1, 0.0], [0.96, 0.96], [-0.3, 0.2]])
    h, log_jacobian = regain(task, x, np.array([3, 1, 10, 19]))
    assert np.isneginf(log_jacobian).tolist() == [True, True, True, False]
    assert np.isfinite(h).all()
