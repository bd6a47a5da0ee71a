"""CSV and Parquet files, good and bad, against what was written into them."""

from __future__ import annotations

import datetime
import io
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from helpers.tables import LONG, PLAIN, check, classes, long_csv, sequences, written

from eirehn._internal.files import RunError
from eirehn.data import table_columns
from eirehn.data.table import FileData


def test_long_csv_in_any_order(tmp_path: Path) -> None:
    """Rows of sequences mixed: put in order by time, sequences in the order of their first row."""
    x, y = sequences(), classes()
    header, *lines = long_csv(x, y).splitlines()
    np.random.default_rng(1).shuffle(lines)
    data = replace(LONG, path=written(tmp_path, "my.csv", "\n".join([header, *lines])))
    firsts = list(dict.fromkeys(int(line.split(",")[0].removeprefix("case-")) for line in lines))
    check(data, [x[row] for row in firsts], [y[row] for row in firsts])
    assert (data.input_size, data.output_size, data.classes) == (2, 3, ("run", "sit", "walk"))


def test_columns_by_role(tmp_path: Path) -> None:
    x, y = sequences(), classes()
    text = long_csv(x, y, extra={"note": ["words"] * 24})
    path = written(tmp_path, "my.csv", text)
    check(replace(LONG, path=path, values=("s1",)), [each[:, 1:] for each in x], y)
    check(replace(LONG, path=path, values=("s1", "s0")), [each[:, ::-1] for each in x], y)
    with pytest.raises(RunError, match=r"line 2, column 'note': 'words' is not a number"):
        replace(LONG, path=path).load()


def test_wide_csv(tmp_path: Path) -> None:
    x, y = sequences(equal=True), [str(c) for c in classes()]
    names = [f"t{t}c{c}" for t in range(5) for c in range(2)]
    lines = [",".join([*names, "y"])]
    lines += [",".join([*map(repr, each.reshape(-1).tolist()), label]) for each, label in zip(x, y, strict=True)]
    path = written(tmp_path, "my.csv", "\n".join(lines))
    check(FileData(path=path, channels=2, **PLAIN), x, y)
    assert FileData(path=path, channels=2).load().train.lengths is None
    with pytest.raises(ValueError, match="10 columns are not a multiple of 3 channels"):
        FileData(path=path, channels=3).load()


def test_wide_csv_that_ends_early(tmp_path: Path) -> None:
    x, y = sequences(channels=1), classes()
    lines = ["a,b,c,d,e,f,y"]
    for each, label in zip(x, y, strict=True):
        cells = [*map(repr, each[:, 0].tolist()), *["", "NaN", ""]][:6]
        lines.append(",".join([*cells, *[""] * (6 - len(cells)), label]))
    path = written(tmp_path, "my.csv", "\n".join(lines))
    check(FileData(path=path, ragged=True, **PLAIN), x, y)
    with pytest.raises(RunError, match=r"line 2, column 'd': a value is missing"):
        FileData(path=path).load()
    lines[3] = "1,,2,3,4,5,run"
    path = written(tmp_path, "gap.csv", "\n".join(lines))
    with pytest.raises(RunError, match=r"line 4, column 'b': a value is missing"):
        FileData(path=path, ragged=True).load()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    x, y = sequences(), [name.replace("walk", "Fußgänger") for name in classes()]
    path = written(tmp_path, "my.csv", long_csv(x, y).encode(encoding))
    data = replace(LONG, path=path, encoding="latin-1" if encoding == "latin-1" else "utf-8")
    check(data, x, y)


def test_other_delimiters_quotes_and_line_ends(tmp_path: Path) -> None:
    x, y = sequences(), classes()
    text = long_csv(x, y).replace(",", ";").replace("run", '"run; fast"').replace("\n", "\r\n\r\n")
    data = replace(LONG, path=written(tmp_path, "my.csv", text), delimiter=";")
    check(data, x, [name.replace("run", "run; fast") for name in y])
    check(replace(LONG, path=written(tmp_path, "my.tsv", long_csv(x, y).replace(",", "\t"))), x, y)


def cell(text: str, line: int, column: int, value: str) -> str:
    lines = [each.split(",") for each in text.splitlines()]
    lines[line - 1][column] = value
    return "\n".join(",".join(each) for each in lines)


GOOD = long_csv(sequences(), classes(), extra={"who": [f"p{row}" for row in range(24)]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        (GOOD.splitlines()[0], "has a header and no rows"),
        ("1,2,3\n4,5,6\n", "has no header"),
        (GOOD.replace("s1", "s0", 1), "has two columns called 's0'"),
        (GOOD.replace("s1", "", 1), "column 4 has no name"),
        (GOOD.replace("label", "labels", 1), "no column 'label' for the target; did you mean 'labels'"),
        (GOOD.replace("label", "seen", 1), "no column 'label' for the target; name another with --data.target."),
        (GOOD.replace("id,", "name,", 1), "no column 'id' for sequence"),
        (cell(GOOD, 7, 3, ""), "line 7, column 's1': a value is missing"),
        (cell(GOOD, 7, 3, "NaN"), "line 7, column 's1': a value is missing"),
        (cell(GOOD, 7, 3, " N/A "), "line 7, column 's1': a value is missing"),
        (cell(GOOD, 7, 3, "inf"), "line 7, column 's1': inf is not finite"),
        (cell(GOOD, 7, 3, "1,5"), "line 7 has 7 cells, and the header 6"),
        (cell(GOOD, 7, 3, "fast"), "line 7, column 's1': 'fast' is not a number"),
        (cell(GOOD, 7, 4, ""), "line 7, column 'label': a value is missing"),
        (cell(GOOD, 3, 4, "sit"), "line 3, column 'label': 'sit' differs from the earlier rows"),
        (cell(GOOD, 3, 5, "p9"), "line 3, column 'who': 'p9' differs"),
        (cell(GOOD, 3, 1, "0"), "line 3, column 't': another row of its sequence has the same time"),
        (cell(GOOD, 3, 0, ""), "line 3, column 'id': a value is missing"),
        (GOOD.replace("run", "walk").replace("sit", "walk"), "only one class, 'walk'"),
        (GOOD.replace("case-0", '"case-0'), "is not a CSV file"),
        (GOOD[:-1] + "\x00" * 200_000, "is not|differs|cells|CSV"),
    ],
)
def test_bad_csv(text: str, message: str, tmp_path: Path) -> None:
    data = replace(LONG, path=written(tmp_path, "my.csv", text), group="who")
    with pytest.raises(RunError, match=message) as caught:
        data.load()
    assert "my.csv" in str(caught.value)


def test_what_is_not_text(tmp_path: Path) -> None:
    path = written(tmp_path, "my.csv", long_csv(sequences(), classes()).replace("sit", "Füße").encode("latin-1"))
    with pytest.raises(RunError, match=r"is not utf-8 text .* give its encoding"):
        replace(LONG, path=path).load()
    with pytest.raises(ValueError, match="encoding: unknown encoding: no-such"):
        replace(LONG, path=path, encoding="no-such").load()
    with pytest.raises(RunError):
        replace(LONG, path=written(tmp_path, "b.csv", bytes(range(256)) * 9)).load()


def test_a_cell_over_several_lines(tmp_path: Path) -> None:
    """The line is the one its row ends on, as editors count."""
    text = 'note,a,y\n"two\nlines",1,u\nx,none,v\n'
    with pytest.raises(RunError, match=r"line 4, column 'a': a value is missing"):
        FileData(path=written(tmp_path, "my.csv", text), values=("a",)).load()


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_columns, "LARGEST_CSV", 100)
    monkeypatch.setattr(table_columns, "LARGEST_PARQUET", 100)
    with pytest.raises(RunError, match=r"is too large, .* bytes of text; save it as npz"):
        replace(LONG, path=written(tmp_path, "my.csv", GOOD)).load()
    with pytest.raises(RunError, match="is too large: it unpacks to"):
        replace(LONG, path=parquet(tmp_path, **columns())).load()


def test_a_text_that_repeats_takes_little_room_in_a_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_columns, "LARGEST_PARQUET", 1_000_000)
    path = parquet(tmp_path, sequence=["x" * 10_000] * 6000, y=[1] * 6000)
    assert Path(path).stat().st_size < 100_000
    with pytest.raises(RunError, match="is too large: it unpacks to"):
        replace(LONG, path=path).load()


def test_many_columns(tmp_path: Path) -> None:
    """40,000 of them take a second or two, not minutes."""
    names = [f"t{at}" for at in range(40_000)]
    lines = [",".join([*names, "y"]), *(",".join([*["0.5"] * 40_000, "ab"[row % 2]]) for row in range(8))]
    path = written(tmp_path, "my.csv", "\n".join(lines))
    start = time.process_time()
    assert FileData(path=path, channels=4).load().train.x.shape[1:] == (10_000, 4)
    assert time.process_time() - start < 10


def columns() -> dict[str, Any]:
    """The same as `long_csv` makes, by their names and types."""
    text = long_csv(sequences(), classes())
    return dict(pyarrow.csv.read_csv(io.BytesIO(text.encode())).to_pydict())


def parquet(folder: Path, **named: Any) -> str:
    path = folder / "my.parquet"
    pyarrow.parquet.write_table(pyarrow.table(named), path)
    return str(path)


def test_long_parquet(tmp_path: Path) -> None:
    x, y, found = sequences(), classes(), columns()
    check(replace(LONG, path=parquet(tmp_path, **found)), x, y)
    day = datetime.datetime(2026, 1, 1)
    found["t"] = [day + datetime.timedelta(microseconds=t) for t in found["t"]]  # as doubles these would be equal
    found["label"] = pyarrow.array(found["label"]).dictionary_encode()
    order = np.argsort([int(each.removeprefix("case-")) for each in found["id"]][::-1], kind="stable")
    order = len(order) - 1 - order  # by sequence, and backwards in time
    mixed = {name: pyarrow.array(cells).take(pyarrow.array(order)) for name, cells in found.items()}
    check(replace(LONG, path=parquet(tmp_path, **mixed)), x, y)


@pytest.mark.parametrize("label", [np.int8, np.float32, np.bool_])
def test_wide_parquet(label: type[np.generic], tmp_path: Path) -> None:
    x = sequences(equal=True, channels=1)
    y = np.arange(24) % 2
    named = {f"t{t}": np.stack(x)[:, t, 0] for t in range(5)}
    rows = pyarrow.array(range(24))
    path = parquet(tmp_path, **named, y=y.astype(label), __index_level_0__=rows)
    data = FileData(path=path, **PLAIN)
    check(data, x, ["False" if each == 0 else "True" for each in y] if label is np.bool_ else y.tolist())
    assert data.input_size == 1


def test_wide_parquet_that_ends_early(tmp_path: Path) -> None:
    x, y = sequences(channels=1), classes()
    cells = [[float(each[t, 0]) if t < len(each) else None for each in x] for t in range(6)]
    path = parquet(tmp_path, **{f"t{t}": column for t, column in enumerate(cells)}, y=y)
    check(FileData(path=path, ragged=True, **PLAIN), x, y)
    with pytest.raises(RunError, match=r"my\.parquet, row 0, column 't3': a value is missing"):
        FileData(path=path).load()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"s1": [None, *[1.0] * 107]}, "row 0, column 's1': a value is missing"),
        ({"s1": [1.0, np.inf, *[1.0] * 106]}, "row 1, column 's1': inf is not finite"),
        ({"s1": ["1.5", "fast", *["1"] * 106]}, "row 1, column 's1': 'fast' is not a number"),
        ({"s1": [[1.0]] * 108}, "column 's1' must hold numbers, text or dates, got list"),
        ({"label": [None, *["run"] * 107]}, "row 0, column 'label': a value is missing"),
        ({"label": ["run", "sit", *["run"] * 106]}, "row 1, column 'label': 'sit' differs from the earlier rows"),
        ({"id": [None, *["a"] * 107]}, "row 0, column 'id': a value is missing"),
        ({"t": [0, 0, *range(2, 108)]}, "row 1, column 't': another row of its sequence has the same time"),
        ({"t": [datetime.datetime(2026, 1, 1), None] * 54}, "row 1, column 't': a value is missing"),
    ],
)
def test_bad_parquet(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=message):
        replace(LONG, path=parquet(tmp_path, **columns() | change)).load()


def test_damaged_parquet(tmp_path: Path) -> None:
    whole = Path(parquet(tmp_path, **columns())).read_bytes()
    for content in (b"", b"no table", whole[: len(whole) // 2], whole[:-400] + bytes(200) + whole[-200:]):
        with pytest.raises(RunError, match=r"my\.parquet is damaged or not a Parquet file"):
            replace(LONG, path=written(tmp_path, "my.parquet", content)).load()
    with pytest.raises(RunError, match="has columns and no rows"):
        replace(LONG, path=parquet(tmp_path, **{name: pyarrow.array([], "double") for name in columns()})).load()


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet(tmp_path, **columns())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RunError, match=r"Parquet files need pyarrow: pip install 'eirehn\[train\]'"):
        replace(LONG, path=path).load()
