"""npz files, good and bad, against what was written into them."""

from __future__ import annotations

import io
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.tables import PLAIN, arrays, check, classes, sequences, written

from eirehn._internal.files import RunError
from eirehn.data import table_npz
from eirehn.data.table import FileData


def test_npz(tmp_path: Path) -> None:
    x, y = sequences(), classes()
    whole = np.full((24, 6, 2), np.nan)
    for row, each in zip(whole, x, strict=True):
        row[: len(each)] = each
    lengths = np.array([len(each) for each in x])
    check(FileData(path=arrays(tmp_path / "a.npz", X=whole, y=y, lengths=lengths), **PLAIN), x, y)
    check(FileData(path=arrays(tmp_path / "b.npz", X=whole, y=y), ragged=True, **PLAIN), x, y)
    with pytest.raises(RunError, match=r"'X': row 0, step 3, column 0: a value is missing"):
        FileData(path=arrays(tmp_path / "c.npz", X=whole, y=y)).load()
    flat = sequences(channels=1, equal=True)
    own = FileData(path=arrays(tmp_path / "d.npz", signal=np.stack(flat)[:, :, 0], kind=y), **PLAIN)
    check(replace(own, values=("signal",), target="kind"), flat, y)
    numbers = np.random.default_rng(0).normal(size=(24, 3))
    check(
        FileData(path=arrays(tmp_path / "e.npz", X=np.stack(flat), y=numbers), task="regression", **PLAIN),
        flat,
        list(numbers),
    )


def test_parts_of_an_npz_file(tmp_path: Path) -> None:
    x, y = np.stack(sequences(equal=True)), np.array(classes())
    path = arrays(tmp_path / "a.npz", X_train=x[:15], y_train=y[:15], X_test=x[15:], y_test=y[15:])
    data = FileData(path=path, validation=0.2, **PLAIN)
    check(data, list(x), y.tolist())
    assert data.division.test.tolist() == list(range(15, 24))
    assert len(data.division.validation) == 3
    assert set(data.division.validation.tolist()) <= set(range(15))


def forged(path: Path, header: bytes) -> str:
    """An array that is larger by its header than by its content."""
    with zipfile.ZipFile(path, "w") as archive:
        length = len(header).to_bytes(2, "little")
        archive.writestr("X.npy", b"\x93NUMPY\x01\x00" + length + header + b"\0" * 64)
    return str(path)


def test_bad_npz(tmp_path: Path) -> None:
    x, y = np.zeros((9, 4, 2)), np.arange(9) % 3

    def message(**named: Any) -> str:
        options = named.pop("options", {})
        with pytest.raises(RunError) as caught:
            FileData(path=arrays(tmp_path / "a.npz", **named), **options).load()
        return str(caught.value)

    class Harm:
        def __reduce__(self) -> Any:
            return (print, ("run",))

    assert "array 'X' holds Python objects, which are not read" in message(X=np.array([Harm()], object), y=y)
    assert "no array 'X' for the values; it has x, y" in message(x=x, y=y)
    assert "no array 'y' for the target" in message(X=x)
    assert "'y' must have 9 rows" in message(X=x, y=y[:5])
    assert "must be (cases, time) or (cases, time, channels), got (9,)" in message(X=x[:, 0, 0], y=y)
    assert "got (0, 4, 2)" in message(X=x[:0], y=y[:0])
    assert "'X': must hold numbers, got complex128" in message(X=x + 1j, y=y)
    assert "only one class, 0" in message(X=x, y=y * 0)
    assert "row 1: 0.5 is not a class; for numbers use --recipe regress" in message(X=x, y=np.arange(9) / 2)
    assert "row 2: a value is missing" in message(X=x, y=np.where(np.arange(9) == 2, np.nan, y))
    assert "sequence 3 has a length of 5" in message(X=x, y=y, lengths=[4, 4, 4, 5, 4, 4, 4, 4, 4])
    assert "sequence 0 has a length of 0" in message(X=x, y=y, lengths=np.zeros(9, int))
    assert "whole numbers" in message(X=x, y=y, lengths=np.ones(9))
    assert "row 1, step 2, column 0: a value is not finite" in message(
        X=np.where(np.arange(72).reshape(9, 4, 2) == 12, np.inf, x), y=y
    )
    assert "as many channels, got 2 in train, 1 in test" in message(
        X_train=x, y_train=y, X_test=x[:, :, :1], y_test=y
    )
    regression = {"options": {"task": "regression"}}
    assert "must be numbers" in message(X=x, y=np.array(["a"] * 9), **regression)
    whole = Path(arrays(tmp_path / "good.npz", X=x, y=y)).read_bytes()
    for name, content in (("half", whole[: len(whole) // 2]), ("text", b"no zip"), ("none", b"")):
        with pytest.raises(RunError, match=f"{name}.npz is damaged or not an npz file"):
            FileData(path=written(tmp_path, f"{name}.npz", content)).load()
    buffer = io.BytesIO()
    pickle.dump(Harm(), buffer)
    with pytest.raises(RunError, match="damaged"):
        FileData(path=written(tmp_path, "pickle.npz", buffer.getvalue())).load()
    huge = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 9999), }\n"
    with pytest.raises(RunError, match="damaged"):
        FileData(path=forged(tmp_path / "huge.npz", huge)).load()
    for header in (b"__import__('os').abort()\n", b"{'descr': '<f8', 'fortran_order': False, 'shape': (9, ]\n"):
        with pytest.raises(RunError, match="damaged"):
            FileData(path=forged(tmp_path / "odd.npz", header)).load()


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_npz, "LARGEST", 100_000)
    with pytest.raises(RunError, match="is too large: it unpacks to"):
        FileData(path=arrays(tmp_path / "a.npz", X=np.zeros((100, 1000)), y=np.zeros(100))).load()
