"""A file of sequences of unequal lengths, as a user has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

TRAIN = "train --network.hidden_size 5 --network.max_depth 2 --hardware.accelerator cpu --seeds [0,1]"


def ragged(folder: Path) -> Path:
    """40 sequences of 3 to 6 steps and two channels, around 50 and −3; what follows them is not a number."""
    random = np.random.default_rng(0)
    lengths, shifts = random.integers(3, 7, 40), random.choice([-6.0, 6.0], 40)
    x = random.normal([50.0, -3.0], [5.0, 0.1], (40, 6, 2)) + shifts[:, None, None] * [1.0, 0.0]
    for row, length in enumerate(lengths):
        x[row, length:] = np.nan
    path = folder / "my.npz"
    np.savez(path, X=x, y=np.where(shifts > 0, "above", "below"), lengths=lengths, level=1000.0 + shifts)
    return path


def changed(path: Path, to: Path) -> None:
    """The same file with other numbers."""
    with np.load(path) as file:
        np.savez(to, **{**file, "X": file["X"] + 1.0})
