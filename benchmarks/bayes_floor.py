"""The Bayes floor of the synthetic task: the least error of a predictor that sees `x_1 … x_t` and nothing else.

    python benchmarks/bayes_floor.py

If `R_t` is known, `x_t` gives `h_t`, that gives `R_{t+1}`, and so on: all that is hidden is `R_1`, which has few
values. The best predictor follows one trajectory for each, weighs it by the density of what it saw, and predicts
the mean over the trajectories of `E[x_{t+1} | h_t]`.

The task is a Markov chain. One inner step is `v = A h + noise`, `h = tanh(v)`: given `h`, the next `v` is Gaussian
with independent components. All means and densities here rest on that.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.polynomial import chebyshev, hermite_e, legendre

from eirehn.data.synthetic import NOISE_STD, synthetic

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEAST_SPREAD = 1e-4
"""Sequences are stored in single precision: states regained from them agree no better than to about 1e-5."""
PARTICLES = 256
DEGREE = 40
CHUNK = 1 << 20  # numbers at work at a time
ROUNDING = 1e-5
"""`x` is stored in single precision: a state this close to where the depth changes may belong to either side."""
NEGLIGIBLE = 1e-9
LEAST_NOISE = 0.03
"""The densities of less, but some, noise are too narrow for a grid of moderate size."""


class Task(NamedTuple):
    """What `synthetic` takes."""

    max_depth: int = 10
    theta: float = math.pi / 6
    noise_std: float = NOISE_STD

    @property
    def deepest(self) -> int:
        return 2 * self.max_depth - 1  # ‖h‖² stays below 2

    @property
    def rotation(self) -> Floats:
        cos, sin = math.cos(self.theta), math.sin(self.theta)
        return np.array([[cos, -sin], [sin, cos]])


class Floor(NamedTuple):
    """Mean squared errors of the best predictors there are, over both components."""

    mean: float
    per_step: Floats  # (T-1,)
    informed: float  # of a predictor that is told h_t
    standard_error: float  # of `mean`, from sequence to sequence


class Tracks(NamedTuple):
    """Trajectories that could have led here: several of one sequence while its past leaves a doubt."""

    owner: Ints  # (K,): which sequence, rising
    h: Floats  # (K, 2)
    next_depth: Ints  # (K,)
    log_weight: Floats  # (K,)


def bayes_floor(task: Task, *, steps: int = 21, count: int = 50_000, seed: int = 1) -> Floor:
    """The floor, as a mean over `count` sequences of `steps` points.

    Only the sequences are random: given the hidden state, the error to expect of a prediction is computed.
    """
    if 0 < task.noise_std < LEAST_NOISE:
        raise ValueError(f"noise_std must be 0 or at least {LEAST_NOISE}, got {task.noise_std}")
    data = synthetic(count, steps, **task._asdict(), seed=seed)
    x = data.x.astype(np.float64)
    known = informed_moments(task, x, data.depth)  # (N, T-1, 3)
    spread = np.maximum(known[..., 2] - (known[..., :2] ** 2).sum(-1), 0.0) / 2  # (N, T-1)
    errors = spread + ((known[..., :2] - bayes_predictions(task, x)) ** 2).mean(-1)
    each = errors.mean(1)
    return Floor(
        mean=float(each.mean()),
        per_step=errors.mean(0),
        informed=float(spread.mean()),
        standard_error=float(each.std(ddof=1) / math.sqrt(count)),
    )


def bayes_predictions(task: Task, x: Floats) -> Floats:
    """What the best predictor says of `x_2 … x_T`, (N, T-1, 2), from what goes before in `x`, (N, T, 2)."""
    predictions = np.empty((x.shape[0], x.shape[1] - 1, 2))
    for t, tracks in enumerate(_follow(task, x)):
        said = _shares(tracks)[:, None] * moments(task, tracks.h, tracks.next_depth)[:, :2]
        for c in range(2):
            predictions[:, t, c] = np.bincount(tracks.owner, said[:, c], len(x))
    return predictions


def informed_moments(task: Task, x: Floats, depth: Ints) -> Floats:
    """The moments (N, T-1, 3) of `x_2 … x_T`, each given the state before it."""
    h, log_jacobian = regain(task, x[:, :-1], depth[:, :-1])
    if not np.isfinite(log_jacobian).all():
        raise ValueError("depth does not belong to x: no state gives one with the other")
    return moments(task, h.reshape(-1, 2), depth[:, 1:].ravel()).reshape(*h.shape[:2], 3)


def _follow(task: Task, x: Floats) -> Iterator[Tracks]:
    """The trajectories after each of `x_1 … x_{T-1}`, x (N, T, 2)."""
    tracks = None
    for t in range(x.shape[1] - 1):
        tracks = _begin(task, x[:, 0]) if tracks is None else _onward(task, tracks, x[:, t])
        lost = np.setdiff1d(np.arange(len(x)), tracks.owner)
        if lost.size:
            raise ValueError(f"x[{lost[0]}] is no sequence of this task: no hidden state leads to step {t}")
        yield tracks


def _begin(task: Task, x: Floats) -> Tracks:
    """A trajectory for every depth that could have given `x_1` (N, 2)."""
    owner = np.repeat(np.arange(len(x)), task.deepest)
    depth = np.tile(np.arange(1, task.deepest + 1), len(x))
    h, log_weight = regain(task, x[owner], depth)
    possible = np.isfinite(log_weight)
    log_weight[possible] += log_prior(task, np.arctanh(h[possible]), depth[possible])
    return _next(task, owner, h, log_weight)


def _onward(task: Task, tracks: Tracks, x: Floats) -> Tracks:
    """Each trajectory goes to the state its depth gives `x_t` (N, 2), and is weighed by the density of that."""
    h, log_jacobian = regain(task, x[tracks.owner], tracks.next_depth)
    log_weight = np.where(np.isfinite(log_jacobian), tracks.log_weight, -math.inf)
    # A trajectory without a rival needs no weight.
    rivals = np.isfinite(log_weight) & (np.bincount(tracks.owner)[tracks.owner] > 1)
    log_weight[rivals] += log_jacobian[rivals] + log_transition(
        task, tracks.h[rivals], np.arctanh(h[rivals]), tracks.next_depth[rivals]
    )
    return _next(task, *_merged(tracks.owner, tracks.next_depth, h, log_weight))


def _merged(owner: Ints, depth: Ints, h: Floats, log_weight: Floats) -> tuple[Ints, Floats, Floats]:
    """Trajectories of one sequence that took the same depth are in the same state: one from now on."""
    order = np.lexsort((depth, owner))
    first = np.flatnonzero(np.diff(owner[order], prepend=-1) | np.diff(depth[order], prepend=-1))
    if not first.size:
        return owner, h, log_weight
    return owner[order][first], h[order][first], np.logaddexp.reduceat(log_weight[order], first)


def _next(task: Task, owner: Ints, h: Floats, log_weight: Floats) -> Tracks:
    """The depth each trajectory takes next, where it weighs anything; one on the border goes both ways."""
    exact = (task.max_depth - 1) * (h * h).sum(1)
    below, above = (np.rint(exact + side).astype(np.int64) + 1 for side in (-ROUNDING, ROUNDING))
    ways = np.where(below != above, 2, 1)
    each = np.repeat(np.arange(len(owner)), ways)
    second = np.diff(each, prepend=-1) == 0
    tracks = Tracks(owner[each], h[each], np.where(second, above[each], below[each]), log_weight[each])
    tracks = _those(tracks, np.isfinite(tracks.log_weight))
    return _those(tracks, _shares(tracks) > NEGLIGIBLE)


def _those(tracks: Tracks, which: npt.NDArray[np.bool_]) -> Tracks:
    return Tracks(tracks.owner[which], tracks.h[which], tracks.next_depth[which], tracks.log_weight[which])


def _shares(tracks: Tracks) -> Floats:
    """The probabilities (K,) of the trajectories, which add up to one for each sequence."""
    begins = np.diff(tracks.owner, prepend=-1) > 0
    first, group = np.flatnonzero(begins), np.cumsum(begins) - 1
    if not first.size:
        return tracks.log_weight
    weight = np.exp(tracks.log_weight - np.maximum.reduceat(tracks.log_weight, first)[group])
    return np.asarray(weight / np.add.reduceat(weight, first)[group])


def regain(task: Task, x: Floats, depth: Ints) -> tuple[Floats, Floats]:
    """The state behind `x` (…, 2) if `depth` (…) inner steps were taken, and the log of `|dv / dx|` for the
    `v` of which it is the tanh: minus infinity where no state gives this x."""
    scale = depth / task.max_depth
    seen = x / scale[..., None]
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b = np.moveaxis(np.arctanh(seen), -1, 0)
        h = np.stack([(a + b) / 2, (a - b) / 2], -1)
        log_slopes = np.log1p(-(seen**2)).sum(-1) + np.log1p(-(h**2)).sum(-1)
    inside = np.asarray((np.abs(h) < 1).all(-1))  # false where it is not a number
    log_jacobian = -math.log(2.0) - 2 * np.log(scale) - log_slopes
    return np.where(inside[..., None], h, 0.0), np.where(inside, log_jacobian, -math.inf)


def moments(task: Task, h: Floats, depth: Ints) -> Floats:
    """`E[x_1]`, `E[x_2]` and `E[‖x‖²]` (n, 3) of the next observation, `depth` (n,) inner steps from `h` (n, 2)."""
    table = _moment_table(task)  # (R, D, D, 3)
    found = np.empty((len(h), 3))
    for each, r in _by_depth(depth, DEGREE * 3):
        left, right = (chebyshev.chebvander(h[each, c], DEGREE - 1) for c in range(2))
        along = (left @ table[r].reshape(DEGREE, -1)).reshape(-1, DEGREE, 3)
        found[each] = np.einsum("nj,njm->nm", right, along)
    return found


@lru_cache(maxsize=8)
def _moment_table(task: Task) -> Floats:
    """Chebyshev coefficients of the moments after R inner steps, as functions of the state before them.

    The mean over one inner step of a function is a linear map of its coefficients, the product of a map for each
    component, because the noise of the components is independent.
    """
    nodes = chebyshev.chebpts1(DEGREE)
    to_coefficients = np.linalg.inv(chebyshev.chebvander(nodes, DEGREE - 1))
    h = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)  # (D², 2)
    noise, weight = hermite_e.hermegauss(60)
    weight = weight / weight.sum()
    after = np.tanh((h @ task.rotation.T)[..., None] + task.noise_std * noise)  # (D², 2, Q)
    left, right = np.moveaxis(np.einsum("ncqd,q->ncd", chebyshev.chebvander(after, DEGREE - 1), weight), 1, 0)
    seen = np.tanh(np.stack([h[:, 0] + h[:, 1], h[:, 0] - h[:, 1]], -1))
    values = np.column_stack([seen, (seen**2).sum(1)])  # (D², 3)
    table = np.empty((task.deepest + 1, DEGREE, DEGREE, 3))
    for r in range(task.deepest + 1):
        square = values.reshape(DEGREE, DEGREE, 3)
        coefficients = np.einsum("ia,jb,abm->ijm", to_coefficients, to_coefficients, square, optimize=True)
        scale = r / task.max_depth
        table[r] = coefficients * [scale, scale, scale**2]
        along = (left @ coefficients.reshape(DEGREE, -1)).reshape(-1, DEGREE, 3)
        values = np.einsum("nj,njm->nm", right, along)
    return table


def log_transition(task: Task, h: Floats, v: Floats, depth: Ints) -> Floats:
    """The log density at `v` (n, 2) after `depth` (n,) inner steps from `h` (n, 2).

    All steps but the last are taken by particles; the last is known in closed form. The particles feel the same
    noise every time, so that the result is a function of the arguments.
    """
    spread = max(task.noise_std, LEAST_SPREAD)
    random = np.random.default_rng(0)
    half = spread * random.standard_normal((task.deepest - 1, PARTICLES // 2, 2))
    noise = np.concatenate([half, -half], 1)
    found = np.empty(len(h))
    for each, r in _by_depth(depth, 2 * PARTICLES):
        mean = h[each, None] @ task.rotation.T  # (n, 1, 2)
        for step in range(r - 1):
            mean = np.tanh(mean + noise[step]) @ task.rotation.T  # (n, M, 2)
        distance = ((v[each, None] - mean) ** 2).sum(-1) / (2 * spread**2)  # (n, M)
        least = distance.min(1)
        found[each] = np.log(np.exp(least[:, None] - distance).mean(1)) - least
    return found - math.log(2 * math.pi * spread**2)


def log_prior(task: Task, v: Floats, depth: Ints) -> Floats:
    """The log of the joint density of a first depth (n,) and the `v` (n, 2) after as many inner steps."""
    if task.noise_std == 0:
        return _log_prior_without_noise(task, v, depth)
    axis, table = _prior_table(task)
    place = np.clip((v - axis[0]) / (axis[1] - axis[0]), 0, len(axis) - 1.001)
    low = place.astype(np.int64)
    i, j = low.T
    a, b = (place - low).T
    upper = (1 - b) * table[depth, i + 1, j] + b * table[depth, i + 1, j + 1]
    lower = (1 - b) * table[depth, i, j] + b * table[depth, i, j + 1]
    return np.asarray((1 - a) * lower + a * upper)


@lru_cache(maxsize=8)
def _prior_table(task: Task) -> tuple[Floats, Floats]:
    """The log densities (R, n, n) of `log_prior` on a grid, and its axis.

    The density after a step is a sum over the points of a grid of Gaussians, products over the components: one
    matrix product. A sum over a grid is as good as the integral once its spacing is below the noise.
    """
    spread = task.noise_std
    reach = math.sqrt(2) + 6 * spread
    axis = np.linspace(-reach, reach, math.ceil(2 * reach / (0.75 * spread)))
    fine = np.linspace(-reach, reach, math.ceil(2 * reach / (0.25 * spread)))
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    kernels = _gaussians(task, np.tanh(grid), axis)
    last = _gaussians(task, np.tanh(grid), fine)
    area = (axis[1] - axis[0]) ** 2
    table = np.full((task.deepest + 1, len(fine), len(fine)), -math.inf)
    for depth in range(1, task.deepest + 1):
        start, weight = _ring(task, depth)
        if depth == 1:
            density = _spread(_gaussians(task, start, fine), weight)
        else:
            density = _spread(_gaussians(task, start, axis), weight)
            for _ in range(depth - 2):
                density = _spread(kernels, area * density.ravel())
            density = _spread(last, area * density.ravel())
        table[depth] = np.log(density + 1e-300)
    return fine, table


def _gaussians(task: Task, h: Floats, axis: Floats) -> tuple[Floats, Floats]:
    """For each component, the densities (axis, points) of the next `v` from the states `h`."""
    ahead = h @ task.rotation.T
    scale = 1 / (task.noise_std * math.sqrt(2 * math.pi))
    left, right = (
        scale * np.exp(-((axis[:, None] - ahead[:, c]) ** 2) / (2 * task.noise_std**2)) for c in range(2)
    )
    return left, right


def _spread(gaussians: tuple[Floats, Floats], weight: Floats) -> Floats:
    left, right = gaussians
    return np.asarray((left * weight) @ right.T)


def _ring(task: Task, depth: int) -> tuple[Floats, Floats]:
    """Points and weights of a quadrature over the initial states from which `depth` inner steps are taken: a
    ring, cut to the square on which they are uniform."""
    low, high = _ring_bounds(task, depth)
    node, weight = legendre.leggauss(24)
    points, weights = [], []
    for start, end in ((low, min(high, 1.0)), (max(low, 1.0), high)):  # the corners of the square begin at 1
        if start >= end:
            continue
        squared = (start + end) / 2 + (end - start) / 2 * node
        # Within a quarter turn, the angles at which a circle of this radius is inside the square.
        cut = np.arccos(np.minimum(1.0, 1 / np.sqrt(squared)))  # (24,)
        open_angle = np.maximum(math.pi / 2 - 2 * cut, 0.0)
        angle = cut[:, None] + open_angle[:, None] * (node + 1) / 2  # (24, 24)
        area = (end - start) / 2 * weight[:, None] / 2 * open_angle[:, None] * weight / 2
        for quarter in range(4):
            turned = angle + quarter * math.pi / 2
            radius = np.sqrt(squared)[:, None]
            points.append(np.stack([radius * np.cos(turned), radius * np.sin(turned)], -1).reshape(-1, 2))
            weights.append(area.ravel() / 4)  # the square has an area of 4
    return np.concatenate(points), np.concatenate(weights)


def _ring_bounds(task: Task, depth: int) -> tuple[float, float]:
    """The squared radii between which `depth` inner steps are taken."""
    if task.max_depth == 1:
        return 0.0, 2.0
    low, high = ((depth - 1 + side) / (task.max_depth - 1) for side in (-0.5, 0.5))
    return max(low, 0.0), min(high, 2.0)


def _log_prior_without_noise(task: Task, v: Floats, depth: Ints) -> Floats:
    """Without noise the steps can be undone, to the one initial state that leads here."""
    found = np.full(len(v), -math.inf)
    for each, r in _by_depth(depth, 2):
        u, log_density = v[each], np.full(len(each), math.log(0.25))
        for step in range(r):
            h = u @ task.rotation
            inside = np.asarray((np.abs(h) < 1).all(-1))
            h = np.where(inside[:, None], h, 0.0)
            log_density[~inside] = -math.inf
            if step < r - 1:
                log_density -= np.log1p(-(h**2)).sum(-1)
                u = np.arctanh(h)
        low, high = _ring_bounds(task, r)
        squared = (h**2).sum(-1)
        # Single precision may put the state a little outside its ring.
        found[each] = np.where((squared > low - 1e-3) & (squared < high + 1e-3), log_density, -math.inf)
    return found


def _by_depth(depth: Ints, width: int) -> Iterator[tuple[Ints, int]]:
    """The rows of each depth, in portions whose work of `width` numbers a row fits the cache."""
    for r in np.unique(depth):
        rows = np.flatnonzero(depth == r)
        for start in range(0, len(rows), max(1, CHUNK // width)):
            yield rows[start : start + max(1, CHUNK // width)], int(r)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--noise-std", type=float, default=NOISE_STD)
    parser.add_argument("--count", type=int, default=50_000, help="sequences")
    asked = parser.parse_args()
    floor = bayes_floor(Task(noise_std=asked.noise_std), count=asked.count)
    print(f"floor {floor.mean!r} (standard error {floor.standard_error:.2g}), known state {floor.informed:.6g}")


if __name__ == "__main__":
    main()
