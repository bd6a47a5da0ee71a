"""The Bayes floor of the synthetic task: the least error of a predictor that sees `x_1 … x_t` and nothing else.

If `R_t` is known, `x_t` gives `h_t`, that gives `R_{t+1}`, and so on: all that is hidden is `R_1`, which has few
values. The best predictor follows one trajectory for each, weighs it by the density of what it saw, and predicts
the mean over the trajectories of `E[x_{t+1} | h_t]`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..cache import cached_json
from ..checks import finite, positive_int
from .synthetic import NOISE_STD, synthetic
from .transitions import Floats, Ints, Task, log_prior, log_transition, moments, regain

ROUNDING = 1e-5
"""`x` is stored in single precision: a state this close to where the depth changes may belong to either side."""
NEGLIGIBLE = 1e-9
LEAST_NOISE = 0.03
"""The densities of less, but some, noise are too narrow for a grid of moderate size."""


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


def bayes_floor(
    noise_std: float = NOISE_STD,
    *,
    steps: int = 21,
    max_depth: int = 10,
    theta: float = math.pi / 6,
    count: int = 50_000,
    seed: int = 1,
) -> Floor:
    """The floor, as a mean over `count` sequences of `steps` points; computed once, then kept on disk.

    Only the sequences are random: given the hidden state, the error to expect of a prediction is computed.
    """
    task = _task(noise_std, max_depth, theta)
    for name, value in (("steps", steps), ("count", count)):
        if positive_int(name, value) < 2:
            raise ValueError(f"{name} must be at least 2, got {value}")
    key = {"version": 1, **task._asdict(), "steps": steps, "count": count, "seed": seed}
    kept = cached_json("floor", key, lambda: _as_json(_floor(task, steps, count, seed)), _is_json_of_floor)
    return Floor(**{**kept, "per_step": np.array(kept["per_step"])})


def bayes_predictions(
    x: npt.ArrayLike, noise_std: float = NOISE_STD, *, max_depth: int = 10, theta: float = math.pi / 6
) -> Floats:
    """What the best predictor says of `x_2 … x_T`, (N, T-1, 2), from what goes before in `x`, (N, T, 2)."""
    task, given = _task(noise_std, max_depth, theta), _sequences(x)
    predictions = np.empty((given.shape[0], given.shape[1] - 1, 2))
    for t, tracks in enumerate(_follow(task, given)):
        said = _shares(tracks)[:, None] * moments(task, tracks.h, tracks.next_depth)[:, :2]
        for c in range(2):
            predictions[:, t, c] = np.bincount(tracks.owner, said[:, c], len(given))
    return predictions


def informed_predictions(
    x: npt.ArrayLike,
    depth: npt.ArrayLike,
    noise_std: float = NOISE_STD,
    *,
    max_depth: int = 10,
    theta: float = math.pi / 6,
) -> Floats:
    """What a predictor says that is told `h_t`, here by way of the depths (N, T) the generator took."""
    return _informed_moments(_task(noise_std, max_depth, theta), _sequences(x), np.asarray(depth))[..., :2]


def _task(noise_std: float, max_depth: int, theta: float) -> Task:
    finite("noise_std", noise_std, least=0.0)
    if 0 < noise_std < LEAST_NOISE:
        raise ValueError(f"noise_std must be 0 or at least {LEAST_NOISE} for the floor, got {noise_std}")
    return Task(positive_int("max_depth", max_depth), finite("theta", theta), float(noise_std))


def _sequences(x: npt.ArrayLike) -> Floats:
    given = np.asarray(x, np.float64)
    if given.ndim != 3 or given.shape[1] < 2 or given.shape[2] != 2:
        raise ValueError(f"x must be of shape (N, T, 2) with T of at least 2, got {list(given.shape)}")
    if not np.isfinite(given).all():
        raise ValueError("x must be finite")
    return given


def _floor(task: Task, steps: int, count: int, seed: int) -> Floor:
    data = synthetic(count, steps, **task._asdict(), seed=seed)
    told = _informed_moments(task, _sequences(data.x), data.depth)  # (N, T-1, 3)
    spread = np.maximum(told[..., 2] - (told[..., :2] ** 2).sum(-1), 0.0) / 2  # (N, T-1)
    errors = spread + ((told[..., :2] - bayes_predictions(data.x, **task._asdict())) ** 2).mean(-1)
    each = errors.mean(1)
    return Floor(
        mean=float(each.mean()),
        per_step=errors.mean(0),
        informed=float(spread.mean()),
        standard_error=float(each.std(ddof=1) / math.sqrt(count)),
    )


def _informed_moments(task: Task, x: Floats, depth: Ints) -> Floats:
    """The moments (N, T-1, 3) of `x_2 … x_T`, each given the state before it."""
    h, log_jacobian = regain(task, x[:, :-1], depth[:, :-1])
    if not np.isfinite(log_jacobian).all():
        raise ValueError("depth does not belong to x: no state gives one with the other")
    return moments(task, h.reshape(-1, 2), depth[:, 1:].ravel()).reshape(*h.shape[:2], 3)


def _as_json(floor: Floor) -> dict[str, Any]:
    return {**floor._asdict(), "per_step": floor.per_step.tolist()}


def _is_json_of_floor(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) != set(Floor._fields) or not isinstance(value["per_step"], list):
        return False
    numbers = [*value["per_step"], *(value[name] for name in ("mean", "informed", "standard_error"))]
    return all(isinstance(number, float) and math.isfinite(number) for number in numbers)


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
