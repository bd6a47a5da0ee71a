"""A user's files, good and bad, against what was written into them."""

from __future__ import annotations

import io
import itertools
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import eirehn.data.own.npz_files
import eirehn.data.own.table
from eirehn.data.own import FileData
from eirehn.files import RunError
from eirehn.training.config import from_dict

PLAIN: dict[str, Any] = {"standardise": False}


def sequences(count: int = 24, channels: int = 2, *, equal: bool = False) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.normal(3.0, 2.0, (5 if equal else 3 + row % 4, channels)) for row in range(count)]


def classes(count: int = 24) -> list[str]:
    return [("walk", "run", "sit")[row % 3] for row in range(count)]


def long_csv(x: list[np.ndarray], y: list[Any], *, extra: dict[str, list[Any]] | None = None) -> str:
    extra = extra or {}
    channels = x[0].shape[1]
    lines = [",".join(["id", "t", *(f"s{c}" for c in range(channels)), "label", *extra])]
    for row, (each, label) in enumerate(zip(x, y, strict=True)):
        for t, values in enumerate(each.tolist()):
            others = [str(column[row]) for column in extra.values()]
            lines.append(",".join([f"case-{row}", str(t), *map(repr, values), str(label), *others]))
    return "\n".join(lines) + "\n"


LONG = FileData(target="label", sequence="id", time="t", **PLAIN)


def written(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def arrays(path: Path, **named: Any) -> str:
    np.savez_compressed(path, **named)
    return str(path)


def rows(data: FileData) -> list[tuple[int, np.ndarray, Any]]:
    """Each sequence with its number in the file, without its padding, and its target."""
    found = []
    for split, numbers in zip(data.load(), data.division, strict=True):
        for at, number in enumerate(numbers.tolist()):
            end = split.x.size(1) if split.lengths is None else int(split.lengths[at])
            assert not split.x[at, end:].any()
            found.append((number, split.x[at, :end].numpy(), split.target[at]))
    return sorted(found, key=lambda each: each[0])


def check(data: FileData, x: list[np.ndarray], y: list[Any]) -> None:
    found = rows(data)
    assert [number for number, _, _ in found] == list(range(len(x)))
    for number, values, target in found:
        np.testing.assert_array_equal(values, x[number].astype(np.float32))
        if data.task == "classification":
            assert data.classes[int(target)] == y[number]
        else:
            np.testing.assert_array_equal(target.numpy(), np.atleast_1d(y[number]).astype(np.float32))


def test_long_csv(tmp_path: Path) -> None:
    x, y = sequences(), classes()
    data = replace(LONG, path=written(tmp_path, "my.csv", long_csv(x, y)))
    check(data, x, y)
    assert (data.input_size, data.output_size, data.classes) == (2, 3, ("run", "sit", "walk"))


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("10", "9", "-1"), (-1, 9, 10)),
        (("01", "1", "2"), ("01", "1", "2")),
        (("1_0", "1_1", "2"), ("2", "1_0", "1_1")),
        (("+1", "1", "2"), ("+1", "1", "2")),
        (("+1", "-1", "0"), ("-1", "0", "+1")),
        (("03", "1", "10"), ("1", "03", "10")),
    ],
)
def test_classes_are_numbers_where_all_are_written_as_such(
    names: tuple[str, ...], found: tuple[int | str, ...], tmp_path: Path
) -> None:
    x, y = sequences(), [names[row % 3] for row in range(24)]
    data = replace(LONG, path=written(tmp_path, "my.csv", long_csv(x, y)))
    assert data.classes == found
    check(data, x, [int(each) for each in y] if isinstance(found[0], int) else y)


def test_long_csv_in_any_order(tmp_path: Path) -> None:
    """Rows of sequences mixed: put in order by time, sequences in the order of their first row."""
    x, y = sequences(), classes()
    header, *lines = long_csv(x, y).splitlines()
    np.random.default_rng(1).shuffle(lines)
    data = replace(LONG, path=written(tmp_path, "my.csv", "\n".join([header, *lines])))
    firsts = list(dict.fromkeys(int(line.split(",")[0].removeprefix("case-")) for line in lines))
    check(data, [x[row] for row in firsts], [y[row] for row in firsts])


def test_columns_by_role(tmp_path: Path) -> None:
    x, y = sequences(), classes()
    text = long_csv(x, y, extra={"note": ["words"] * 24})
    path = written(tmp_path, "my.csv", text)
    check(replace(LONG, path=path, values=("s1",)), [each[:, 1:] for each in x], y)
    check(replace(LONG, path=path, values=("s1", "s0")), [each[:, ::-1] for each in x], y)
    with pytest.raises(RunError, match=r"line 2, column 'note': 'words' is no number"):
        replace(LONG, path=path).load()


def test_wide_csv(tmp_path: Path) -> None:
    x, y = sequences(equal=True), [str(c) for c in classes()]
    names = [f"t{t}c{c}" for t in range(5) for c in range(2)]
    lines = [",".join([*names, "y"])]
    lines += [",".join([*map(repr, each.reshape(-1).tolist()), label]) for each, label in zip(x, y, strict=True)]
    path = written(tmp_path, "my.csv", "\n".join(lines))
    check(FileData(path=path, channels=2, **PLAIN), x, y)
    assert FileData(path=path, channels=2).load().train.lengths is None
    with pytest.raises(ValueError, match="10 columns of values do not make whole time steps of 3"):
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


def test_parts_a_file_names(tmp_path: Path) -> None:
    x, y = sequences(), classes()
    part = ["train"] * 12 + ["Val"] * 6 + ["test"] * 6
    path = written(tmp_path, "a.csv", long_csv(x, y, extra={"part": part}))
    data = replace(LONG, path=path, split="part")
    check(data, x, y)
    assert [each.tolist() for each in data.division] == [list(range(12)), list(range(12, 18)), list(range(18, 24))]
    path = written(tmp_path, "b.csv", long_csv(x, y, extra={"part": ["train"] * 23 + ["exam"]}))
    with pytest.raises(RunError, match=r"column 'part': 'exam' is none of train, validation, test"):
        replace(LONG, path=path, split="part").load()


def test_a_group_is_in_one_part(tmp_path: Path) -> None:
    x, y = sequences(60), classes(60)
    people = [f"p{row // 6}" for row in range(60)]
    path = written(tmp_path, "a.csv", long_csv(x, y, extra={"who": people}))
    seen = set()
    for seed in range(5):
        data = replace(LONG, path=path, group="who", seed=seed, validation=0.2, test=0.2)
        parts = [{people[row] for row in each} for each in data.division]
        assert [len(each) for each in parts] == [6, 2, 2]
        assert not any(one & other for one, other in itertools.combinations(parts, 2))
        seen.add(tuple(sorted(parts[2])))
        for rows_of_part in data.division:
            assert {y[row] for row in rows_of_part} == set(y)
    assert len(seen) > 1
    with pytest.raises(RunError, match="one group"):
        replace(
            LONG, path=written(tmp_path, "b.csv", long_csv(x, y, extra={"who": ["me"] * 60})), group="who"
        ).load()


def test_a_group_in_two_parts_that_the_file_names(tmp_path: Path) -> None:
    x, y = sequences(), classes()
    people = [f"p{row // 4}" for row in range(24)]
    named = {"part": ["train"] * 15 + ["test"] * 9, "who": people}  # p3 is in both
    path = written(tmp_path, "a.csv", long_csv(x, y, extra=named))
    with pytest.raises(RunError, match="group 'p3' is in two parts, train and test"):
        replace(LONG, path=path, group="who", split="part").load()
    named["part"] = ["train"] * 16 + ["test"] * 8
    path = written(tmp_path, "b.csv", long_csv(x, y, extra=named))
    assert replace(LONG, path=path, group="who", split="part").division.test.tolist() == list(range(16, 24))


@pytest.mark.parametrize(
    ("size", "options", "message"),
    [
        (1e300, {}, "too large to standardise, up to .*e.30"),
        (1e39, {"standardise": False}, "the file has values that are too large for single precision"),
        (1e300, {"task": "regression", "target": "level"}, "too large to standardise"),
        (1e39, {"task": "regression", "target": "level", "standardise": False}, "the target has values"),
    ],
)
def test_numbers_that_do_not_fit(size: float, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    x = np.stack(sequences(equal=True))
    level = np.arange(1.0, 25.0)
    if "target" in options:
        level *= size
    else:
        x *= size
    path = arrays(tmp_path / "a.npz", X=x, y=np.array(classes()), level=level)
    with pytest.raises(ValueError, match=message):
        FileData(path=path, **options).load()


def test_every_class_keeps_its_share(tmp_path: Path) -> None:
    y = np.array([0] * 80 + [1] * 20)
    data = FileData(path=arrays(tmp_path / "a.npz", X=np.zeros((100, 3)), y=y), validation=0.2, test=0.1)
    assert [np.bincount(y[each]).tolist() for each in data.division] == [[56, 14], [16, 4], [8, 2]]
    assert data.weights is None
    balanced = replace(data, class_weights="balanced").weights
    assert balanced == pytest.approx((70 / (2 * 56), 70 / (2 * 14)))


def test_nothing_held_out_to_choose_by(tmp_path: Path) -> None:
    x, y = np.stack(sequences(equal=True)), np.array(classes())
    for path in (
        arrays(tmp_path / "a.npz", X=x, y=y, lengths=np.arange(24) % 3 + 1),
        arrays(tmp_path / "b.npz", X_train=x[:15], y_train=y[:15], X_test=x[15:], y_test=y[15:]),
    ):
        data = FileData(path=path)
        assert [len(split.x) for split in data.load()] == [len(rows) for rows in data.division]
        assert len(data.division.validation) == 0
        assert len(data.division.train) + len(data.division.test) == 24


def test_standardised_by_what_is_trained_on(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal([1e6, -5.0, 7.0], [0.1, 3.0, 0.0], (40, 6, 3))
    y = np.random.default_rng(1).normal(100.0, 20.0, 40)
    data = FileData(path=arrays(tmp_path / "a.npz", X=x, y=y), task="regression")
    splits = data.load()
    train = splits.train.x.double().flatten(0, 1)
    torch.testing.assert_close(train.mean(0), torch.zeros(3).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(
        train.std(0, correction=0), torch.tensor([1.0, 1.0, 0.0]).double(), rtol=1e-6, atol=0
    )
    assert splits.train.target.std(correction=0).item() == pytest.approx(1.0, rel=1e-5)
    back = data.scaling.outputs(splits.test.target)
    np.testing.assert_allclose(back[:, 0], y[data.division.test], rtol=1e-6)
    given = torch.from_numpy(x[data.division.test])
    torch.testing.assert_close(data.scaling.inputs(given, splits.test.x), splits.test.x, rtol=0, atol=1e-6)


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
        (GOOD.replace("id,", "name,", 1), "no column 'id' for sequence"),
        (cell(GOOD, 7, 3, ""), "line 7, column 's1': a value is missing"),
        (cell(GOOD, 7, 3, "NaN"), "line 7, column 's1': a value is missing"),
        (cell(GOOD, 7, 3, " N/A "), "line 7, column 's1': a value is missing"),
        (cell(GOOD, 7, 3, "inf"), "line 7, column 's1': inf is not finite"),
        (cell(GOOD, 7, 3, "1,5"), "line 7 has 7 cells, and the header 6"),
        (cell(GOOD, 7, 3, "fast"), "line 7, column 's1': 'fast' is no number"),
        (cell(GOOD, 7, 4, ""), "line 7, column 'label': a value is missing"),
        (cell(GOOD, 3, 4, "sit"), "line 3, column 'label': 'sit' differs from the rows before it"),
        (cell(GOOD, 3, 5, "p9"), "line 3, column 'who': 'p9' differs"),
        (cell(GOOD, 3, 1, "0"), "line 3, column 't': its sequence has this time already"),
        (cell(GOOD, 3, 0, ""), "line 3, column 'id': a value is missing"),
        (GOOD.replace("run", "walk").replace("sit", "walk"), "one class only, 'walk'"),
        (GOOD.replace("case-0", '"case-0'), "is no CSV file"),
        (GOOD[:-1] + "\x00" * 200_000, "is no|no number|differs|cells|CSV"),
    ],
)
def test_bad_csv(text: str, message: str, tmp_path: Path) -> None:
    data = replace(LONG, path=written(tmp_path, "my.csv", text), group="who")
    with pytest.raises(RunError, match=message) as caught:
        data.load()
    assert "my.csv" in str(caught.value)


def test_text_that_is_no_text(tmp_path: Path) -> None:
    path = written(tmp_path, "my.csv", long_csv(sequences(), classes()).replace("sit", "Füße").encode("latin-1"))
    with pytest.raises(RunError, match=r"is not utf-8 text .* name its encoding"):
        replace(LONG, path=path).load()
    with pytest.raises(ValueError, match="encoding: unknown encoding: no-such"):
        replace(LONG, path=path, encoding="no-such").load()
    with pytest.raises(RunError):
        replace(LONG, path=written(tmp_path, "b.csv", bytes(range(256)) * 9)).load()


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eirehn.data.own.table, "LARGEST", 100)
    monkeypatch.setattr(eirehn.data.own.npz_files, "LARGEST", 100_000)
    with pytest.raises(RunError, match=r"is refused: .* bytes of text; save it as npz"):
        replace(LONG, path=written(tmp_path, "my.csv", GOOD)).load()
    with pytest.raises(RunError, match="is refused: it would unpack to"):
        FileData(path=arrays(tmp_path / "a.npz", X=np.zeros((100, 1000)), y=np.zeros(100))).load()


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
    assert "'X' must hold numbers, got complex128" in message(X=x + 1j, y=y)
    assert "one class only, 0" in message(X=x, y=y * 0)
    assert "row 1: 0.5 is no class; is it a regression?" in message(X=x, y=np.arange(9) / 2)
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
        with pytest.raises(RunError, match=f"{name}.npz is damaged or no npz file"):
            FileData(path=written(tmp_path, f"{name}.npz", content)).load()
    buffer = io.BytesIO()
    pickle.dump(Harm(), buffer)
    with pytest.raises(RunError, match="damaged"):
        FileData(path=written(tmp_path, "pickle.npz", buffer.getvalue())).load()
    huge = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 9999), }\n"
    with pytest.raises(RunError, match="damaged"):
        FileData(path=forged(tmp_path / "huge.npz", huge)).load()
    with pytest.raises(RunError, match="damaged"):
        FileData(path=forged(tmp_path / "odd.npz", b"__import__('os').abort()\n")).load()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": ""}, "data.path must name"),
        ({"path": "a.pkl"}, "must end in .npz"),
        ({"task": "guess"}, "task must be one of"),
        ({"validation": -0.1}, "validation must be at least 0"),
        ({"test": 0.0}, "test must be above 0"),
        ({"test": 0.9, "validation": 0.2}, "leave something to train on"),
        ({"seed": -1}, "seed must be"),
        ({"channels": 0}, "channels must be"),
        ({"class_weights": "some"}, "class_weights must be one of"),
        ({"class_weights": "balanced", "task": "regression"}, "class_weights are for"),
        ({"delimiter": ";;"}, "delimiter must be"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FileData(**options).load()


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no file"):
        FileData(path=str(tmp_path / "my.csv")).load()
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(RunError, match="there is no file"):
        FileData(path=str(tmp_path / "folder.csv")).load()


def test_a_file_is_read_again_when_it_has_changed_and_refused_where_it_must_not(tmp_path: Path) -> None:
    x, y = np.stack(sequences(equal=True)), np.array(classes())
    data = FileData(path=arrays(tmp_path / "a.npz", X=x, y=y))
    assert data.load() is data.load()
    pinned = data.pinned()
    assert pinned.load().train.x.equal(data.load().train.x)
    assert from_dict(FileData, {**vars(pinned), "values": []}) == pinned
    arrays(tmp_path / "a.npz", X=np.concatenate([x, x], 2), y=y)
    assert data.input_size == 4
    with pytest.raises(RunError, match="has changed since"):
        pinned.load()
