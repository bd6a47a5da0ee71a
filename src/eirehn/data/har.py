"""UCI HAR: what a phone at the waist feels of six activities, windows of 128 steps of 9 signals."""

from __future__ import annotations

import hashlib
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..checks import boolean, finite, positive_int
from ..files import RunError, replacing
from .archive import opened_zip
from .download import Remote
from .folder import kept
from .har_motion import moved
from .har_source import CHANNELS, LABELS, STEPS, SUBJECTS, Arrays, read_source
from .splits import Augment, Split, Splits

FILE = "har.npz"
SIGNALS = tuple(
    f"{name} {axis}" for name in ("body acceleration", "angular velocity", "total acceleration") for axis in "xyz"
)
"""As `har_source.CHANNELS`, for people."""
ACTIVITIES = ("walking", "walking upstairs", "walking downstairs", "sitting", "standing", "laying")
REMOTES = (
    Remote(
        "human+activity+recognition+using+smartphones.zip",
        ("https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip",),
        "sha256:c00b803081a5c797cd5e4b83700a9810b38d53d9d84e01917e090e1fdbc81031",
        61_005_872,
    ),
    Remote(
        "UCI HAR Dataset.zip",
        ("https://archive.ics.uci.edu/ml/machine-learning-databases/00240/UCI%20HAR%20Dataset.zip",),
        "sha256:2045e435c955214b38145fb5fa00776c72814f01b203fec405152dac7d5bfeb0",
        60_999_314,
    ),
)
"""The archive of today, and the one inside it, which is older: either will do."""
PUBLISHED = {
    "X_train": "dfb253d683f435896a89cb554fcdef7f2f1b94ba708bf4914703d9274aefdf0f",
    "y_train": "112504dbfe3f70eef01bfa1a74fbb57cd261746705cb180a144d60a2c3f213f3",
    "subject_train": "25d6d7e58b8f2d83048f298d7400c7159b9c4dd34fad0dbb6ab34d121dc41db1",
    "X_test": "3cd963b0ee17dd76ef05b5185c3ead32a36f94c57ec8b85734d4b64df053629d",
    "y_test": "35d7f76e281b381afbad13d4188ba65120eae8fed6163bf83baa85383b5bdb98",
    "subject_test": "c76b8d54f3893475092811ac9812afc91c77e285b62b289bb045bb3fc71deacc",
}
"""`digest` of each array: a compressed file of them differs from one zlib to another, they do not."""
LICENCE = (
    "CC BY 4.0 (UCI Machine Learning Repository, data set 240, doi:10.24432/C54S4K); the README inside says that "
    "commercial use is prohibited: treat it as data for research"
)
CITATION = (
    "D. Anguita, A. Ghio, L. Oneto, X. Parra, J. L. Reyes-Ortiz, “A Public Domain Dataset for Human Activity "
    "Recognition Using Smartphones”, ESANN 2013, Bruges"
)
LARGEST = 1 << 27
TRIES = 1000


class Windows(NamedTuple):
    x: npt.NDArray[np.float32]  # (N, 128, 9)
    target: npt.NDArray[np.int64]  # (N,): 0 to 5
    subject: npt.NDArray[np.int64]  # (N,): 1 to 30


class Har(NamedTuple):
    """The published parts, as measured; nobody is in both."""

    train: Windows
    test: Windows


class Subjects(NamedTuple):
    """Who each window of `Splits` is of."""

    train: Tensor  # (N,)
    validation: Tensor
    test: Tensor


def prepare(source: Path, target: Path, *, published: Mapping[str, str] = PUBLISHED) -> Har:
    """Writes `target`, a compressed npz, from what UCI publishes (see `read_source`) or from another such npz."""
    arrays = _arrays(source) if source.suffix == ".npz" else read_source(source)
    _check(arrays, str(source), published)
    named: dict[str, Any] = dict(arrays)
    with replacing(target) as file:
        np.savez_compressed(file, **named)
    return _har(arrays)


def read(path: Path, *, published: Mapping[str, str] = PUBLISHED) -> Har:
    """What `prepare` wrote, checked to be the published data."""
    arrays = _arrays(path)
    _check(arrays, str(path), published)
    return _har(arrays)


def _arrays(path: Path) -> Arrays:
    with opened_zip(path, str(path)) as archive:
        if sum(member.file_size for member in archive.infolist()) > LARGEST:
            raise RunError(f"{path} is not the published data: it is too large")
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in PUBLISHED}
    except KeyError as error:
        raise RunError(f"{path} is not the published data: {error.args[0]}") from error
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise RunError(f"{path} is damaged: {error}") from error


def _check(arrays: Arrays, name: str, published: Mapping[str, str]) -> None:
    for key, array in arrays.items():
        expected = np.dtype(np.float32 if key.startswith("X") else np.int8)
        if array.dtype != expected or digest(array) != published[key]:
            raise RunError(f"{name} is not the published data: {key} differs")


def digest(array: npt.NDArray[np.generic]) -> str:
    """SHA-256 of the shape and the values in order, the lowest byte of each first, whatever machine this is."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return hashlib.sha256(f"{array.shape}".encode() + little.tobytes()).hexdigest()


def _har(arrays: Arrays) -> Har:
    parts = (
        Windows(
            arrays[f"X_{part}"].astype(np.float32, copy=False),
            arrays[f"y_{part}"].astype(np.int64),
            arrays[f"subject_{part}"].astype(np.int64),
        )
        for part in ("train", "test")
    )
    return Har(*parts)


@dataclass(frozen=True)
class HarData:
    """UCI HAR, its published split by people; some people of the training part are held out to choose by."""

    held_out: int = 4
    """People of the training part whose windows are for validation. 0: none, and validation is empty."""
    seed: int = 0
    """Which people they are."""
    standardise: bool = True
    """Shift and scale each signal to mean 0 and deviation 1 over the windows to train on."""
    frame: int = 1
    """Time steps read at once, as one step of so many times the signals: 1, or 2, 4, … 128."""
    tilt: float = 0.0
    """Turn the phone of each window to train on by angles of this deviation, in degrees, each time it is drawn."""
    gain: float = 0.0
    """And scale it by a factor whose logarithm has this deviation."""
    windows: int | None = None
    """At most so many windows to train on, evenly spread over what there is; all where null."""

    kind: ClassVar[str] = "har"
    task = "classification"
    output_size = LABELS
    classes = ACTIVITIES
    signals = SIGNALS

    def __post_init__(self) -> None:
        for name in ("held_out", "seed"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"{name} must be an integer of at least 0, got {value!r}")
        if self.held_out >= SUBJECTS:
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
        return self.splits(read(kept("har", FILE)))

    def subjects(self) -> Subjects:
        """Who each window of `load()` is of."""
        return Subjects(*(torch.from_numpy(part.subject) for part in self._parts(read(kept("har", FILE)))))

    def splits(self, har: Har) -> Splits:
        parts = self._parts(har)
        mean, scale = self._moments(parts[0])
        return Splits(
            *(
                Split(
                    torch.from_numpy(((part.x - mean) / scale).astype(np.float32))
                    .unflatten(1, (-1, self.frame))
                    .flatten(2),
                    torch.from_numpy(part.target),
                )
                for part in parts
            )
        )

    def _moments(self, train: Windows) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        return _moments(train.x) if self.standardise else (np.zeros(len(CHANNELS)), np.ones(len(CHANNELS)))

    def _parts(self, har: Har) -> tuple[Windows, Windows, Windows]:
        out = np.isin(har.train.subject, held_out_subjects(har.train, self.held_out, self.seed))
        train, validation = (_those(har.train, which) for which in (np.flatnonzero(~out), np.flatnonzero(out)))
        if self.windows is not None and self.windows < len(train.x):
            train = _those(train, np.linspace(0, len(train.x) - 1, self.windows).round().astype(np.int64))
        return train, validation, har.test


@lru_cache(4)
def _standard(data: HarData) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """What `data.load()` takes off the signals and divides them by."""
    return data._moments(data._parts(read(kept("har", FILE)))[0])


def _those(windows: Windows, which: npt.NDArray[np.int64]) -> Windows:
    return Windows(windows.x[which], windows.target[which], windows.subject[which])


def held_out_subjects(windows: Windows, count: int, seed: int) -> list[int]:
    """`count` people, drawn by `seed`, such that every activity is done by some of them and by some of the rest."""
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
    raise ValueError(f"no {count} people found who, and whose rest, do all {len(classes)} activities")


def _moments(x: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and deviation of each signal over windows and steps, (9,) each."""
    mean, scale = x.mean((0, 1), dtype=np.float64), x.std((0, 1), dtype=np.float64)
    return mean, np.where(scale > 0, scale, 1.0)
