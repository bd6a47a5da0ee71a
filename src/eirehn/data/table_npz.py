"""Sequences in npz files: arrays of cases, time steps and channels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .._internal.files import RunError
from .dataset import Floats, load_npz
from .table_columns import PARTS, Cases, Roles, Texts, ends, parts

LARGEST = 8 << 30
"""Bytes that all arrays of a file have together, as it declares them."""
Arrays = Mapping[str, npt.NDArray[Any]]


def read_npz(path: Path, roles: Roles, *, task: str, ragged: bool) -> Cases:
    """`X` (N, T, X) or (N, T) and `y` (N,), or (N, O) for a regression, by these names or those in `roles`; or
    `X_train`, `y_train`, `X_test`, … for each part. `lengths` (N,) says where sequences end that are padded."""
    for name, value in (("sequence", roles.sequence), ("time", roles.time)):
        if value is not None:
            raise ValueError(f"{name} names a column of a long CSV file, and {path} is npz")
    if len(roles.values) > 1:
        raise ValueError(f"values names one array of an npz file, got {', '.join(roles.values)}")
    arrays = load_npz(path, LARGEST)
    values = roles.values[0] if roles.values else "X"
    if values not in arrays and f"{values}_train" in arrays:
        return _join(
            path,
            [
                _part(path, arrays, roles, values, part, task, ragged)
                for part in PARTS
                if f"{values}_{part}" in arrays
            ],
        )
    return _cases(path, arrays, roles, values, "", task, ragged)


def _part(path: Path, arrays: Arrays, roles: Roles, values: str, part: str, task: str, ragged: bool) -> Cases:
    cases = _cases(path, arrays, roles._replace(part=None), values, f"_{part}", task, ragged)
    return cases._replace(part=np.full(len(cases.x), part))


def _join(path: Path, all_parts: list[Cases]) -> Cases:
    widths = {str(each.part[0]): each.x[0].shape[1] for each in all_parts if each.part is not None}
    if len(set(widths.values())) > 1:
        shown = ", ".join(f"{count} in {part}" for part, count in widths.items())
        raise RunError(f"{path}: all parts must have as many channels, got {shown}")
    groups = [each.group for each in all_parts if each.group is not None]
    return Cases(
        [x for each in all_parts for x in each.x],
        np.concatenate([each.target for each in all_parts]),
        np.concatenate(groups) if len(groups) == len(all_parts) else None,
        np.concatenate([each.part for each in all_parts if each.part is not None]),
    )


def _cases(path: Path, arrays: Arrays, roles: Roles, values: str, suffix: str, task: str, ragged: bool) -> Cases:
    x = _signals(path, arrays, values + suffix)
    count = len(x)
    lengths = _lengths(path, arrays, f"lengths{suffix}", x, ragged)
    for row, end in enumerate(lengths.tolist()):
        for step, channel in np.argwhere(~np.isfinite(x[row, :end]))[:1]:
            what = "a value is missing" if np.isnan(x[row, step, channel]) else "a value is not finite"
            raise RunError(f"{path}, {values + suffix!r}: row {row}, step {step}, column {channel}: {what}")
    target = _named(path, arrays, roles.target + suffix, "the target", count)
    group = None if roles.group is None else _named(path, arrays, roles.group + suffix, "group", count)
    part = None if roles.part is None else _named(path, arrays, roles.part, "split", count)
    return Cases(
        [x[row, :end] for row, end in enumerate(lengths.tolist())],
        _numbers(path, roles.target + suffix, target) if task == "regression" else _labels(path, roles, target),
        None if group is None else group.astype(np.str_),
        None if part is None else parts(part.astype(np.str_), lambda row: f"{path}, {roles.part!r}, row {row}"),
    )


def _signals(path: Path, arrays: Arrays, name: str) -> Floats:
    x = _get(path, arrays, name, "the values")
    if x.ndim not in (2, 3) or not all(x.shape):
        raise RunError(f"{path}: {name!r} must be (cases, time) or (cases, time, channels), got {x.shape}")
    if x.dtype.kind not in "fiub":
        raise RunError(f"{path}: {name!r} must hold numbers, got {x.dtype}")
    return x.reshape(*x.shape[:2], -1).astype(np.float64)


def _lengths(path: Path, arrays: Arrays, name: str, x: Floats, ragged: bool) -> npt.NDArray[np.int64]:
    count, steps = x.shape[:2]
    if name not in arrays:
        nothing: npt.NDArray[np.bool_] = np.isnan(x).all(axis=2)  # type: ignore[assignment]  # (N, T), no scalar
        found = ends(nothing) if ragged else np.full(count, steps)
    else:
        found = _named(path, arrays, name, "lengths", count)
        if found.ndim != 1 or found.dtype.kind not in "iu":
            raise RunError(f"{path}: {name!r} must be (cases,), whole numbers, got {found.shape} of {found.dtype}")
    for row in np.flatnonzero((found < 1) | (found > steps))[:1]:
        raise RunError(f"{path}: sequence {row} has a length of {found[row]}, of 1 to {steps} there can be")
    return found.astype(np.int64)


def _labels(path: Path, roles: Roles, target: npt.NDArray[Any]) -> Texts:
    if target.ndim == 2 and target.shape[1] == 1:
        target = target[:, 0]
    if target.ndim != 1:
        raise RunError(f"{path}: {roles.target!r} must be (cases,), a class for each, got {target.shape}")
    if target.dtype.kind == "f":
        for row in np.flatnonzero(~np.isfinite(target))[:1]:
            raise RunError(f"{path}, {roles.target!r}: row {row}: a value is missing")
        for row in np.flatnonzero(target != np.rint(target))[:1]:
            raise RunError(
                f"{path}, {roles.target!r}: row {row}: {target[row]} is not a class; is it a regression?"
            )
        target = target.astype(np.int64)
    if target.dtype.kind == "S":
        target = np.char.decode(target, "utf-8")
    return target.astype(np.str_)


def _numbers(path: Path, name: str, target: npt.NDArray[Any]) -> Floats:
    if target.ndim not in (1, 2) or target.dtype.kind not in "fiub":
        raise RunError(
            f"{path}: {name!r} must be numbers, (cases,) or (cases, outputs), got {target.shape} of {target.dtype}"
        )
    values = target.reshape(len(target), -1).astype(np.float64)
    for row, column in np.argwhere(~np.isfinite(values))[:1]:
        raise RunError(f"{path}, {name!r}: row {row}, column {column}: a value is missing")
    return values


def _named(path: Path, arrays: Arrays, name: str, role: str, count: int) -> npt.NDArray[Any]:
    array = _get(path, arrays, name, role)
    if array.ndim == 0 or len(array) != count:
        raise RunError(f"{path}: {name!r} must have {count} rows, one for each sequence, got {array.shape}")
    return array


def _get(path: Path, arrays: Arrays, name: str, role: str) -> npt.NDArray[Any]:
    if name not in arrays:
        raise RunError(f"{path} has no array {name!r} for {role}; it has {', '.join(arrays) or 'none'}")
    return arrays[name]
