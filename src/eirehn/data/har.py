"""UCI HAR: six activities measured by a phone at the waist, windows of 128 steps of 9 signals."""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .._internal.checks import boolean, finite, non_negative_int, positive_int
from .._internal.files import RunError, replacing
from .dataset import Augment, Floats, Split, Splits, load_npz, moments, sent
from .download import Remote, kept

FILE = "har.npz"
CHANNELS = tuple(f"{sensor}_{axis}" for sensor in ("body_acc", "body_gyro", "total_acc") for axis in "xyz")
SIGNALS = tuple(
    f"{name} {axis}" for name in ("body acceleration", "angular velocity", "total acceleration") for axis in "xyz"
)
"""Readable names of `CHANNELS`."""
ACTIVITIES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")
REMOTES = (
    Remote(
        "human+activity+recognition+using+smartphones.zip",
        "https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip",
        "sha256:c00b803081a5c797cd5e4b83700a9810b38d53d9d84e01917e090e1fdbc81031",
        61_005_872,
    ),
    Remote(
        "UCI HAR Dataset.zip",
        "https://archive.ics.uci.edu/ml/machine-learning-databases/00240/UCI%20HAR%20Dataset.zip",
        "sha256:2045e435c955214b38145fb5fa00776c72814f01b203fec405152dac7d5bfeb0",
        60_999_314,
    ),
)
"""The current archive, and the older one inside it."""
PUBLISHED = {
    "X_train": "dfb253d683f435896a89cb554fcdef7f2f1b94ba708bf4914703d9274aefdf0f",
    "y_train": "112504dbfe3f70eef01bfa1a74fbb57cd261746705cb180a144d60a2c3f213f3",
    "subject_train": "25d6d7e58b8f2d83048f298d7400c7159b9c4dd34fad0dbb6ab34d121dc41db1",
    "X_test": "3cd963b0ee17dd76ef05b5185c3ead32a36f94c57ec8b85734d4b64df053629d",
    "y_test": "35d7f76e281b381afbad13d4188ba65120eae8fed6163bf83baa85383b5bdb98",
    "subject_test": "c76b8d54f3893475092811ac9812afc91c77e285b62b289bb045bb3fc71deacc",
}
"""`digest` of each array: compressed files differ between versions of zlib."""
LICENCE = (
    "CC BY 4.0 (UCI Machine Learning Repository, data set 240, doi:10.24432/C54S4K); the README inside says that "
    "commercial use is prohibited: treat it as data for research"
)
CITATION = (
    "D. Anguita, A. Ghio, L. Oneto, X. Parra, J. L. Reyes-Ortiz, “A Public Domain Dataset for Human Activity "
    "Recognition Using Smartphones”, ESANN 2013, Bruges"
)
STEPS, LABELS, SUBJECTS = 128, 6, 30
LARGEST = 1 << 27
LARGEST_TEXT = 1 << 26
LARGEST_INNER = 1 << 28
"""Most bytes of a prepared file, of a published text and of the inner archive."""
PLACES = ("", "UCI HAR Dataset/")
SIGN = "train/y_train.txt"
"""The file by which the data folder is found."""
INNER = "UCI HAR Dataset.zip"
TRIES = 1000

Arrays = dict[str, npt.NDArray[Any]]
Read = Callable[[str], bytes]
"""The content of one of the published files, by its path in the data's own folder."""


class Windows(NamedTuple):
    x: npt.NDArray[np.float32]  # (N, 128, 9)
    target: npt.NDArray[np.int64]  # (N,): 0 to 5
    subject: npt.NDArray[np.int64]  # (N,): 1 to 30


class Har(NamedTuple):
    """The published parts; no person is in both."""

    train: Windows
    test: Windows


def prepare(source: Path, target: Path) -> Har:
    """Writes `target`, a compressed npz, from what UCI publishes (see `read_source`) or from another such npz."""
    arrays: dict[str, Any] = load_npz(source, LARGEST) if source.suffix == ".npz" else read_source(source)
    har = _checked(arrays, source)
    with replacing(target) as file:
        np.savez_compressed(file, **arrays)
    return har


def read(path: Path) -> Har:
    """What `prepare` wrote, checked to be the published data."""
    return _checked(load_npz(path, LARGEST), path)


def _checked(arrays: Arrays, path: Path) -> Har:
    for key, expected in PUBLISHED.items():
        dtype = np.float32 if key.startswith("X") else np.int8
        if key not in arrays or arrays[key].dtype != dtype or digest(arrays[key]) != expected:
            raise RunError(f"{path} is not the published data: {key} differs")
    parts = ((arrays[f"{name}_{part}"] for name in ("X", "y", "subject")) for part in ("train", "test"))
    return Har(*(Windows(x, y.astype(np.int64), subject.astype(np.int64)) for x, y, subject in parts))


def digest(array: npt.NDArray[np.generic]) -> str:
    """SHA-256 of the shape and the values, in little-endian order on every machine."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return hashlib.sha256(f"{array.shape}".encode() + little.tobytes()).hexdigest()


def read_source(source: Path) -> Arrays:
    """`X_train` (N, 128, 9) float32, `y_train` and `subject_train` (N,) int8, and the same of `test`.

    Args:
        source: the archive from UCI, the zip inside it, or the folder they unpack to.
    """
    if not source.exists():
        raise RunError(f"cannot read {source}: no such file or folder")
    try:
        if source.is_dir():
            return _read_parts(_folder(source), source)
        with _zipped(source, source) as read:
            return _read_parts(read, source)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
        raise RunError(f"{source} is damaged or not a zip file: {error}") from error
    except OSError as error:
        raise RunError(f"cannot read {error.filename or source}: {error.strerror or error}") from error


def _folder(source: Path) -> Read:
    root = next((source / place for place in PLACES if (source / place / SIGN).is_file()), None)
    if root is None:
        raise RunError(f"{source} is not UCI HAR: it has no {SIGN}")

    def read(path: str) -> bytes:
        with open(root / path, "rb") as file:
            return _bounded(file, path, LARGEST_TEXT)

    return read


@contextmanager
def _zipped(file: Path | IO[bytes], source: Path, *, nested: bool = False) -> Iterator[Read]:
    """Files of a zip, or of the zip inside it, read without unpacking."""
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
        root = next((place for place in PLACES if place + SIGN in names), None)

        def read(path: str, most: int = LARGEST_TEXT) -> bytes:
            if path not in names:
                raise RunError(f"{source} is not the whole of UCI HAR: it has no {path}")
            member = archive.getinfo(path)
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise RunError(f"{source} is refused: {path} is not compressed as in the published file")
            with archive.open(member) as content:
                return _bounded(content, path, most)

        if root is not None:
            yield lambda path: read(root + path)
        elif INNER in names and not nested:
            with _zipped(io.BytesIO(read(INNER, LARGEST_INNER)), source, nested=True) as inner:
                yield inner
        else:
            raise RunError(f"{source} is not UCI HAR: it has no {SIGN}")


def _bounded(file: IO[bytes], path: str, most: int) -> bytes:
    content = file.read(most + 1)
    if len(content) > most:
        raise RunError(f"{path} is refused: it has more than {most:,} bytes")
    return content


def _read_parts(read: Read, source: Path) -> Arrays:
    arrays: Arrays = {}
    for part in ("train", "test"):
        y, subject = (
            _numbers(read, f"{part}/{name}_{part}.txt", source, np.int64)[:, 0] for name in ("y", "subject")
        )
        arrays[f"X_{part}"] = np.empty((len(y), STEPS, len(CHANNELS)), np.float32)
        for index, channel in enumerate(CHANNELS):
            path = f"{part}/Inertial Signals/{channel}_{part}.txt"
            signal = _numbers(read, path, source, np.float64)  # (N, 128)
            if signal.shape != (len(y), STEPS):
                raise RunError(f"{source} is not UCI HAR: {path} has {signal.shape} numbers, not {(len(y), STEPS)}")
            with np.errstate(over="ignore"):
                arrays[f"X_{part}"][:, :, index] = signal
        arrays |= {f"y_{part}": (y - 1).astype(np.int8), f"subject_{part}": subject.astype(np.int8)}
    return arrays


def _numbers(read: Read, path: str, source: Path, dtype: type[np.generic]) -> npt.NDArray[Any]:
    content = read(path)
    try:
        if not content.strip():
            raise ValueError("it is empty")
        return np.loadtxt(io.BytesIO(content), dtype, comments=None, ndmin=2, encoding="ascii")
    except ValueError as error:
        raise RunError(f"{source} is damaged: {path}: {error}") from error


@dataclass(frozen=True)
class HarData:
    """Human activity recognition (UCI HAR): windows of phone sensor data, each of one of six activities.

    Its published split is by people; some people of the training data are held out for validation.
    `eirehn data har` downloads it.

    Examples:
        >>> from eirehn.data import HarData
        >>> data = HarData(frame=4)
        >>> data.task, data.input_size, data.output_size
        ('classification', 36, 6)
    """

    held_out: int = 4
    """People of the training data whose windows are for validation. 0: none, and validation is empty."""
    seed: int = 0
    """Random seed of the choice of these people."""
    standardise: bool = True
    """Shift and scale each signal to mean 0 and standard deviation 1 over the training windows."""
    frame: int = 1
    """Time steps concatenated to one: 1, or 2, 4, … 128."""
    tilt: float = 0.0
    """Augmentation: rotate the phone of each training window by random angles of this standard deviation, in
    degrees."""
    gain: float = 0.0
    """Augmentation: scale each training window by a random factor whose logarithm has this standard deviation."""
    windows: int | None = None
    """Largest number of training windows, evenly spread over all; all where null."""

    kind: ClassVar[str] = "har"
    task = "classification"
    output_size = LABELS
    classes = ACTIVITIES
    signals = SIGNALS

    def __post_init__(self) -> None:
        non_negative_int("seed", self.seed)
        if non_negative_int("held_out", self.held_out) >= SUBJECTS:
            raise ValueError(f"held_out must be less than {SUBJECTS}, got {self.held_out}")
        boolean("standardise", self.standardise)
        if self.windows is not None:
            positive_int("windows", self.windows)
        if positive_int("frame", self.frame) > STEPS or STEPS % self.frame:
            raise ValueError(f"frame must divide {STEPS}, got {self.frame}")
        finite("tilt", self.tilt, least=0.0)
        finite("gain", self.gain, least=0.0)

    @property
    def input_size(self) -> int:
        return len(CHANNELS) * self.frame

    @property
    def augment(self) -> Augment | None:
        if not (self.tilt or self.gain):
            return None
        mean, scale = _standard(self)
        return partial(moved, mean=mean, scale=scale, tilt=math.radians(self.tilt), gain=self.gain)

    def smaller(self, train: int) -> HarData:
        return replace(self, windows=train)

    def load(self) -> Splits:
        """Returns training, validation and test data, from the files that `eirehn data har` downloaded."""
        return self.splits(read(kept("har", FILE)))

    def splits(self, har: Har) -> Splits:
        parts = self._parts(har)
        mean, scale = self._moments(parts[0])

        def split(part: Windows) -> Split:
            x = torch.from_numpy(((part.x - mean) / scale).astype(np.float32))
            return Split(x.unflatten(1, (-1, self.frame)).flatten(2), torch.from_numpy(part.target))

        return Splits(*map(split, parts))

    def _moments(self, train: Windows) -> tuple[Floats, Floats]:
        """Mean and deviation of each signal over windows and steps, (9,) each, where they are standardised."""
        mean, scale = moments(train.x.reshape(-1, len(CHANNELS)).astype(np.float64), self.standardise)
        return np.array(mean), np.array(scale)

    def _parts(self, har: Har) -> tuple[Windows, Windows, Windows]:
        out = np.isin(har.train.subject, held_out_subjects(har.train, self.held_out, self.seed))
        train, validation = (_those(har.train, which) for which in (np.flatnonzero(~out), np.flatnonzero(out)))
        if self.windows is not None and self.windows < len(train.x):
            train = _those(train, np.linspace(0, len(train.x) - 1, self.windows).round().astype(np.int64))
        return train, validation, har.test


@lru_cache(4)
def _standard(data: HarData) -> tuple[Floats, Floats]:
    """The shift and the scale of each signal in `data.load()`."""
    return data._moments(data._parts(read(kept("har", FILE)))[0])


def _those(windows: Windows, which: npt.NDArray[np.int64]) -> Windows:
    return Windows(windows.x[which], windows.target[which], windows.subject[which])


def held_out_subjects(windows: Windows, count: int, seed: int) -> list[int]:
    """`count` random people, such that both they and the rest do every activity."""
    people = np.unique(windows.subject)
    if count >= len(people):
        raise ValueError(f"held_out must be less than the {len(people)} people there are, got {count}")
    random = np.random.default_rng(seed)
    classes = np.unique(windows.target)
    for _ in range(TRIES):
        chosen = np.sort(random.permutation(people)[:count])
        out = np.isin(windows.subject, chosen)
        if not count or all(len(np.unique(windows.target[which])) == len(classes) for which in (out, ~out)):
            return [int(each) for each in chosen]
    raise ValueError(f"no {count} people found such that both they and the rest do all {len(classes)} activities")


def moved(
    batch: Sequence[Tensor],
    random: Sequence[np.random.Generator],
    *,
    mean: Floats,
    scale: Floats,
    tilt: float,
    gain: float,
) -> tuple[Tensor, ...]:
    """Windows (M, B, T, frame · 9), randomly rotated and scaled.

    The signals are three vectors in space, which are rotated together. `mean` and `scale` are those of their
    standardisation.
    """
    x, *rest = batch
    turns = np.stack([_turns(each, x.size(1), tilt, gain) for each in random])  # (M, B, 3, 3)
    matrix, middle, unit = (sent(each, x) for each in (turns, mean.reshape(3, 3), scale.reshape(3, 3)))
    vectors = x.unflatten(3, (-1, 3, 3)) * unit + middle  # (M, B, T, frame, 3 vectors, 3)
    # Not a matrix product: its rounding depends on the processor.
    axes = zip(vectors.unbind(-1), matrix[:, :, None, None, None].unbind(-1), strict=True)
    x, y, z = (value.unsqueeze(-1) * axis for value, axis in axes)  # (M, B, T, frame, 3 vectors, 3)
    turned = x + y + z
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
