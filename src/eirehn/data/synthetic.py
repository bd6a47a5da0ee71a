"""The synthetic task: a noisy rotation in the plane, repeated as often as the radius determines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .._internal.checks import finite, non_negative_int, positive_int
from .dataset import Augment, Split, Splits, sent

NOISE_STD = 0.056
"""Not 0.1 as in the paper's text: with that no predictor, not even one that knows the hidden state, reaches the
errors in the paper. 0.056 gives the errors of its LSTM and RHN (a uniform distribution on ±0.1 has 0.0577)."""
BAYES_FLOOR = 0.00042836254815789055
"""Mean squared error of the best possible predictor at `NOISE_STD`, by `python benchmarks/bayes_floor.py`."""


class Synthetic(NamedTuple):
    x: npt.NDArray[np.float32]  # (N, T, 2)
    depth: npt.NDArray[np.int64]  # (N, T): inner steps the generator took


def synthetic(
    count: int,
    steps: int = 21,
    *,
    max_depth: int = 10,
    theta: float = math.pi / 6,
    noise_std: float = NOISE_STD,
    seed: int = 0,
) -> Synthetic:
    """Algorithm 2 of the paper: `count` sequences of `steps` points, the same for the same seed.

    A depth can exceed `max_depth`: `‖h‖²` reaches 2, and the algorithm does not clip it.
    """
    positive_int("count", count)
    positive_int("steps", steps)
    positive_int("max_depth", max_depth)
    finite("theta", theta)
    finite("noise_std", noise_std, least=0.0)
    random = np.random.default_rng(seed)
    rotation = np.array([[math.cos(theta), -math.sin(theta)], [math.sin(theta), math.cos(theta)]])
    h = random.uniform(-1.0, 1.0, (count, 2))
    x = np.empty((count, steps, 2), np.float32)
    depth = np.empty((count, steps), np.int64)
    for t in range(steps):
        R = np.rint((max_depth - 1) * (h * h).sum(1)).astype(np.int64) + 1  # (N,)
        for r in range(1, int(R.max()) + 1):
            moving = np.flatnonzero(r <= R)
            noise = noise_std * random.standard_normal((moving.size, 2))
            h[moving] = np.tanh(h[moving] @ rotation.T + noise)
        seen = np.tanh(np.stack([h[:, 0] + h[:, 1], h[:, 0] - h[:, 1]], 1))
        x[:, t] = (R / max_depth)[:, None] * seen
        depth[:, t] = R
    return Synthetic(x, depth)


_TURNS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])  # cosine and sine of each quarter


def turned(x: Tensor, quarters: Tensor) -> Tensor:
    """Sequences (…, T, 2) rotated about the origin by 90 degrees times `quarters` (…), which is on the CPU."""
    cos, sin = sent(_TURNS[quarters.numpy()], x)[..., None, :].unbind(-1)  # (…, 1)
    first, second = x.unbind(-1)
    return torch.stack([cos * first - sin * second, sin * first + cos * second], -1)


def turned_at_random(batch: Sequence[Tensor], random: Sequence[np.random.Generator]) -> tuple[Tensor, ...]:
    """The inputs and targets of a batch, (M, B, T, 2) each, rotated alike."""
    count = batch[0].size(1)
    quarters = torch.from_numpy(np.stack([each.integers(4, size=count) for each in random]))
    return tuple(turned(part, quarters) for part in batch)


@dataclass(frozen=True)
class SyntheticData:
    """The synthetic task of the paper: points in the plane, each to be predicted from those before it.

    Examples:
        >>> from eirehn.data import SyntheticData
        >>> data = SyntheticData(train=20, validation=5, test=5)
        >>> data.task, data.load().train.x.shape
        ('regression', torch.Size([20, 20, 2]))
    """

    noise_std: float = NOISE_STD
    """Standard deviation of the noise in the generator's inner steps."""
    train: int = 8000
    """Sequences to train on."""
    validation: int = 1000
    """Sequences for validation, which chooses the best epoch."""
    test: int = 1000
    """Sequences for the test, which gives the result."""
    seed: int = 0
    """Seed of the generator."""
    turn: bool = False
    """Augmentation: rotate each training sequence by 0, 90, 180 or 270 degrees, a symmetry of the task."""

    kind: ClassVar[str] = "synthetic"
    task = "regression"
    input_size = 2
    output_size = 2

    def __post_init__(self) -> None:
        finite("noise_std", self.noise_std, least=0.0)
        for name in ("train", "validation", "test"):
            positive_int(name, getattr(self, name))
        non_negative_int("seed", self.seed)

    def generate(self) -> Synthetic:
        return synthetic(self.train + self.validation + self.test, noise_std=self.noise_std, seed=self.seed)

    @property
    def augment(self) -> Augment | None:
        return turned_at_random if self.turn else None

    def smaller(self, train: int) -> SyntheticData:
        return replace(self, train=train)

    def load(self) -> Splits:
        """Returns training, validation and test data.

        Examples:
            >>> from eirehn.data import SyntheticData
            >>> SyntheticData(train=20, validation=5, test=5).load().test.target.shape
            torch.Size([5, 20, 2])
        """
        x = torch.from_numpy(self.generate().x)
        parts = x.split([self.train, self.validation, self.test])
        return Splits(*(Split(part[:, :-1].contiguous(), part[:, 1:].contiguous()) for part in parts))


def bayes_floor(data: SyntheticData) -> float | None:
    """The mean squared error that no predictor can beat, where it is known: for the noise of the recipes."""
    return BAYES_FLOOR if data.noise_std == NOISE_STD else None
