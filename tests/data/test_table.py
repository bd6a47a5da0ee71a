"""A user's file as a data set: classes, splits, scaling, options."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.tables import LONG, arrays, check, classes, long_csv, sequences, written

from eirehn._internal.files import RunError
from eirehn.data.table import FileData
from eirehn.training.config import from_dict


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


def test_parts_a_file_names(tmp_path: Path) -> None:
    x, y = sequences(), classes()
    part = ["train"] * 12 + ["Val"] * 6 + ["test"] * 6
    path = written(tmp_path, "a.csv", long_csv(x, y, extra={"part": part}))
    data = replace(LONG, path=path, split="part")
    check(data, x, y)
    assert [each.tolist() for each in data.division] == [list(range(12)), list(range(12, 18)), list(range(18, 24))]
    path = written(tmp_path, "b.csv", long_csv(x, y, extra={"part": ["train"] * 23 + ["exam"]}))
    with pytest.raises(RunError, match=r"column 'part': 'exam' is not one of train, validation, test"):
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


def test_nothing_held_out_for_validation(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": ""}, "data.path must name"),
        ({"path": "a.pkl"}, "must end in .npz"),
        ({"task": "guess"}, "task must be one of"),
        ({"validation": -0.1}, "validation must be at least 0"),
        ({"test": 0.0}, "test must be above 0"),
        ({"test": 0.9, "validation": 0.2}, "must be less than 1 together"),
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


def test_names_of_signals(tmp_path: Path) -> None:
    """Columns of a long file by their names, in the order asked for; channels of other files by number."""
    x, y = sequences(equal=True), classes()
    data = replace(LONG, path=written(tmp_path, "my.csv", long_csv(x, y)))
    assert data.signals == ("s0", "s1")
    assert replace(data, values=("s1",)).signals == ("s1",)
    np.savez(tmp_path / "my.npz", X=np.stack(x), y=y)
    assert FileData(path=str(tmp_path / "my.npz")).signals == ("channel 1", "channel 2")
    wide = "a,b,c,d,y\n" + "".join(f"{i},2,3,4,{i % 2}\n" for i in range(8))
    path = written(tmp_path, "wide.csv", wide)
    assert FileData(path=path, channels=2).signals == ("channel 1", "channel 2")
    assert FileData(path=path).signals == ("signal",)
