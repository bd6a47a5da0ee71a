"""A user's file as a data set to train on."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ...checks import boolean, positive_int
from ...files import RunError
from ...models import Scaling
from ..arrays import check_single, moments, padded
from ..splits import Split, Splits
from .cases import Cases, Floats, Roles
from .csv_files import read_csv
from .npz_files import read_npz
from .splitting import Division, divide

TASKS = ("classification", "regression")
WEIGHTS = ("none", "balanced")
LAYOUTS = (".npz", ".csv", ".tsv", ".txt")


class Content(NamedTuple):
    """All that a file gives."""

    splits: Splits
    scaling: Scaling
    classes: tuple[int | str, ...]
    weights: tuple[float, ...] | None
    division: Division


@dataclass(frozen=True)
class FileData:
    """Your own sequences, from an npz or a CSV file; each has one class, or one number, to be predicted."""

    path: str = ""
    """The npz or CSV file."""
    task: str = "classification"
    """classification: the target is a class; or regression: it is a number."""
    target: str = "y"
    """Column (CSV) or array (npz) of what is to be predicted."""
    values: tuple[str, ...] = ()
    """Columns (CSV) of the signals, in order; all without another role where empty. Of an npz file the one array, X
    where empty."""
    sequence: str | None = None
    """Column that says which sequence a row belongs to: then a row is a time step (long); otherwise it is a whole
    sequence (wide)."""
    time: str | None = None
    """Column by which the rows of a sequence are ordered (long); as they stand where null."""
    group: str | None = None
    """Column or array of what must not be in two parts: a person, a machine, a day."""
    split: str | None = None
    """Column or array that says train, validation or test; parts it does not name are drawn."""
    channels: int = 1
    """Values of a time step that stand side by side in a wide CSV file."""
    ragged: bool = False
    """Let a sequence end where only missing values follow, in a wide CSV or an npz file."""
    delimiter: str = ","
    """What separates the cells of a CSV file; `tab` for tabs."""
    encoding: str = "utf-8"
    """Of a CSV file without a byte-order mark."""
    validation: float = 0.0
    """Share of the sequences, or groups, that choose the best epoch. 0: none, and it is the last, as is best for
    small files, where a handful of sequences cannot tell."""
    test: float = 0.15
    """Share of the sequences, or groups, that give the result."""
    seed: int = 0
    """Which those are."""
    standardise: bool = True
    """Shift and scale each signal, and a number to be predicted, to mean 0 and deviation 1 over the sequences to
    train on."""
    class_weights: str = "none"
    """What an error counts: none: the same for each sequence; balanced: the same for each class in all."""
    sha256: str | None = None
    """The file's checksum; another file is refused. `eirehn train` fills it in."""

    kind: ClassVar[str] = "files"
    last = True
    augment = None

    def __post_init__(self) -> None:
        for name, accepted in (("task", TASKS), ("class_weights", WEIGHTS)):
            if getattr(self, name) not in accepted:
                raise ValueError(f"{name} must be one of {', '.join(accepted)}, got {getattr(self, name)!r}")
        for name in ("validation", "test"):
            share = getattr(self, name)
            if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {share!r}")
        if self.test == 0:
            raise ValueError("test must be above 0: there is no result otherwise")
        if self.validation + self.test >= 1:
            raise ValueError(
                f"validation and test must leave something to train on, got {self.validation} and {self.test}"
            )
        if not isinstance(self.seed, int) or isinstance(self.seed, bool) or self.seed < 0:
            raise ValueError(f"seed must be an integer of at least 0, got {self.seed!r}")
        positive_int("channels", self.channels)
        boolean("ragged", self.ragged)
        boolean("standardise", self.standardise)
        if len(self.delimiter) != 1 and self.delimiter != "tab":
            raise ValueError(f"delimiter must be one letter or `tab`, got {self.delimiter!r}")
        if self.class_weights != "none" and self.task != "classification":
            raise ValueError("class_weights are for a classification")

    @property
    def input_size(self) -> int:
        return self._content().splits.train.x.size(-1)

    @property
    def output_size(self) -> int:
        content = self._content()
        return len(content.classes) if self.task == "classification" else content.splits.train.target.size(-1)

    @property
    def classes(self) -> tuple[int | str, ...]:
        """What the outputs of a classification stand for."""
        return self._content().classes

    @property
    def scaling(self) -> Scaling:
        """From the file's units to those trained in."""
        return self._content().scaling

    @property
    def weights(self) -> tuple[float, ...] | None:
        """What an error on each class counts."""
        return self._content().weights

    @property
    def division(self) -> Division:
        """Which sequences of the file are in which part, by their numbers from 0."""
        return self._content().division

    def load(self) -> Splits:
        return self._content().splits

    def smaller(self, train: int) -> FileData:
        raise ValueError("a file of your own is trained on as a whole")

    def pinned(self) -> FileData:
        """With a path that holds in every folder, and for this very content of the file."""
        path = self._path().resolve()
        return dataclasses.replace(self, path=str(path), sha256=self.sha256 or _checksum(path))

    def _path(self) -> Path:
        if not self.path:
            raise ValueError("data.path must name an npz or CSV file (eirehn train --data FILE)")
        path = Path(self.path).expanduser()
        if path.suffix.lower() not in LAYOUTS:
            raise ValueError(f"path must end in {', '.join(LAYOUTS)}, got {path.name!r}")
        if not path.is_file():
            raise RunError(f"there is no file {path}")
        return path

    def _content(self) -> Content:
        path = self._path()
        try:
            about = path.stat()
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}") from error
        return _content(self, path, (about.st_mtime_ns, about.st_size))

    def _cases(self, path: Path) -> Cases:
        roles = Roles(self.target, self.values, self.sequence, self.time, self.group, self.split)
        if path.suffix.lower() == ".npz":
            return read_npz(path, roles, task=self.task, ragged=self.ragged)
        tabs = self.delimiter == "tab" or (path.suffix.lower() == ".tsv" and self.delimiter == ",")
        return read_csv(
            path,
            roles,
            task=self.task,
            channels=self.channels,
            ragged=self.ragged,
            delimiter="\t" if tabs else self.delimiter,
            encoding=self.encoding,
        )


@functools.lru_cache(maxsize=2)
def _content(data: FileData, path: Path, stamp: tuple[int, int]) -> Content:
    """Read once for each time `stamp` the file was written."""
    if data.sha256 is not None and _checksum(path) != data.sha256:
        raise RunError(f"{path} has changed since it was first trained on; choose another folder for a new run")
    cases = data._cases(path)
    classes, codes = _classes(path, cases) if data.task == "classification" else ((), None)
    shares: dict[str, Any] = {"validation": data.validation, "test": data.test, "seed": data.seed}
    division = divide(len(cases.x), codes, cases.group, cases.part, **shares)
    if codes is not None:
        _check_known(path, classes, codes, division)
    target: npt.NDArray[Any] = cases.target if codes is None else codes
    scaling = _scaling(data, [cases.x[row] for row in division.train], target[division.train])
    splits = Splits(*(_split(cases.x, target, rows, scaling, codes is None) for rows in division))
    if all(len(each) == len(cases.x[0]) for each in cases.x):
        splits = Splits(*(split._replace(lengths=None) for split in splits))
    weights = None
    if data.class_weights == "balanced":
        counts = np.bincount(np.asarray(codes)[division.train], minlength=len(classes))
        weights = tuple((counts.sum() / (len(classes) * counts)).tolist())
    return Content(splits, scaling, classes, weights, division)


def _classes(path: Path, cases: Cases) -> tuple[tuple[int | str, ...], npt.NDArray[np.int64]]:
    """The names of the classes in order, and which each sequence is of. They are ordered as numbers where they can
    be read as such, and are numbers where all are written as such: 007 and 1_0 are names, and not of 7 and 10."""
    texts, codes = np.unique(cases.target, return_inverse=True)
    names: list[int | str] = texts.tolist()
    order, numbers = np.arange(len(names)), _numbers(texts)
    if len(set(numbers)) == len(names):
        order = np.argsort(numbers)
        names = [names[at] for at in order]
        if all(str(number) == text for number, text in zip(numbers, texts, strict=True)):
            names = sorted(numbers)
    if len(names) < 2:
        raise RunError(f"{path} has one class only, {names[0]!r}: there is nothing to tell apart")
    return tuple(names), np.argsort(order)[codes.reshape(-1)]


def _numbers(texts: npt.NDArray[Any]) -> list[int]:
    """Empty where one of the texts is no number."""
    try:
        return [int(text) for text in texts]
    except ValueError:
        return []


def _check_known(
    path: Path, classes: tuple[int | str, ...], codes: npt.NDArray[np.int64], division: Division
) -> None:
    """That every class is among those to train on."""
    for code in sorted(set(range(len(classes))) - set(codes[division.train].tolist())):
        raise RunError(f"{path}: no sequence to train on is of class {classes[code]!r}")


def _scaling(data: FileData, x: list[Floats], target: npt.NDArray[Any]) -> Scaling:
    channels, outputs = x[0].shape[1], target.shape[1] if target.ndim == 2 else 1
    if not data.standardise:
        return Scaling((0.0,) * channels, (1.0,) * channels, (0.0,) * outputs, (1.0,) * outputs)
    mean, scale = moments(np.concatenate(x))
    if data.task == "classification":
        return Scaling(mean, scale)
    return Scaling(mean, scale, *moments(target))


def _split(
    x: list[Floats], target: npt.NDArray[Any], rows: npt.NDArray[np.int64], scaling: Scaling, numbers: bool
) -> Split:
    if len(rows):
        with np.errstate(over="ignore"):
            inputs, lengths = padded([(x[row] - scaling.mean) / scaling.scale for row in rows])
    else:
        inputs, lengths = torch.empty(0, 1, x[0].shape[1]), torch.empty(0, dtype=torch.int64)
    check_single(inputs, "the file")
    answers = target[rows]
    if numbers:
        with np.errstate(over="ignore"):
            answers = ((answers - scaling.target_mean) / scaling.target_scale).astype(np.float32)
    check_single(torch.from_numpy(answers), "the target")
    return Split(inputs, torch.from_numpy(answers), lengths)


def _checksum(path: Path) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
