"""What a file of sequences comes down to, whatever its format."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...files import RunError

Floats = npt.NDArray[np.float64]
Texts = npt.NDArray[np.str_]
PARTS = ("train", "validation", "test")
NO_VALUE = ("", "nan", "na", "n/a", "null", "none", "?")
"""What files have in the place of a number that is not there, in lower case."""


class Roles(NamedTuple):
    """Which columns, or arrays, of a file hold what."""

    target: str
    values: tuple[str, ...]
    sequence: str | None
    time: str | None
    group: str | None
    part: str | None


class Cases(NamedTuple):
    """Sequences as a file has them."""

    x: list[Floats]  # N of (T, X), each T its own
    target: Texts | Floats  # (N,): classes by their names; (N, O): numbers
    group: Texts | None  # (N,)
    part: Texts | None  # (N,): of PARTS


def numbers(cells: npt.ArrayLike, where: Any) -> Floats:
    """Text as numbers; `where(index)` says in words where a cell is that is none."""
    texts = np.asarray(cells, dtype=np.str_)
    try:
        values = texts.astype(np.float64)
    except ValueError:
        values = np.array([_number(cell, index, where) for index, cell in enumerate(texts.tolist())])
    for index in np.flatnonzero(~np.isfinite(values))[:1]:
        _number(str(texts[index]), int(index), where)
        raise RunError(f"{where(int(index))}: {texts[index]} is not finite")
    return values


def _number(cell: str, index: int, where: Any) -> float:
    if cell.strip().lower() in NO_VALUE:
        raise RunError(f"{where(index)}: a value is missing; fill it in, or leave the sequence out")
    try:
        return float(cell)
    except ValueError:
        raise RunError(f"{where(index)}: {cell[:40]!r} is no number") from None


def ends(missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Steps before the last that is there, (N,), of `missing` (N, T)."""
    steps: npt.NDArray[np.int64] = missing.shape[1] - np.argmin(missing[:, ::-1], 1)
    return np.where(missing.all(1), 0, steps)


def parts(names: Texts, where: Any) -> Texts:
    """The names of parts, in the spelling of PARTS."""
    short = {"val": "validation", "valid": "validation"}
    found = np.array([short.get(name.strip().lower(), name.strip().lower()) for name in names.tolist()])
    for index in np.flatnonzero(~np.isin(found, PARTS))[:1]:
        raise RunError(f"{where(int(index))}: {str(names[index])!r} is none of {', '.join(PARTS)}")
    return found
