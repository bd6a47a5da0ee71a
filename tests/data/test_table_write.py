"""Tables back from the files they were written to."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest

from eirehn._internal.files import RunError
from eirehn.data import table_write
from eirehn.data.table_write import write_table

COLUMNS = ("id", "class", "probability")
ROWS = [('a,"b"', 7, 1 / 3), ("å\n", 10, 1e-20), ("", 7, 123456.789)]


def test_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "table.csv"
    write_table(COLUMNS, iter(ROWS), path)
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == COLUMNS
    assert [(name, int(number)) for name, number, _ in rows] == [row[:2] for row in ROWS]
    assert [float(value) for *_, value in rows] == pytest.approx([row[2] for row in ROWS], rel=1e-8)
    write_table(COLUMNS, ROWS, None)
    assert capsys.readouterr().out == path.read_bytes().decode()


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several parts, exactly, with the types of the values."""
    monkeypatch.setattr(table_write, "ROWS_AT_ONCE", 2)
    write_table(COLUMNS, iter(ROWS), tmp_path / "table.parquet")
    table = pyarrow.parquet.read_table(tmp_path / "table.parquet")
    assert table.column_names == list(COLUMNS)
    assert list(zip(*(table.column(name).to_pylist() for name in COLUMNS), strict=True)) == ROWS
    assert list(map(str, table.schema.types)) == ["string", "int64", "double"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_nothing_is_left_of_rows_that_failed(suffix: str, tmp_path: Path) -> None:
    def rows() -> Iterator[tuple[str, int, float]]:
        yield ROWS[0]
        raise RunError("no more")

    path = tmp_path / f"table.{suffix}"
    path.write_text("of before")
    with pytest.raises(RunError, match="no more"):
        write_table(COLUMNS, rows(), path)
    assert path.read_text() == "of before"
    assert list(tmp_path.iterdir()) == [path]
