"""UCI HAR as it is published: text files of inertial signals, in a folder, in a zip, or in a zip in a zip."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from ..files import RunError
from .archive import copy_member, opened_zip, read_member

CHANNELS = tuple(f"{sensor}_{axis}" for sensor in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")
PARTS = ("train", "test")
STEPS = 128
LABELS, SUBJECTS = 6, 30
LARGEST_TEXT = 1 << 26
LARGEST_INNER = 1 << 28
SIGN = "train/y_train.txt"
"""Where this file is, is the data."""

Arrays = dict[str, npt.NDArray[np.generic]]
Read = Callable[[str], bytes]
"""The content of one of the published files, by its path in the data's own folder."""


def read_source(source: Path) -> Arrays:
    """`X_train` (N, 128, 9) float32, `y_train` and `subject_train` (N,) int8, and the same of `test`.

    Args:
        source: the archive from UCI, the zip inside it, or the folder they unpack to.
    """
    with _opened(source) as read:
        arrays: Arrays = {}
        for part in PARTS:
            arrays |= _read_part(read, part, str(source))
    if shared := set(arrays["subject_train"].tolist()) & set(arrays["subject_test"].tolist()):
        raise RunError(f"{source} is not UCI HAR: people {sorted(shared)} are in both parts")
    return arrays


@contextmanager
def _opened(source: Path) -> Iterator[Read]:
    if source.is_dir():
        yield _folder(source)
    elif source.exists():
        with _zipped(source, str(source), nested=1) as read:
            yield read
    else:
        raise RunError(f"cannot read {source}: there is no such file or folder")


def _folder(source: Path) -> Read:
    root = next((each for each in (source, source / "UCI HAR Dataset") if (each / SIGN).is_file()), None)
    if root is None:
        raise RunError(f"{source} does not hold UCI HAR: it has no {SIGN}")

    def read(path: str) -> bytes:
        try:
            with open(root / path, "rb") as file:
                content = file.read(LARGEST_TEXT + 1)
        except FileNotFoundError as error:
            raise RunError(f"{source} is not all of UCI HAR: it has no {path}") from error
        except OSError as error:
            raise RunError(f"cannot read {root / path}: {error.strerror}") from error
        if len(content) > LARGEST_TEXT:
            raise RunError(f"{root / path} is not of UCI HAR: it has more than {LARGEST_TEXT:,} bytes")
        return content

    return read


@contextmanager
def _zipped(file: Path | IO[bytes], name: str, nested: int) -> Iterator[Read]:
    with opened_zip(file, name) as archive:
        names = [each for each in archive.namelist() if not each.startswith("__MACOSX/")]
        roots = [each.removesuffix(SIGN) for each in names if f"/{each}".endswith(f"/{SIGN}")]
        if len(roots) == 1:
            yield _member_reader(archive, roots[0], name)
            return
        inner = [each for each in names if each.lower().endswith(".zip")]
        if len(inner) != 1:
            raise RunError(f"{name} does not hold UCI HAR: it has no {SIGN}")
        if not nested:
            raise RunError(f"{name} is refused: it is a zip in a zip in a zip")
        with tempfile.TemporaryFile() as copy:
            copy_member(archive, inner[0], name, copy, LARGEST_INNER)
            with _zipped(copy, f"{name}/{inner[0]}", nested - 1) as read:
                yield read


def _member_reader(archive: zipfile.ZipFile, root: str, name: str) -> Read:
    present = set(archive.namelist())

    def read(path: str) -> bytes:
        if root + path not in present:
            raise RunError(f"{name} is not all of UCI HAR: it has no {path}")
        return read_member(archive, root + path, name, LARGEST_TEXT)

    return read


def _read_part(read: Read, part: str, name: str) -> Arrays:
    y = _numbers(read, f"{part}/y_{part}.txt", name, np.int64, 1)[:, 0]
    subject = _numbers(read, f"{part}/subject_{part}.txt", name, np.int64, 1)[:, 0]
    for what, values, most in (("y", y, LABELS), ("subject", subject, SUBJECTS)):
        if len(values) != len(y) or values.min() < 1 or values.max() > most:
            raise RunError(f"{name} is not UCI HAR: {what}_{part}.txt should be {len(y)} numbers of 1 to {most}")
    x = np.empty((len(y), STEPS, len(CHANNELS)), np.float32)
    for index, channel in enumerate(CHANNELS):
        path = f"{part}/Inertial Signals/{channel}_{part}.txt"
        signal = _numbers(read, path, name, np.float64, STEPS)  # (N, 128)
        if len(signal) != len(y) or not np.isfinite(signal).all():
            raise RunError(f"{name} is not UCI HAR: {path} should be {len(y)} rows of finite numbers")
        x[:, :, index] = signal
    return {
        f"X_{part}": x,
        f"y_{part}": (y - 1).astype(np.int8),
        f"subject_{part}": subject.astype(np.int8),
    }


def _numbers(read: Read, path: str, name: str, dtype: type[np.generic], columns: int) -> npt.NDArray[np.generic]:
    content = read(path)
    try:
        if not content.strip():
            raise ValueError("it is empty")
        table = np.loadtxt(io.BytesIO(content), dtype=dtype, comments=None, ndmin=2, encoding="ascii")
        if table.shape[1] != columns:
            raise ValueError(f"it has {table.shape[1]} columns, not {columns}")
    except ValueError as error:
        raise RunError(f"{name} is damaged: {path}: {error}") from error
    return table
