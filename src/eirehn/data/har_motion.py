"""Windows of UCI HAR to train on, as if the phone had sat a little differently."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .splits import sent

Floats = npt.NDArray[np.float64]


def moved(
    batch: Sequence[Tensor],
    random: Sequence[np.random.Generator],
    *,
    mean: Floats,
    scale: Floats,
    tilt: float,
    gain: float,
) -> tuple[Tensor, ...]:
    """Windows (M, B, T, frame · 9) as if the phone had sat a little differently, and the move a little stronger.

    The signals are three vectors in space, which turn together. `mean` and `scale` are what has been taken off them
    and what they have been divided by.
    """
    x, *rest = batch
    turns = np.stack([_turns(each, x.size(1), tilt, gain) for each in random])  # (M, B, 3, 3)
    matrix, middle, unit = (sent(each, x) for each in (turns, mean.reshape(3, 3), scale.reshape(3, 3)))
    vectors = x.unflatten(3, (-1, 3, 3)) * unit + middle  # (M, B, T, frame, 3 vectors, 3)
    turned = torch.einsum("mbtfvi,mbji->mbtfvj", vectors, matrix)
    return (((turned - middle) / unit).flatten(3), *rest)


def _turns(random: np.random.Generator, count: int, tilt: float, gain: float) -> Floats:
    angles, gains = random.normal(0.0, tilt, (count, 3)), random.normal(0.0, gain, (count, 1, 1))
    turns: Floats = rotations(angles) * np.exp(gains)
    return turns


def rotations(angles: Floats) -> Floats:
    """Rotations (N, 3, 3) about the axes `angles` (N, 3) by as many radians as those are long, by Rodrigues."""
    length = np.linalg.norm(angles, axis=1)[:, None, None]
    x, y, z = angles.T
    zero = np.zeros_like(x)
    K = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], 1).reshape(-1, 3, 3)
    sine = np.sinc(length / np.pi)  # sin(length) / length
    cosine = 0.5 * np.sinc(length / (2 * np.pi)) ** 2  # (1 - cos(length)) / length²
    turned: Floats = np.eye(3) + sine * K + cosine * (K @ K)
    return turned
