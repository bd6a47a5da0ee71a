"""`eirehn predict`: files of all kinds, against the run's model on arrays standardised by hand."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from helpers.command import done, refused
from helpers.small import small
from helpers.tables import arrays, classes, long_csv, sequences, written

import eirehn
from eirehn._internal.files import read_json, write_json
from eirehn.recipes import find
from eirehn.training.trainer import train

X = [each[:, :2] for each in sequences(7)]  # new sequences, of 3 to 6 time steps


def trained(folder: Path, recipe: str, **data: Any) -> Path:
    """A run on sequences of two channels; without `path` they are in a long CSV file."""
    start = find(recipe)
    if "path" not in data:
        x = sequences()
        y = [float(each.sum()) for each in x] if recipe == "regress" else classes()
        extra = {"person": [row % 4 for row in range(24)]}
        data |= {"path": written(folder, f"{recipe}.csv", long_csv(x, y, extra=extra)), "target": "label"}
        data |= {"sequence": "id", "time": "t", "group": "person"}
    train(
        replace(
            start,
            network=replace(start.network, hidden_size=6, max_depth=3),
            data=replace(start.data, **data),
            optimisation=replace(start.optimisation, epochs=2),
            hardware=replace(start.hardware, accelerator="cpu"),
            seeds=(0, 1),
        ),
        folder / recipe,
    )
    return folder / recipe


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("classify"), "classify")


def by_hand(run: Path, x: np.ndarray, max_depth: int | None = None) -> tuple[np.ndarray, float]:
    """The prediction for a sequence in the units trained in, scaled back, and its mean depth."""
    scaling, model = read_json(run / "model.json")["scaling"], eirehn.load(run)
    model.scaling = None
    inner = (x - np.array(scaling["mean"])) / np.array(scaling["scale"])
    with torch.no_grad():
        outcome = model.run(torch.tensor(inner[None], dtype=torch.float32), max_depth=max_depth)
    found = outcome.prediction[0].double().numpy() * scaling["target_scale"] + scaling["target_mean"]
    return found, outcome.depth.double().mean().item()


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def unlabelled(x: list[np.ndarray]) -> str:
    lines = [",".join(line.split(",")[:-1]) for line in long_csv(x, [""] * len(x)).splitlines()]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("most", [None, 1])
def test_classes(classifier: Path, most: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The rows of the file are mixed: a sequence is put in order by its times."""
    header, *lines = unlabelled(X).splitlines()
    lines.sort(key=lambda line: line.split(",")[1], reverse=True)
    path = written(tmp_path, "new.csv", "\n".join([header, *lines]))
    done(f"predict {classifier} {path} --depths" + (f" --max-depth {most}" if most else ""))
    rows = table(capsys.readouterr().out)
    assert list(rows[0]) == ["id", "label", "probability_run", "probability_sit", "probability_walk", "depth"]
    assert sorted(row["id"] for row in rows) == [f"case-{at}" for at in range(7)]
    for row in rows:
        logits, depth = by_hand(classifier, X[int(row["id"].removeprefix("case-"))], most)
        expected = np.exp(logits) / np.exp(logits).sum()
        found = [float(row[f"probability_{name}"]) for name in ("run", "sit", "walk")]
        np.testing.assert_allclose(found, expected, rtol=1e-4)
        assert row["label"] == ("run", "sit", "walk")[int(np.argmax(expected))]
        assert float(row["depth"]) == pytest.approx(depth)
        assert most is None or float(row["depth"]) == 1


def test_files_of_all_kinds_are_read_and_written_alike(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also with targets, groups and an order of columns of their own, which are not what they were in training."""
    plain = written(tmp_path, "new.csv", unlabelled(X))
    done(f"predict {classifier} {plain} --out {tmp_path}/a/out.csv")
    assert capsys.readouterr().out == ""
    expected = table((tmp_path / "a" / "out.csv").read_text())
    with_target = long_csv(X, ["jump"] * 7, extra={"person": ["all"] * 7})
    shuffled = [",".join(line.split(",")[at] for at in (3, 4, 1, 2, 5, 0)) for line in with_target.splitlines()]
    whole = pyarrow.csv.read_csv(plain)
    pyarrow.parquet.write_table(whole.append_column("label", [[""] * len(whole)]), tmp_path / "new.parquet")
    written(tmp_path, "other.csv", "\n".join(shuffled))
    for name in ("other.csv", "new.parquet"):
        done(f"predict {classifier} {tmp_path / name}")
        assert table(capsys.readouterr().out) == expected
    padded = np.zeros((7, 6, 2))
    for row, each in zip(padded, X, strict=True):
        row[: len(each)] = each
    npz = arrays(tmp_path / "new.npz", X=padded, lengths=np.array(list(map(len, X))))
    done(f"predict {classifier} {npz}")
    found = table(capsys.readouterr().out)
    assert [row.pop("row") for row in found] == [str(at) for at in range(7)]
    assert found == [{name: value for name, value in row.items() if name != "id"} for row in expected]
    done(f"predict {classifier} {plain} --out {tmp_path / 'out.parquet'}")
    back = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert list(back[0]) == list(expected[0])
    for row, other in zip(back, expected, strict=True):
        assert (row["id"], row["label"]) == (other["id"], other["label"])
        assert row["probability_sit"] == pytest.approx(float(other["probability_sit"]), rel=1e-8)


def test_the_model_in_python_agrees(classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done(f"predict {classifier} {written(tmp_path, 'new.csv', unlabelled(X))} --which last --depths")
    rows, model = table(capsys.readouterr().out), eirehn.load(classifier, which="last")
    assert model.signals == ("s0", "s1")
    assert [row["label"] for row in rows] == model.predict(X).tolist()
    chances = [[float(row[f"probability_{name}"]) for name in model.classes] for row in rows]
    np.testing.assert_allclose(chances, model.predict_proba(X), rtol=1e-6)
    assert [float(row["depth"]) for row in rows] == pytest.approx([each.mean() for each in model.depths(X)])


def test_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path, "regress")
    done(f"predict {run} {written(tmp_path, 'new.csv', unlabelled(X))}")
    rows = table(capsys.readouterr().out)
    assert list(rows[0]) == ["id", "label"]
    expected = [by_hand(run, each)[0][0] for each in X]
    np.testing.assert_allclose([float(row["label"]) for row in rows], expected, rtol=1e-4)
    np.testing.assert_allclose(eirehn.load(run).predict(X), expected, rtol=1e-4)


def test_several_numbers_from_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.stack(sequences(equal=True))
    path = arrays(tmp_path / "my.npz", X=x, y=x.sum(1))
    run = trained(tmp_path, "regress", path=path)
    done(f"predict {run} {arrays(tmp_path / 'new.npz', X=x[:5, :3])}")
    rows = table(capsys.readouterr().out)
    assert list(rows[0]) == ["row", "y_1", "y_2"]
    expected = [by_hand(run, each[:3])[0] for each in x[:5]]
    np.testing.assert_allclose([[float(row["y_1"]), float(row["y_2"])] for row in rows], expected, rtol=1e-4)
    wrong = arrays(tmp_path / "wrong.npz", X=np.zeros((5, 3, 4)))
    assert f"{wrong}: expected 2 channels, got 4" in refused(f"predict {run} {wrong}", capsys)


def test_wide_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x, y = sequences(equal=True), classes()
    lines = [",".join([f"t{t}c{c}" for t in range(5) for c in range(2)])]
    lines += [",".join(map(repr, each.reshape(-1).tolist())) for each in x]
    labelled = [f"{line},{label}" for line, label in zip(lines, ["y", *y], strict=True)]
    run = trained(tmp_path, "classify", path=written(tmp_path, "my.csv", "\n".join(labelled)), channels=2)
    outputs = []
    for text in (lines, labelled):
        done(f"predict {run} {written(tmp_path, 'new.csv', chr(10).join(text))}")
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert [row["y"] for row in table(outputs[0])] == eirehn.load(run).predict(np.stack(x)).tolist()
    assert [row["row"] for row in table(outputs[0])][:2] == ["0", "1"]
    fewer = "\n".join(line.rpartition(",")[0] for line in lines)
    said = refused(f"predict {run} {written(tmp_path, 'new.csv', fewer)}", capsys)
    assert "has no column 't4c1': the model was trained on t0c0, t0c1," in said


def test_a_run_that_does_not_know_its_columns(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As those of earlier versions: all columns without a role are signals, and their number must be right."""
    about = read_json(classifier / "model.json")
    assert about["columns"] == ["s0", "s1"]
    try:
        write_json(classifier / "model.json", {name: each for name, each in about.items() if name != "columns"})
        done(f"predict {classifier} {written(tmp_path, 'new.csv', unlabelled(X))}")
        assert len(table(capsys.readouterr().out)) == 7
        path = written(tmp_path, "more.csv", unlabelled(sequences(3, channels=3)))
        assert f"{path}: expected 2 channels, got 3" in refused(f"predict {classifier} {path}", capsys)
    finally:
        write_json(classifier / "model.json", about)


def test_files_that_do_not_fit(classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = unlabelled(X)
    known = "the model was trained on s0, s1, and the file has"
    files = {
        good.replace("s1", "S1"): f"has no column 's1': {known} id, t, s0, S1",
        unlabelled(sequences(2, channels=1)): f"has no column 's1': {known} id, t, s0",
        unlabelled(sequences(2, channels=3)): "has a column 's2' that the model was not trained on: remove it",
        good.replace("id,t", "idx,t"): "has no column 'id' for sequence; did you mean 'idx'?",
        good.replace("id,t", "id,T"): "has no column 't' for time",
        f"{good}case-7,0,1.0,nan\n": f"line {len(good.splitlines()) + 1}, column 's1': a value is missing",
        f"{good}case-7,0,1.0,one\n": f"line {len(good.splitlines()) + 1}, column 's1': 'one' is not a number",
        f"{good}case-7,0,1.0,1e300\n": "has values that are too large for single precision",
        good.splitlines()[0]: "has a header and no rows",
        "": "is empty",
    }
    out = tmp_path / "out.csv"
    for text, said in files.items():
        path = written(tmp_path, "new.csv", text)
        told = refused(f"predict {classifier} {path} --out {out}", capsys)
        assert said in told
        assert told.startswith(f"eirehn: {path}")
        assert not out.exists()


def test_what_cannot_be_predicted(
    classifier: Path, language_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = written(tmp_path, "new.csv", unlabelled(X))
    train(small(epochs=1), tmp_path / "synthetic")
    lines = {
        f"{classifier} {tmp_path / 'none.csv'}": f"there is no file {tmp_path / 'none.csv'}",
        f"{classifier} {tmp_path / 'new.json'}": "the file of the sequences must end in .npz, .csv",
        f"{classifier} {new} --out {tmp_path / 'out.json'}": "--out must end in .csv or .parquet, got 'out.json'",
        f"{classifier} {new} --out {new}": "--out must be a file of its own",
        f"{classifier} {new} --out {classifier / 'metrics.csv'}": "--out must be a file of its own",
        f"{classifier} {new} --top 3": "top is for language models",
        f"{classifier} {new} --max-depth 0": "max_depth must be greater than zero",
        f"{classifier} {new} --which first": "which must be one of best, last",
        f"{classifier} {new} --device abacus": "device must be one that torch can use here",
        f"{tmp_path / 'nowhere'} {new}": "holds no trained model",
        f"{tmp_path / 'synthetic'} {new}": "was not trained on a file of sequences",
        f"{language_run} {tmp_path / 'none.txt'}": "none.txt: No such file or directory",
        f"{language_run} {written(tmp_path, 'empty.txt', '')}": "empty.txt is empty",
        f"{language_run} {new} --top 0": "top must be greater than zero",
    }
    for line, said in lines.items():
        assert said in refused(f"predict {line}", capsys)


def test_next_words(language_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "lines.txt", "w1 w2\n\nzebra")
    done(f"predict {language_run} {path} --top 2 --depths --max-depth 1 --device cpu")
    rows, model = table(capsys.readouterr().out), eirehn.load(language_run)
    assert [(row["line"], row["rank"], row["depth"]) for row in rows] == [
        (line, rank, "1") for line in "123" for rank in "12"
    ]
    for at, words in enumerate((["w1", "w2"], [], ["<unk>"])):
        ids = torch.from_numpy(model.tokens.encode(["<eos>", *words])).long()[None]
        with torch.no_grad():
            likely = model(ids, max_depth=1)[0, -1].softmax(-1).topk(2)
        own = rows[2 * at : 2 * at + 2]
        assert [row["token"] for row in own] == [model.tokens.tokens[index] for index in likely.indices]
        assert [float(row["probability"]) for row in own] == pytest.approx(likely.values.tolist(), rel=1e-4)
    done(f"predict {language_run} {path} --out {tmp_path / 'words.parquet'}")
    back = pyarrow.parquet.read_table(tmp_path / "words.parquet")
    assert (back.column_names, len(back)) == (["line", "rank", "token", "probability"], 15)


def test_the_estimator_with_the_same_weights_agrees(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from eirehn.sklearn import ElasticClassifier

    model = eirehn.load(classifier)
    estimator = ElasticClassifier(hidden_size=6, max_depth=3, device="cpu")
    estimator.members_, estimator.n_channels_in_ = [model], 2
    estimator.classes_ = np.array(model.classes)
    done(f"predict {classifier} {written(tmp_path, 'new.csv', unlabelled(X))} --device cpu")
    rows = table(capsys.readouterr().out)
    assert [row["label"] for row in rows] == estimator.predict(X).tolist()
    chances = [[float(row[f"probability_{name}"]) for name in model.classes] for row in rows]
    np.testing.assert_allclose(chances, estimator.predict_proba(X), rtol=1e-6)
