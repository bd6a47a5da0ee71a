"""A user's file as a data set to train on."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from .._internal.checks import boolean, finite, non_negative_int, one_of, positive_int
from .._internal.files import RunError
from .dataset import Scaling, Splits, checksum, file_state, standardised
from .table_columns import Cases, read_columns
from .table_npz import read_npz

Indices = npt.NDArray[np.int64]
TRIES = 1000
TASKS = ("classification", "regression")
WEIGHTS = ("none", "balanced")
LAYOUTS = (".npz", ".csv", ".tsv", ".txt", ".parquet")


class Division(NamedTuple):
    train: Indices
    validation: Indices
    test: Indices


class Content(NamedTuple):
    """The content of a file, read and divided."""

    splits: Splits
    scaling: Scaling
    classes: tuple[int | str, ...]
    weights: tuple[float, ...] | None
    division: Division
    signals: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class FileData:
    """Your own sequences, from an npz, CSV or Parquet file; each has one class, or one number, to be predicted.

    Examples:
        >>> from eirehn.data import FileData
        >>> X, y = np.random.randn(40, 12, 3), np.repeat(["walk", "run"], 20)
        >>> np.savez("gait.npz", X=X, y=y)
        >>> data = FileData("gait.npz", test=0.25)
        >>> data.classes, data.load().train.x.shape
        (('run', 'walk'), torch.Size([30, 12, 3]))
    """

    path: str = ""
    """The npz, CSV or Parquet file."""
    task: str = "classification"
    """classification or regression."""
    target: str = "y"
    """Column (CSV, Parquet) or array (npz) of the target."""
    values: tuple[str, ...] = ()
    """Columns (CSV, Parquet) of the signals, in order; where empty, all without another role. For an npz file the
    one array; X where empty."""
    sequence: str | None = None
    """Column of the sequence that a row belongs to: then a row is a time step (long); otherwise it is a whole
    sequence (wide)."""
    time: str | None = None
    """Column by which the rows of a sequence are ordered (long); in the order of the file where null."""
    group: str | None = None
    """Column or array of groups, which stay in one part of the data: a person, a machine, a day."""
    split: str | None = None
    """Column or array with the values train, validation or test; a part that it does not name is drawn at
    random."""
    channels: int = 1
    """Values per time step in a wide file."""
    ragged: bool = False
    """In a wide or npz file, end a sequence where only missing values follow."""
    delimiter: str = ","
    """Delimiter of a CSV file; `tab` for tabs."""
    encoding: str = "utf-8"
    """Encoding of a CSV file without a byte-order mark."""
    validation: float = 0.0
    """Share of the sequences, or groups, for validation, which chooses the best epoch. 0: none, and the last epoch
    is used, which is better for small files."""
    test: float = 0.15
    """Share of the sequences, or groups, for the test, which gives the result."""
    seed: int = 0
    """Random seed of these parts."""
    standardise: bool = True
    """Shift and scale each signal, and the target of a regression, to mean 0 and standard deviation 1 over the
    training sequences."""
    class_weights: str = "none"
    """Weight of an error: none, the same for each sequence; or balanced, inversely proportional to the number of
    sequences of its class."""
    sha256: str | None = None
    """Checksum of the file; another file is refused. `eirehn train` sets it."""

    kind: ClassVar[str] = "files"
    last = True
    augment = None

    def __post_init__(self) -> None:
        one_of("task", self.task, TASKS)
        one_of("class_weights", self.class_weights, WEIGHTS)
        finite("validation", self.validation, least=0.0)
        finite("test", self.test, least=0.0)
        if self.test == 0:
            raise ValueError("test must be above 0: the result is measured on test data")
        if self.validation + self.test >= 1:
            raise ValueError(
                f"validation and test must be less than 1 together, got {self.validation} and {self.test}"
            )
        non_negative_int("seed", self.seed)
        positive_int("channels", self.channels)
        boolean("ragged", self.ragged)
        boolean("standardise", self.standardise)
        if len(self.delimiter) != 1 and self.delimiter != "tab":
            raise ValueError(f"delimiter must be one character or `tab`, got {self.delimiter!r}")
        if self.class_weights != "none" and self.task != "classification":
            raise ValueError("class_weights are for classification")

    @property
    def input_size(self) -> int:
        return self._content().splits.train.x.size(-1)

    @property
    def output_size(self) -> int:
        content = self._content()
        return len(content.classes) if self.task == "classification" else content.splits.train.target.size(-1)

    @property
    def classes(self) -> tuple[int | str, ...]:
        """The names of the classes, in the order of the outputs."""
        return self._content().classes

    @property
    def signals(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return self._content().signals

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the inputs are read from; empty for an npz file."""
        return self._content().columns

    @property
    def scaling(self) -> Scaling:
        """Converts the units of the file to those trained in."""
        return self._content().scaling

    @property
    def weights(self) -> tuple[float, ...] | None:
        """The weight of errors on each class."""
        return self._content().weights

    @property
    def division(self) -> Division:
        """The indices, from 0, of the sequences in each part."""
        return self._content().division

    def summary(self) -> str:
        """The file in one line: sequences, their lengths, signals, target and parts.

        Examples:
            >>> from eirehn.data import FileData
            >>> np.savez("my.npz", X=np.random.randn(40, 12, 2), y=np.arange(40) % 2)
            >>> print(FileData("my.npz", test=0.25).summary().partition(";")[0])
            my.npz: 40 sequences of 12 time steps, signals: channel 1, channel 2
        """
        parts, signals = self.load(), self.signals
        there = [part for part in parts if len(part.x)]
        lengths = [each for part in there for each in (part.x.shape[1:2] if part.lengths is None else part.lengths)]
        low, high = int(min(lengths)), int(max(lengths))
        steps = str(low) if low == high else f"{low} to {high}"
        shown = ", ".join(map(str, signals[:6])) + (", …" if len(signals) > 6 else "")
        target = f"{len(self.classes)} classes" if self.task == "classification" else f"target {self.target}"
        sizes = {"training": len(parts.train.x), "validation": len(parts.validation.x), "test": len(parts.test.x)}
        used = ", ".join(f"{size} for {name}" for name, size in sizes.items() if size)
        rows = ", a row each" if self.sequence is None and Path(self.path).suffix.lower() != ".npz" else ""
        content = f"{sum(sizes.values())} sequences of {steps} time steps{rows}, signals: {shown}; {target}; {used}"
        return f"{Path(self.path).name}: {content}"

    def load(self) -> Splits:
        """Returns training, validation and test data.

        Examples:
            >>> from eirehn.data import FileData
            >>> np.savez("gait.npz", X=np.random.randn(40, 12, 3), y=np.arange(40) % 2)
            >>> splits = FileData("gait.npz", validation=0.25, test=0.25).load()
            >>> len(splits.train.x), len(splits.validation.x), len(splits.test.x)
            (20, 10, 10)
        """
        return self._content().splits

    def smaller(self, train: int) -> FileData:
        raise ValueError("your own data cannot be made smaller")

    def pinned(self) -> FileData:
        """With an absolute path and the checksum of the file."""
        path = self._path().resolve()
        return replace(self, path=str(path), sha256=self.sha256 or checksum(path))

    def _path(self) -> Path:
        if not self.path:
            raise ValueError("data.path must name an npz, CSV or Parquet file (eirehn train --data FILE)")
        return _file("path", Path(self.path).expanduser())

    def _content(self) -> Content:
        path = self._path()
        return _content(self, path, file_state(path))


def _file(name: str, path: Path) -> Path:
    """The path of a file that exists and has one of the layouts."""
    if path.suffix.lower() not in LAYOUTS:
        raise ValueError(f"{name} must end in {', '.join(LAYOUTS)}, got {path.name!r}")
    if not path.is_file():
        raise RunError(f"there is no file {path}")
    return path


def new_sequences(path: Path, data: FileData, trained: Sequence[str] = ()) -> Cases:
    """The sequences of another file, to predict for: read as `data` says, without targets.

    Args:
        path: an npz, CSV or Parquet file.
        data: the data of the training.
        trained: the columns of its signals, `data.columns`, if they are known.
    """
    suffix = _file("the file of the sequences", path).suffix.lower()
    if suffix != ".npz":
        return read_columns(path, data, trained)
    if Path(data.path).suffix.lower() != ".npz":  # the roles of columns have no meaning here
        data = replace(data, sequence=None, time=None, values=())
    return read_npz(path, data, labelled=False)


@functools.lru_cache(maxsize=2)
def _content(data: FileData, path: Path, stamp: tuple[int, int]) -> Content:
    """Read once for each time `stamp` the file was written."""
    if data.sha256 is not None and checksum(path) != data.sha256:
        raise RunError(
            f"{path} has changed since it was first used for training; choose another folder for a new run"
        )
    cases = read_npz(path, data) if path.suffix.lower() == ".npz" else read_columns(path, data)
    classes, codes = _classes(path, cases) if data.task == "classification" else ((), None)
    division = divide(data, len(cases.x), codes, cases.group, cases.part)
    if codes is not None and (unseen := sorted(set(range(len(classes))) - set(codes[division.train].tolist()))):
        raise RunError(f"{path}: class {classes[unseen[0]]!r} has no training sequence")
    target: Any = cases.target if codes is None else codes
    ragged = any(len(each) != len(cases.x[0]) for each in cases.x)
    names = "the file", "the target"
    splits, scaling = standardised(cases.x, target, division, data.standardise, ragged=ragged, names=names)
    weights = None
    if data.class_weights == "balanced":
        counts = np.bincount(np.asarray(codes)[division.train], minlength=len(classes))
        weights = tuple((counts.sum() / (len(classes) * counts)).tolist())
    return Content(Splits(*splits), scaling, classes, weights, division, cases.signals, cases.columns)


def _classes(path: Path, cases: Cases) -> tuple[tuple[int | str, ...], Indices]:
    """The classes in order, and the class of each sequence. They are ordered as numbers if all can be read as such,
    and are numbers if all are written as such: 007 and 1_0 are names, not 7 and 10."""
    assert cases.target is not None
    texts, codes = np.unique(cases.target, return_inverse=True)
    names: list[int | str] = texts.tolist()
    order, numbers = np.arange(len(names)), []
    with suppress(ValueError):
        numbers = [int(text) for text in texts]
    if len(set(numbers)) == len(names):
        order = np.argsort(numbers)
        names = [names[at] for at in order]
        if all(str(number) == text for number, text in zip(numbers, texts, strict=True)):
            names = sorted(numbers)
    if len(names) < 2:
        raise RunError(f"{path} has only one class, {names[0]!r}; a classification needs two or more")
    return tuple(names), np.argsort(order)[codes.reshape(-1)]


def divide(data: FileData, count: int, classes: Any, group: Any, part: Any) -> Division:
    """Divides `count` sequences into parts, at random or as `part` (N,) says.

    Sequences of one `group` (N,) stay together. Each of the `classes` (N,) keeps its share in every part; with
    groups, every class has training sequences.
    """
    everything = np.arange(count)
    known = {name: everything[part == name] if part is not None else everything[:0] for name in Division._fields}
    rest = known["train"] if part is not None else everything
    random = np.random.default_rng(data.seed)
    validation = data.validation / (1 - data.test) if part is None else data.validation
    for name, share in (("test", data.test), ("validation", validation)):
        if share > 0 and not len(known[name]):
            known[name], rest = hold_out(rest, share, classes, group, random)
        if share > 0 and not len(known[name]):
            raise RunError(f"there are too few sequences, {count}: none is left for {name}")
    if not len(rest):
        raise RunError("no sequences are left for training")
    division = Division(rest, known["validation"], known["test"])
    found: dict[Any, str] = {}  # possible only in parts named by the file
    for name, rows in zip(Division._fields, division, strict=True) if group is not None else ():
        for each in np.unique(group[rows]).tolist():
            if found.setdefault(each, name) != name:
                raise RunError(f"group {each!r} is in two parts, {found[each]} and {name}")
    return division


def hold_out(rest: Indices, share: float, classes: Any, group: Any, random: Any) -> tuple[Indices, Indices]:
    """A random share of `rest`, and the others; see `divide`."""
    if group is not None:
        out = _whole_groups(rest, share, classes, group[rest], random)
    elif classes is not None:
        out = _of_each_class(rest, share, classes[rest], random)
    else:
        out = random.permutation(rest)[: min(len(rest) - 1, max(1, round(share * len(rest))))]
    return np.sort(out), np.setdiff1d(rest, out)


def _of_each_class(rest: Indices, share: float, classes: Any, random: Any) -> Indices:
    """A share of each class, and at least one of each that has two."""
    out = []
    for each in np.unique(classes):
        own = random.permutation(rest[classes == each])
        out.append(own[: min(len(own) - 1, max(1, round(share * len(own))))])
    return np.concatenate(out)


def _whole_groups(rest: Indices, share: float, classes: Any, group: Any, random: Any) -> Indices:
    groups = np.unique(group)
    count = min(len(groups) - 1, max(1, round(share * len(groups))))
    if count < 1:
        raise RunError(f"all sequences are of one group, {str(groups[0])!r}, which cannot be divided")
    good: Indices | None = None
    for _ in range(TRIES):
        out = np.isin(group, random.permutation(groups)[:count])
        if classes is None:
            return rest[out]
        inside, outside = set(classes[rest[~out]]), set(classes[rest[out]])
        if inside == outside:
            return rest[out]
        if outside <= inside and good is None:
            good = rest[out]
    if good is None:
        raise RunError(
            f"no {count} of {len(groups)} groups can be held out so that all classes remain in the others: "
            "there are too few"
        )
    return good
