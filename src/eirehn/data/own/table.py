"""A CSV file as columns of text, with the line each row stands on."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ...checks import nearest
from ...files import RunError

LARGEST = 4 << 30
"""Bytes of a file; text takes several times that in memory."""
MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


class Table(NamedTuple):
    path: Path
    columns: dict[str, list[str]]
    lines: list[int]  # of each row, as an editor counts

    def column(self, name: str, role: str) -> list[str]:
        if name not in self.columns:
            raise RunError(
                f"{self.path} has no column {name!r} for {role}; did you mean {nearest(name, self.columns)!r}? "
                f"It has {_some(self.columns)}"
            )
        return self.columns[name]

    def where(self, row: int, column: str) -> str:
        return f"{self.path}, line {self.lines[row]}, column {column!r}"


def read_table(path: Path, *, delimiter: str = ",", encoding: str = "utf-8") -> Table:
    """A header and rows of as many cells. A byte-order mark says more of the encoding than `encoding`."""
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise RunError(f"{path} is refused: {size:,} bytes of text; save it as npz")
        with open(path, "rb") as file:
            start = file.read(4)
        used = next((name for mark, name in MARKS if start.startswith(mark)), encoding)
        with open(path, encoding=used, newline="") as text:
            return _table(path, csv.reader(text, delimiter=delimiter, strict=True))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeError as error:
        raise RunError(f"{path} is not {used} text ({error}); name its encoding, as latin-1 or utf-16") from error
    except LookupError as error:
        raise ValueError(f"encoding: {error}") from None
    except csv.Error as error:
        raise RunError(f"{path} is no CSV file: {error}") from error


def _table(path: Path, reader: Iterator[list[str]]) -> Table:
    header = [name.strip() for name in next(reader, [])]
    _check_header(path, header)
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
    return Table(
        path, {name: list(cells) for name, cells in zip(header, zip(*rows, strict=True), strict=True)}, lines
    )


def _check_header(path: Path, header: Sequence[str]) -> None:
    if not any(header):
        raise RunError(f"{path} is empty")
    if all(_is_number(name) for name in header):
        raise RunError(f"{path} has no header: its first line must name the columns, got {_some(header)}")
    for number, name in enumerate(header, 1):
        if not name:
            raise RunError(f"{path}: column {number} has no name in the header")
        if header.index(name) + 1 < number:
            raise RunError(f"{path} has two columns called {name!r}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _some(names: Sequence[str] | dict[str, list[str]]) -> str:
    names = list(names)
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
