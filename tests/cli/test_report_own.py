"""`eirehn report` of a user's own data is about that data, and has nothing of the paper in it."""

from __future__ import annotations

import html
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.command import done
from helpers.language import written

from eirehn.cli import main
from eirehn.experiments import classification, language, regression
from eirehn.experiments.trained import Trained

SMALL = "--network.hidden_size=4 --network.max_depth=2 --optimisation.epochs=2 --hardware.accelerator=cpu"
COLUMNS = """--data.sequence trip --data.time second --data.values '["speed", "brake pressure"]'"""


@pytest.fixture
def trips(tmp_path: Path) -> Path:
    """40 trips of 3 to 8 seconds, with two named signals, a named class and a number."""
    random = np.random.default_rng(0)
    lines = ["trip,second,speed,brake pressure,manoeuvre,fuel used"]
    for trip in range(40):
        kind = trip % 4 == 0
        for second in range(random.integers(3, 9)):
            speed, brake = 50 + 5 * random.normal(), 8 * kind + random.normal()
            name = "hard braking" if kind else "idle"
            lines.append(f"{trip},{second},{speed},{brake},{name},{300 + 20 * kind + trip}")
    path = tmp_path / "my trips.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def reported(
    line: list[str], run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[str, str]:
    """The text of the report of a run trained by this command, and what stderr says meanwhile."""
    line = [*line, *SMALL.split(), "--out", str(run)]
    monkeypatch.setattr(sys, "argv", ["/usr/bin/eirehn", *line])
    assert main(line) == 0
    capsys.readouterr()
    done(f"report {run} --out {run}.html")
    page = (run.parent / f"{run.name}.html").read_text("utf-8")
    page = html.unescape(re.sub(r"<[^>]*>", " ", re.sub(r"(?s)<style.*?</style>", "", page)))
    text = " ".join(page.split())
    assert not re.search(r"paper|Figure 1|\bours?\b|generator|nan\b", text, re.IGNORECASE)
    return text, capsys.readouterr().err


def test_a_classification(
    trips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = shlex.split(
        f"train --recipe classify --data '{trips}' {COLUMNS} --data.target manoeuvre --data.test 0.4"
    )
    text, err = reported(line, tmp_path / "run", monkeypatch, capsys)
    assert f"reading the test sequences with the models of {tmp_path / 'run'} …" in err
    assert "manoeuvre of each sequence from speed and brake pressure: hard braking or idle." in text
    assert "majority class: always “idle”" in text
    assert text.index("Depth at each time step depth:") < text.index("Results Test accuracy")
    assert "eirehn train --recipe classify --data '" in text
    assert f"eirehn report {tmp_path / 'run'}" in text
    run = Trained(tmp_path / "run")
    part = classification.windows(run)[0]
    assert part.names == ["speed", "brake pressure"]
    assert np.mean([speed for speed, _ in part.signals]) == pytest.approx(50, abs=8)  # not standardised


def test_scores_against_scikit_learn(trips: Path, tmp_path: Path) -> None:
    from sklearn.metrics import accuracy_score, f1_score, precision_recall_fscore_support

    line = f"train --recipe classify {SMALL} --data '{trips}' {COLUMNS} --data.target manoeuvre --data.test 0.4"
    assert main(shlex.split(f"{line} --optimisation.epochs 30 --out {tmp_path / 'run'}")) == 0
    run = Trained(tmp_path / "run")
    true = run.test.target.numpy()
    answers = [reading.predicted.numpy() for reading in classification.readings(run)]
    wanted = [100 * f1_score(true, each, average="macro") for each in answers]
    assert classification.more(run)["macro F1 (%)"] == pytest.approx(wanted)
    pooled = classification.confusion(run)
    precision, recall, f1, _ = precision_recall_fscore_support(
        np.tile(true, len(answers)), np.concatenate(answers), zero_division=np.nan
    )
    for own, other in ((pooled.precision, precision), (pooled.shares.diagonal(), recall), (pooled.f1, f1)):
        np.testing.assert_allclose(own, other)
    constant = np.ones_like(true)
    found = classification.baseline(run)
    assert found["value"] == pytest.approx(accuracy_score(true, constant))
    assert found["more"]["macro F1 (%)"] == pytest.approx(100 * f1_score(true, constant, average="macro"))


def test_a_regression(
    trips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

    line = shlex.split(f"train --recipe regress --data '{trips}' {COLUMNS} --data.target 'fuel used'")
    text, _ = reported(line, tmp_path / "run", monkeypatch, capsys)
    assert "Errors are in the units of fuel used" in text
    run = Trained(tmp_path / "run")
    fuel = {trip: 300 + 20 * (trip % 4 == 0) + trip for trip in range(40)}
    division = run.recipe.data.division
    true, seen = (np.array([fuel[trip] for trip in rows.tolist()]) for rows in (division.test, division.train))
    (found,) = regression.predictions(run)
    assert (found.label, found.target) == (run.label, "fuel used")
    np.testing.assert_allclose(found.true, true, rtol=1e-6)
    more, metric = regression.more(run), regression.metric(run.recipe.data)
    for seed, predicted in enumerate(found.predicted):
        squared = run.result["values"][seed] * metric.scale
        assert squared == pytest.approx(mean_squared_error(true, predicted), rel=1e-5)
        assert more["MAE"][seed] == pytest.approx(mean_absolute_error(true, predicted), rel=1e-5)
        assert more["R²"][seed] == pytest.approx(r2_score(true, predicted), rel=1e-5)
    constant = np.full(len(true), seen.mean())
    baseline = regression.baseline(run)
    assert baseline["value"] * metric.scale == pytest.approx(mean_squared_error(true, constant), rel=1e-5)
    assert baseline["more"]["R²"] == pytest.approx(r2_score(true, constant), rel=1e-4, abs=1e-6)


def test_several_numbers(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 5, 2))
    np.savez(tmp_path / "my.npz", X=x, y=np.stack([x.sum((1, 2)), 100 * x[:, 0, 0]], 1))
    done(f"train --recipe regress --data {tmp_path / 'my.npz'} {SMALL} --out {tmp_path / 'run'}")
    done(f"report {tmp_path / 'run'} --out {tmp_path / 'page.html'}")
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "y 1" in text
    assert "y 2" in text
    assert "R², mean of the targets" in text


def test_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = written(tmp_path, train=500, test=100)
    line = ["train", "--recipe", "lm", "--text", data.train, data.validation, data.test, "--data.steps=5"]
    text, err = reported(line, tmp_path / "run", monkeypatch, capsys)
    assert "reading the test text" in err
    assert "word frequencies alone (unigram)" in text
    assert text.index("Depth at each token Pieces") < text.index("Results Test perplexity")
    train, test = ([*Path(file).read_text().replace("\n", " <eos> ").split()] for file in (data.train, data.test))
    known = Trained(tmp_path / "run").recipe.data.output_size
    share = [(train.count(word) + 1) / (len(train) + known) for word in test[1:]]
    found = language.baseline(Trained(tmp_path / "run"))["value"]
    assert found == pytest.approx(np.exp(-np.mean(np.log(share))))
