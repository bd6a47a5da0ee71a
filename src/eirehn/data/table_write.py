"""Writes tables to CSV and Parquet files, row by row."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from .._internal.extras import need
from .._internal.files import replacing

WRITTEN = (".csv", ".parquet")
ROWS_AT_ONCE = 4096


def write_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], path: Path | None) -> None:
    """Writes a table to a CSV or Parquet file, by its suffix, or as CSV to the standard output."""
    if path is None:
        _write_csv(columns, rows, sys.stdout)
        return
    if path.suffix.lower() == ".parquet":
        need("pyarrow")
    with replacing(path) as file:
        if path.suffix.lower() == ".parquet":
            _write_parquet(columns, rows, file)
            return
        text = io.TextIOWrapper(file, "utf-8", newline="")
        _write_csv(columns, rows, text)
        text.detach()


def _write_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]], file: IO[str]) -> None:
    left = iter(rows)
    begun = list(islice(left, 1))  # most errors come with the first row, and then nothing is written
    table = csv.writer(file, lineterminator="\n")
    table.writerow(columns)
    for row in chain(begun, left):
        table.writerow([format(value, ".9g") if isinstance(value, float) else value for value in row])
    file.flush()


def _write_parquet(columns: Sequence[str], rows: Iterable[Sequence[Any]], file: IO[bytes]) -> None:
    import pyarrow  # type: ignore[import-untyped,unused-ignore]  # it has no types
    import pyarrow.parquet  # type: ignore[import-untyped,unused-ignore]  # it has no types

    writer, left = None, iter(rows)
    while part := list(islice(left, ROWS_AT_ONCE)):
        table = pyarrow.table(dict(zip(columns, map(list, zip(*part, strict=True)), strict=True)))
        writer = writer or pyarrow.parquet.ParquetWriter(file, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
