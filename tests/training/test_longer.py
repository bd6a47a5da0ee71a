"""Runs resumed with more epochs have the bits of trainings of that length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.resume import same, stopped
from helpers.small import small, with_network

from eirehn import cli
from eirehn._internal.files import RunError, read_json
from eirehn.training.config import Recipe
from eirehn.training.run import RunFolder
from eirehn.training.trainer import train, with_more_epochs

DECAY: dict[str, Any] = {"schedule": "decay", "decay": 1.2, "decay_from": 1, "average": 0.8, "clip": 0.1}


def recipe(**options: Any) -> Recipe:
    return with_network(small(**DECAY | options), input_dropout=0.2, hidden_dropout=0.2)


@pytest.mark.parametrize("step", [None, 6], ids=["ended", "stopped in an epoch"])
def test_the_same_bits(step: int | None, tmp_path: Path) -> None:
    if step is None:
        train(recipe(), tmp_path / "run")
    else:
        stopped(recipe(), tmp_path / "run", step)
    longer = with_more_epochs(tmp_path / "run", 5)
    assert longer == recipe(epochs=5)
    assert not (tmp_path / "run" / "result.json").exists()
    train(longer, tmp_path / "run")
    train(recipe(epochs=5), tmp_path / "straight")
    same(tmp_path / "run", tmp_path / "straight")


@pytest.mark.parametrize(
    ("options", "epochs", "said"),
    [
        ({"schedule": "cosine"}, 5, "schedule cosine"),
        ({"warmup": 0.5}, 5, "warmup 0.5"),
        ({}, 2, "cannot be made shorter"),
    ],
)
def test_what_cannot_be(options: dict[str, Any], epochs: int, said: str, tmp_path: Path) -> None:
    first = train(recipe(**options), tmp_path)
    with pytest.raises(RunError, match=said):
        with_more_epochs(tmp_path, epochs)
    assert RunFolder(tmp_path).recipe() == recipe(**options)
    assert read_json(tmp_path / "result.json")["values"] == first["values"]


@pytest.mark.parametrize("left", ["result.json", "metrics.csv"])
def test_what_has_lost_its_state_is_not_trained_anew(left: str, tmp_path: Path) -> None:
    train(recipe(), tmp_path)
    for gone in {"last.ckpt", "result.json", "metrics.csv"} - {left}:
        (tmp_path / gone).unlink()
    with pytest.raises(RunError, match=r"last.ckpt is missing"):
        with_more_epochs(tmp_path, 5)
    assert RunFolder(tmp_path).recipe() == recipe()
    assert (tmp_path / left).exists()


def test_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    train(recipe(), run)
    assert cli.main(["train", "--resume", str(run), "--optimisation.epochs", "4"]) == 0
    assert "run:" in capsys.readouterr().out
    assert RunFolder(run).recipe() == recipe(epochs=4)
    assert len((run / "metrics.csv").read_text().splitlines()) == 1 + 4 * 2
    wrong = {
        "cannot be made shorter": ["--optimisation.epochs", "0"],
        "learning_rate": ["--optimisation.learning_rate", "0.1"],
        "epochs must be a whole number, got 100.0 (": ["--optimisation.epochs", "1e2"],
    }
    for told, words in wrong.items():
        assert cli.main(["train", "--resume", str(run), *words]) == 2
        error = capsys.readouterr().err
        assert told in error
        assert error.count("\n") == 1, error
    assert cli.main(["train", "--resume", str(tmp_path / "none"), "--optimisation.epochs", "5"]) == 2
    assert not (tmp_path / "none").exists()
    assert RunFolder(run).recipe() == recipe(epochs=4)
