"""Sequences in npz files: arrays of cases, time steps and channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._internal.files import RunError
from .dataset import Floats, load_npz
from .table_columns import PARTS, Cases, Texts, channel_names, ends, parts

if TYPE_CHECKING:
    from .table import FileData

LARGEST = 8 << 30
"""Most bytes of all arrays of a file, by their declared size."""
Arrays = Mapping[str, npt.NDArray[Any]]


def read_npz(path: Path, data: FileData, *, labelled: bool = True) -> Cases:
    """`X` (N, T, X) or (N, T) and `y` (N,), or (N, O) for a regression, under these names or those in `data`; or
    `X_train`, `y_train`, `X_test`, … for each part. `lengths` (N,) are the lengths of padded sequences. Unless
    `labelled` the targets are not read."""
    for name, value in (("sequence", data.sequence), ("time", data.time)):
        if value is not None:
            raise ValueError(f"{name} is for long CSV and Parquet files, and {path} is an npz file")
    if len(data.values) > 1:
        raise ValueError(f"values names one array of an npz file, got {', '.join(data.values)}")
    arrays = load_npz(path, LARGEST)
    values = data.values[0] if data.values else "X"
    if values in arrays or f"{values}_train" not in arrays:
        return _Part(path, arrays).cases(values, data, labelled)
    found = {}
    for part in PARTS:
        if f"{values}_{part}" in arrays:
            cases = _Part(path, arrays, f"_{part}").cases(values, replace(data, split=None), labelled)
            found[part] = cases._replace(part=np.full(len(cases.x), part))
    return _joined(path, found)


def _joined(path: Path, found: Mapping[str, Cases]) -> Cases:
    widths = {part: cases.x[0].shape[1] for part, cases in found.items()}
    if len(set(widths.values())) > 1:
        shown = ", ".join(f"{count} in {part}" for part, count in widths.items())
        raise RunError(f"{path}: all parts must have as many channels, got {shown}")
    x, target, group, part, names, *_ = zip(*found.values(), strict=True)
    groups = None if any(each is None for each in group) else np.concatenate(group)
    targets = None if any(each is None for each in target) else np.concatenate(target)
    return Cases([each for own in x for each in own], targets, groups, np.concatenate(part), names[0])


class _Part(NamedTuple):
    """The arrays of all sequences, or of one part: those with names that end in `suffix`."""

    path: Path
    arrays: Arrays
    suffix: str = ""

    def get(self, name: str, role: str, count: int | None = None) -> npt.NDArray[Any]:
        """The array of this name, which must have `count` rows."""
        name += self.suffix
        if name not in self.arrays:
            raise RunError(
                f"{self.path} has no array {name!r} for {role}; it has {', '.join(self.arrays) or 'none'}"
            )
        array = self.arrays[name]
        if count is not None and (array.ndim == 0 or len(array) != count):
            raise RunError(
                f"{self.path}: {name!r} must have {count} rows, one for each sequence, got {array.shape}"
            )
        return array

    def error(self, name: str, said: str) -> RunError:
        return RunError(f"{self.path}, {name + self.suffix!r}: {said}")

    def cases(self, values: str, data: FileData, labelled: bool) -> Cases:
        x = self.signals(values)
        lengths = self.lengths(x, data.ragged).tolist()
        for row, end in enumerate(lengths):
            for step, channel in np.argwhere(~np.isfinite(x[row, :end]))[:1]:
                what = "a value is missing" if np.isnan(x[row, step, channel]) else "a value is not finite"
                raise self.error(values, f"row {row}, step {step}, column {channel}: {what}")
        sequences = [x[row, :end] for row, end in enumerate(lengths)]
        if not labelled:
            return Cases(sequences, None, None, None, channel_names(x.shape[2]))
        target = (self.numbers if data.task == "regression" else self.labels)(data.target, len(x))
        group, part = (
            None if name is None else self.get(name, role, len(x)).astype(np.str_)
            for name, role in ((data.group, "group"), (data.split, "split"))
        )
        if part is not None:
            part = parts(part, lambda row: f"{self.path}, {data.split!r}, row {row}")
        return Cases(sequences, target, group, part, channel_names(x.shape[2]))

    def signals(self, name: str) -> Floats:
        x = self.get(name, "the values")
        if x.ndim not in (2, 3) or not all(x.shape):
            raise self.error(name, f"must be (cases, time) or (cases, time, channels), got {x.shape}")
        if x.dtype.kind not in "fiub":
            raise self.error(name, f"must hold numbers, got {x.dtype}")
        return x.reshape(*x.shape[:2], -1).astype(np.float64)

    def lengths(self, x: Floats, ragged: bool) -> npt.NDArray[np.int64]:
        count, steps = x.shape[:2]
        if f"lengths{self.suffix}" not in self.arrays:
            nothing: npt.NDArray[np.bool_] = np.isnan(x).all(axis=2)  # type: ignore[assignment]  # (N, T), no scalar
            found = ends(nothing) if ragged else np.full(count, steps)
        else:
            found = self.get("lengths", "lengths", count)
            if found.ndim != 1 or found.dtype.kind not in "iu":
                raise self.error("lengths", f"must be (cases,), whole numbers, got {found.shape} of {found.dtype}")
        for row in np.flatnonzero((found < 1) | (found > steps))[:1]:
            raise RunError(f"{self.path}: sequence {row} has a length of {found[row]}; it must be 1 to {steps}")
        return found.astype(np.int64)

    def labels(self, name: str, count: int) -> Texts:
        target = self.get(name, "the target", count)
        if target.ndim == 2 and target.shape[1] == 1:
            target = target[:, 0]
        if target.ndim != 1:
            raise self.error(name, f"must be (cases,), a class for each, got {target.shape}")
        if target.dtype.kind == "f":
            for row in np.flatnonzero(~np.isfinite(target))[:1]:
                raise self.error(name, f"row {row}: a value is missing")
            for row in np.flatnonzero(target != np.rint(target))[:1]:
                raise self.error(name, f"row {row}: {target[row]} is not a class; for numbers use --recipe regress")
            target = target.astype(np.int64)
        if target.dtype.kind == "S":
            target = np.char.decode(target, "utf-8")
        return target.astype(np.str_)

    def numbers(self, name: str, count: int) -> Floats:
        target = self.get(name, "the target", count)
        if target.ndim not in (1, 2) or target.dtype.kind not in "fiub":
            said = f"must be numbers, (cases,) or (cases, outputs), got {target.shape} of {target.dtype}"
            raise self.error(name, said)
        values = target.reshape(len(target), -1).astype(np.float64)
        for row, column in np.argwhere(~np.isfinite(values))[:1]:
            raise self.error(name, f"row {row}, column {column}: a value is missing")
        return values
