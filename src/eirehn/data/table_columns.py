"""Sequences in files of columns, CSV and Parquet: a row for each time step (long), or for each sequence (wide).

CSV is read by Python's strict reader: pandas silently fills up short rows, and does not know the line of a row.
"""

from __future__ import annotations

import codecs
import csv
import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._internal.files import RunError
from .dataset import Floats

if TYPE_CHECKING:
    from .table import FileData

Texts = npt.NDArray[np.str_]
Column = list[str] | npt.NDArray[Any]
PARTS = ("train", "validation", "test")
LARGEST_CSV, LARGEST_PARQUET = 4 << 30, 8 << 30
"""Most bytes of text, which takes several times that in memory, and of Parquet columns by their declared size."""
MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
NO_VALUE = ("", "nan", "na", "n/a", "null", "none", "?")
"""Spellings of a missing number, in lower case."""
MISSING = "a value is missing; fill it in, or remove the sequence"


class Cases(NamedTuple):
    """The sequences of a file."""

    x: list[Floats]  # N of (T, X), with different T
    target: Texts | Floats | None  # (N,): classes by their names; (N, O): numbers; None in a file to predict for
    group: Texts | None  # (N,)
    part: Texts | None  # (N,): of PARTS
    signals: tuple[str, ...]  # the name of each of the X
    columns: tuple[str, ...] = ()  # that the X are read from; empty for npz
    names: tuple[str, ...] = ()  # (N,): what a long file calls each sequence


TARGET = "the target"
"""A role of a column."""


class Table(NamedTuple):
    """The columns of a file: cells as text (CSV), or in the types of the file (Parquet)."""

    path: Path
    columns: dict[str, Column]
    lines: list[int] | None  # the line of each row in a CSV file

    def column(self, name: str, role: str) -> Column:
        if name not in self.columns:
            near = difflib.get_close_matches(name, list(self.columns), n=1)
            flag = " with --data.target" if role == TARGET else ""
            meant = f"did you mean {near[0]!r}?" if near else f"name another{flag}."
            raise RunError(
                f"{self.path} has no column {name!r} for {role}; {meant} It has {_some(list(self.columns))}"
            )
        return self.columns[name]

    def row(self, row: int) -> str:
        return f"{self.path}, {f'row {row}' if self.lines is None else f'line {self.lines[row]}'}"

    def where(self, row: int, column: str) -> str:
        return f"{self.row(row)}, column {column!r}"

    def numbers(self, name: str, role: str, *, missing: bool = False) -> Floats:
        """A column as finite numbers; with `missing`, NaN stands for missing ones."""
        cells = self.column(name, role)
        if isinstance(cells, np.ndarray) and cells.dtype.kind not in "fiub":
            cells = ["" if cell is None else str(cell) for cell in cells.tolist()]
        values = self._parsed(name, cells, role) if isinstance(cells, list) else cells.astype(np.float64)
        if not missing:
            self._check_there(name, np.isnan(values))
        for row in np.flatnonzero(np.isinf(values))[:1]:
            raise RunError(f"{self.where(int(row), name)}: {cells[row]} is not finite")
        return values

    def _parsed(self, name: str, cells: list[str], role: str) -> Floats:
        try:
            return np.fromiter(map(float, cells), np.float64, len(cells))
        except ValueError:
            return np.array([self._number(name, row, cell, role) for row, cell in enumerate(cells)])

    def _number(self, name: str, row: int, cell: str, role: str) -> float:
        if cell.strip().lower() in NO_VALUE:
            return np.nan
        try:
            return float(cell)
        except ValueError:
            advice = (
                "name the columns of the signals with --data.values, and that of the sequences, if a row is a time "
                "step, with --data.sequence"
            )
            if role == TARGET:
                advice = "name another target with --data.target, or classify with --recipe classify"
            raise RunError(f"{self.where(row, name)}: {cell[:40]!r} is not a number; {advice}") from None

    def texts(self, name: str, role: str) -> Texts:
        """A column as names, none of which is empty."""
        cells = self.column(name, role)
        if isinstance(cells, np.ndarray):
            cells = _names(cells)
        found = np.array([cell.strip() for cell in cells])
        self._check_there(name, found == "")
        return found

    def times(self, name: str) -> npt.NDArray[Any]:
        """A column to order rows by: numbers, or dates of a Parquet file."""
        cells = self.column(name, "time")
        if not isinstance(cells, np.ndarray) or cells.dtype.kind not in "mM":
            return self.numbers(name, "time")
        self._check_there(name, np.isnat(cells))
        return cells.astype(np.int64)

    def _check_there(self, name: str, missing: npt.NDArray[np.bool_]) -> None:
        for row in np.flatnonzero(missing)[:1]:
            raise RunError(f"{self.where(int(row), name)}: {MISSING}")


def read_columns(path: Path, data: FileData, trained: Sequence[str] | None = None) -> Cases:
    """Long if `data.sequence` names a column, otherwise wide. If `trained` is not None, the file is one to predict
    for: its targets are not read, and its signals must be in the columns `trained`, unless that is empty."""
    table = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path, data)
    if data.sequence is not None:
        return _long(table, data, trained)
    if data.time is not None:
        raise ValueError("time is for long files: name the column of the sequences too (data.sequence)")
    return _wide(table, data, trained)


def _read_csv(path: Path, data: FileData) -> Table:
    """A header and rows of as many cells. A byte-order mark takes precedence over `data.encoding`."""
    tabs = data.delimiter == "tab" or (path.suffix.lower() == ".tsv" and data.delimiter == ",")
    try:
        if (size := path.stat().st_size) > LARGEST_CSV:
            raise RunError(f"{path} is too large, {size:,} bytes of text; save it as npz")
        with open(path, "rb") as file:
            start = file.read(4)
        used = next((name for mark, name in MARKS if start.startswith(mark)), data.encoding)
        with open(path, encoding=used, newline="") as text:
            return _csv_table(path, csv.reader(text, delimiter="\t" if tabs else data.delimiter, strict=True))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeError as error:
        raise RunError(
            f"{path} is not {used} text ({error}); give its encoding (data.encoding), such as latin-1 or utf-16"
        ) from error
    except LookupError as error:
        raise ValueError(f"encoding: {error}") from None
    except csv.Error as error:
        raise RunError(f"{path} is not a CSV file: {error}") from error


def _csv_table(path: Path, reader: Iterator[list[str]]) -> Table:
    header = _header(path, next(reader, []))
    rows, lines = [], []
    for row in reader:
        if not row:
            continue
        line = reader.line_num  # type: ignore[attr-defined]  # csv.reader has it
        if len(row) != len(header):
            raise RunError(f"{path}, line {line} has {len(row)} cells, and the header {len(header)}")
        rows.append(row)
        lines.append(line)
    if not rows:
        raise RunError(f"{path} has a header and no rows")
    columns = zip(*rows, strict=True)
    return Table(path, {name: list(cells) for name, cells in zip(header, columns, strict=True)}, lines)


def _read_parquet(path: Path) -> Table:
    try:
        import pyarrow  # type: ignore[import-untyped,unused-ignore]  # it has no types
        import pyarrow.parquet  # type: ignore[import-untyped,unused-ignore]  # it has no types
    except ImportError as error:
        raise RunError(f"{path}: Parquet files need {error.name}: pip install 'eirehn[train]'") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            about = file.metadata
            total = sum(about.row_group(group).total_byte_size for group in range(about.num_row_groups))
            _check_size(path, max(total, 8 * about.num_rows * about.num_columns))
            parts, total = [], 0
            # Repeated texts are compressed: their size is known only when they are read.
            for part in file.iter_batches(batch_size=1024):
                total += part.nbytes
                _check_size(path, total)
                parts.append(part)
            table = pyarrow.Table.from_batches(parts, file.schema_arrow)
    except (pyarrow.ArrowException, OSError, MemoryError, ValueError) as error:
        raise RunError(f"{path} is damaged or not a Parquet file: {' '.join(str(error).split())}") from error
    names = _header(path, table.column_names)
    if not table.num_rows:
        raise RunError(f"{path} has columns and no rows")
    # Row numbers written by pandas are not data.
    columns = {name: _parquet_column(path, name, table.column(at)) for at, name in enumerate(names)}
    return Table(path, {name: cells for name, cells in columns.items() if not name.startswith("__index_")}, None)


def _check_size(path: Path, size: int) -> None:
    if size > LARGEST_PARQUET:
        raise RunError(f"{path} is too large: it unpacks to {size:,} bytes or more")


def _parquet_column(path: Path, name: str, column: Any) -> npt.NDArray[Any]:
    import pyarrow.types as kinds  # type: ignore[import-untyped,unused-ignore]  # it has no types

    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    binary = kinds.is_binary(column.type) or kinds.is_large_binary(column.type)
    if kinds.is_nested(column.type) or binary or kinds.is_fixed_size_binary(column.type):
        raise RunError(f"{path}: column {name!r} must hold numbers, text or dates, got {column.type}")
    cells: npt.NDArray[Any] = column.to_numpy()
    return cells


def _header(path: Path, names: Sequence[str]) -> list[str]:
    """The names of the columns, which must be present and different."""
    header = [name.strip() for name in names]
    if not any(header):
        raise RunError(f"{path} is empty")
    if all(map(_is_number, header)):
        raise RunError(f"{path} has no header: its first line must name the columns, got {_some(header)}")
    for number, name in enumerate(header, 1):
        if not name:
            raise RunError(f"{path}: column {number} has no name in the header")
    if len(set(header)) < len(header):
        (name, _), *_ = Counter(header).most_common(1)
        raise RunError(f"{path} has two columns called {name!r}")
    return header


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _names(cells: npt.NDArray[Any]) -> list[str]:
    """Typed cells as text: whole numbers without a point, empty where missing."""
    if cells.dtype.kind == "f" and not np.isinf(cells).any():
        whole = np.nan_to_num(cells)
        if (whole == np.rint(whole)).all():  # whole numbers, stored as floats because some are missing
            texts = whole.astype(np.int64).astype(np.str_)
            return ["" if gone else text for gone, text in zip(np.isnan(cells), texts.tolist(), strict=True)]
    return ["" if cell is None or cell != cell else str(cell) for cell in cells.tolist()]


def _values(table: Table, data: FileData, trained: Sequence[str] | None) -> list[str]:
    """The names of the signals' columns: those of the training, those asked for, or all that have no other role."""
    taken = {data.target, data.sequence, data.time, data.group, data.split}
    if trained:
        _check_trained(table, trained, set() if data.values else set(table.columns) - taken)
        return list(trained)
    names = list(data.values) or [name for name in table.columns if name not in taken]
    if not names:
        raise RunError(f"{table.path} has no columns for the signals")
    for name in names:
        if name in taken:
            raise ValueError(f"column {name!r} cannot be both a signal and something else")
    return names


def _check_trained(table: Table, trained: Sequence[str], signals: set[str]) -> None:
    """Raises an error where a column `trained` is missing, or where one of `signals` is not in `trained`."""
    for name in trained:
        if name not in table.columns:
            raise RunError(
                f"{table.path} has no column {name!r}: the model was trained on {_some(trained)}, and the file has "
                f"{_some(list(table.columns))}"
            )
    for name in table.columns:
        if name in signals - set(trained):
            raise RunError(
                f"{table.path} has a column {name!r} that the model was not trained on: remove it; the signals are "
                f"{_some(trained)}"
            )


def _labels(
    table: Table, data: FileData, trained: Sequence[str] | None
) -> tuple[Texts | Floats | None, Texts | None, Texts | None]:
    """The target, group and part of each row, where there are any."""
    if trained is not None:
        return None, None, None
    named = (data.group, "group"), (data.split, "split")
    group, part = (None if name is None else table.texts(name, role) for name, role in named)
    if data.task == "regression":
        return table.numbers(data.target, TARGET)[:, None], group, part
    return table.texts(data.target, TARGET), group, part


def _long(table: Table, data: FileData, trained: Sequence[str] | None) -> Cases:
    assert data.sequence is not None
    keys = table.texts(data.sequence, "sequence")
    target, group, part = _labels(table, data, trained)
    if data.time is not None:
        table.column(data.time, "time")  # otherwise a misspelled one would be a signal
    names = _values(table, data, trained)
    values = np.stack([table.numbers(name, "values") for name in names], 1)  # (rows, X)
    _, first, code = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))  # sequences in the order of their first rows
    order, starts = _order(table, data.time, rank[code])
    for name, each in ((data.target, target), (data.group, group), (data.split, part)):
        if each is not None:
            _check_constant(table, name, each[order], order, starts)
    firsts = order[starts]
    return Cases(
        np.split(values[order], starts[1:]),
        None if target is None else target[firsts],
        None if group is None else group[firsts],
        None if part is None else parts(part[firsts], lambda row: table.where(int(firsts[row]), str(data.split))),
        tuple(names),
        columns=tuple(names),
        names=tuple(keys[firsts].tolist()),
    )


def _order(table: Table, named: str | None, code: npt.NDArray[np.int64]) -> tuple[Any, Any]:
    """The order of the rows by sequence and time, and the start of each sequence in it."""
    if named is None:
        order = np.argsort(code, kind="stable")
    else:
        time = table.times(named)
        order = np.lexsort((time, code))
        again = (np.diff(code[order]) == 0) & (np.diff(time[order]) == 0)
        for at in np.flatnonzero(again)[:1]:
            raise RunError(
                f"{table.where(int(order[at + 1]), named)}: another row of its sequence has the same time"
            )
    return order, np.flatnonzero(np.diff(code[order], prepend=-1))


def _check_constant(table: Table, name: str | None, values: Any, order: Any, starts: Any) -> None:
    same = (values[1:] == values[:-1]).reshape(len(values) - 1, -1).all(1)
    same[starts[1:] - 1] = True
    for at in np.flatnonzero(~same)[:1]:
        where = table.where(int(order[at + 1]), str(name))
        cell = str(table.columns[str(name)][order[at + 1]])
        raise RunError(
            f"{where}: {cell!r} differs from the earlier rows of its sequence; it must be the same in all"
        )


def _wide(table: Table, data: FileData, trained: Sequence[str] | None) -> Cases:
    names, channels = _values(table, data, trained), data.channels
    if len(names) % channels:
        raise ValueError(f"{len(names)} columns are not a multiple of {channels} channels")
    target, group, part = _labels(table, data, trained)
    if part is not None:
        part = parts(part, lambda row: table.where(row, str(data.split)))
    values = np.stack([table.numbers(name, "values", missing=data.ragged) for name in names], 1)  # (N, T · X)
    last = ends(np.isnan(values))
    for row in np.flatnonzero((last == 0) | (last % channels > 0))[:1]:
        raise RunError(
            f"{table.row(int(row))} ends after {last[row]} values, not a multiple of the number of channels"
        )
    inside = np.arange(len(names)) < last[:, None]
    for row, at in np.argwhere(inside & np.isnan(values))[:1]:
        raise RunError(f"{table.where(int(row), names[at])}: {MISSING}")
    x = [each[:end].reshape(-1, channels) for each, end in zip(values, last.tolist(), strict=True)]
    return Cases(x, target, group, part, channel_names(channels), columns=tuple(names))


def channel_names(count: int) -> tuple[str, ...]:
    """Names for signals without any."""
    return tuple(f"channel {number}" for number in range(1, count + 1)) if count > 1 else ("signal",)


def ends(missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """The length of each row up to its last value, (N,), from `missing` (N, T)."""
    steps: npt.NDArray[np.int64] = missing.shape[1] - np.argmin(missing[:, ::-1], 1)
    return np.where(missing.all(1), 0, steps)


def parts(names: Texts, where: Callable[[int], str]) -> Texts:
    """The names of parts as in PARTS."""
    short = {"val": "validation", "valid": "validation"}
    found = np.array([short.get(name.strip().lower(), name.strip().lower()) for name in names.tolist()])
    for index in np.flatnonzero(~np.isin(found, PARTS))[:1]:
        raise RunError(f"{where(int(index))}: {str(names[index])!r} is not one of {', '.join(PARTS)}")
    return found
