"""Users' files of sequences, and what they must give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from eirehn.data.table import FileData

PLAIN: dict[str, Any] = {"standardise": False}


def sequences(count: int = 24, channels: int = 2, *, equal: bool = False) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(3.0, 2.0, (5 if equal else 3 + row % 4, channels)) for row in range(count)]


def classes(count: int = 24) -> list[str]:
    return [("walk", "run", "sit")[row % 3] for row in range(count)]


def long_csv(x: list[np.ndarray], y: list[Any], *, extra: dict[str, list[Any]] | None = None) -> str:
    extra = extra or {}
    channels = x[0].shape[1]
    lines = [",".join(["id", "t", *(f"s{c}" for c in range(channels)), "label", *extra])]
    for row, (each, label) in enumerate(zip(x, y, strict=True)):
        for t, values in enumerate(each.tolist()):
            others = [str(column[row]) for column in extra.values()]
            lines.append(",".join([f"case-{row}", str(t), *map(repr, values), str(label), *others]))
    return "\n".join(lines) + "\n"


LONG = FileData(target="label", sequence="id", time="t", **PLAIN)


def written(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def arrays(path: Path, **named: Any) -> str:
    np.savez_compressed(path, **named)
    return str(path)


def rows(data: FileData) -> list[tuple[int, np.ndarray, Any]]:
    """Each sequence with its number in the file, without its padding, and its target."""
    found = []
    for split, numbers in zip(data.load(), data.division, strict=True):
        for at, number in enumerate(numbers.tolist()):
            end = split.x.size(1) if split.lengths is None else int(split.lengths[at])
            assert not split.x[at, end:].any()
            found.append((number, split.x[at, :end].numpy(), split.target[at]))
    return sorted(found, key=lambda each: each[0])


def check(data: FileData, x: list[np.ndarray], y: list[Any]) -> None:
    found = rows(data)
    assert [number for number, _, _ in found] == list(range(len(x)))
    for number, values, target in found:
        np.testing.assert_array_equal(values, x[number].astype(np.float32))
        if data.task == "classification":
            assert data.classes[int(target)] == y[number]
        else:
            np.testing.assert_array_equal(target.numpy(), np.atleast_1d(y[number]).astype(np.float32))
