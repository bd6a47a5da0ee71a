"""A training that is made longer, or given another end, has the bits of one that was so from the start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.quick import quick
from helpers.resume import KilledError, StopAt, same, stopped
from helpers.small import small, with_network

import eirehn.training.fit as fit
from eirehn import cli
from eirehn.files import RunError, read_json, write_json
from eirehn.training.longer import lengthen
from eirehn.training.recipe import Recipe

DECAY: dict[str, Any] = {"schedule": "decay", "decay": 1.2, "decay_from": 1, "average": 0.8, "clip": 0.1}
# 4 batches an epoch, 3 epochs: epochs and cooldown of before, the step it is stopped after, and those of then.
CASES: dict[str, tuple[dict[str, Any], int | None, dict[str, Any]]] = {
    "ended": ({}, None, {"epochs": 5}),
    "ended, then cooled down": ({}, None, {"epochs": 5, "cooldown": 0.4}),
    "stopped in an epoch": ({}, 6, {"epochs": 4, "cooldown": 0.5}),
    "cooled down later": ({"cooldown": 0.4}, 6, {"epochs": 4, "cooldown": 0.0}),
    "cut short": ({"epochs": 9}, 6, {"epochs": 3, "cooldown": 0.4}),
    "another rate for the next step": ({}, 10, {"cooldown": 0.25}),
    "another rate for the next step, of none": ({"cooldown": 0.1}, None, {"epochs": 5, "cooldown": 0.0}),
    "another rate for the next step, ended": ({}, None, {"epochs": 5, "cooldown": 0.45}),
}


def recipe(**options: Any) -> Recipe:
    return with_network(small(**DECAY | options), input_dropout=0.2, hidden_dropout=0.2)


@pytest.mark.parametrize("case", quick("ended, then cooled down", "another rate for the next step", of=CASES))
def test_the_same_bits(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, step, after = CASES[case]
    if step is None:
        fit.train(recipe(**before), tmp_path / "run")
    else:
        stopped(recipe(**before), tmp_path / "run", step)
    longer = lengthen(tmp_path / "run", **after)
    assert longer == recipe(**before | after)
    assert not (tmp_path / "run" / "result.json").exists()
    fit.train(longer, tmp_path / "run")
    fit.train(recipe(**before | after), tmp_path / "straight")
    same(tmp_path / "run", tmp_path / "straight")


def test_epochs_that_were_not_saved_are_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had gone on after its last state, was killed, and ends with that state."""
    stopped(recipe(epochs=9), tmp_path / "run", 12)
    made, stop = fit.make_trainer, StopAt(18, killed=True)
    with monkeypatch.context() as patched:
        patched.setattr(fit, "make_trainer", lambda recipe, path, calls: made(recipe, path, [stop, *calls]))
        with pytest.raises(KilledError):
            fit.train(recipe(epochs=9), tmp_path / "run", save_seconds=1e9)
    fit.train(lengthen(tmp_path / "run", epochs=3), tmp_path / "run")
    fit.train(recipe(epochs=3), tmp_path / "straight")
    same(tmp_path / "run", tmp_path / "straight")


def test_a_run_not_begun_takes_any_change(tmp_path: Path) -> None:
    with fit.RunFolder(tmp_path) as run:
        run.open(recipe(schedule="cosine"))
    assert lengthen(tmp_path, epochs=9) == fit.RunFolder(tmp_path).recipe() == recipe(schedule="cosine", epochs=9)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    r"epochs 5: from its epoch 1 on, of 3 so far, its learning rate": ({"schedule": "cosine"}, {"epochs": 5}),
    r"epochs 6: from its epoch 1 on": ({"warmup": 0.5}, {"epochs": 6}),
    r"cooldown 0.3: from its epoch 3 on": ({}, {"cooldown": 0.3}),
    r"epochs 5: from its epoch 2 on": ({"cooldown": 0.5}, {"epochs": 5}),
    r"trained for 3 epochs, more than 2": ({}, {"epochs": 2}),
}


@pytest.mark.parametrize("told", quick("cooldown 0.3: from its epoch 3 on", of=REFUSED))
def test_what_was_trained_otherwise_is_not_made_longer(told: str, tmp_path: Path) -> None:
    options, changes = REFUSED[told]
    first = fit.train(recipe(**options), tmp_path)
    with pytest.raises(RunError, match=told):
        lengthen(tmp_path, **changes)
    assert fit.RunFolder(tmp_path).recipe() == recipe(**options)
    assert read_json(tmp_path / "result.json")["values"] == first["values"]


@pytest.mark.slow
@pytest.mark.parametrize("at", ["eirehn.training.folder.write_json", "eirehn.training.folder.Path.unlink"])
def test_killed_in_between(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run never has a result of another recipe than its own."""
    fit.train(recipe(), tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(at, None)
        with pytest.raises(TypeError):
            lengthen(tmp_path, epochs=5)
    left = fit.RunFolder(tmp_path).recipe()
    fit.train(left, tmp_path)
    assert len((tmp_path / "metrics.csv").read_text().splitlines()) == 1 + left.optimisation.epochs * 2


@pytest.mark.parametrize("left", ["result.json", "metrics.csv"])
def test_what_has_lost_its_state_is_not_trained_anew(left: str, tmp_path: Path) -> None:
    fit.train(recipe(), tmp_path)
    for gone in {"last.ckpt", "result.json", "metrics.csv"} - {left}:
        (tmp_path / gone).unlink()
    with pytest.raises(RunError, match=r"last.ckpt is not there"):
        lengthen(tmp_path, epochs=5)
    assert fit.RunFolder(tmp_path).recipe() == recipe()
    assert (tmp_path / left).exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_what_cannot_be_trained_here_keeps_its_result(tmp_path: Path) -> None:
    fit.train(recipe(), tmp_path)
    own = fit.RunFolder(tmp_path).recipe()
    write_json(tmp_path / "recipe.json", replace(own, hardware=replace(own.hardware, accelerator="gpu")).to_dict())
    with pytest.raises(ValueError, match="hardware"):
        lengthen(tmp_path, epochs=5)
    assert (tmp_path / "result.json").exists()
    assert fit.RunFolder(tmp_path).recipe().optimisation.epochs == 3


def test_other_processes_wait_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fit.train(recipe(), tmp_path)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr("eirehn.training.longer.PATIENCE", 0.0)
    with pytest.raises(RunError, match="first process has not changed"):
        lengthen(tmp_path, epochs=5)
    assert (tmp_path / "result.json").exists()
    with fit.RunFolder(tmp_path) as run:
        run.change(recipe(epochs=5))
    assert lengthen(tmp_path, epochs=5) == recipe(epochs=5)


def test_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    fit.train(recipe(), run)
    more = ["train", "--resume", str(run), "--optimisation.epochs", "4"]
    assert cli.main([*more, "--optimisation.cooldown=0.25"]) == 0
    assert "run:" in capsys.readouterr().out
    assert fit.RunFolder(run).recipe() == recipe(epochs=4, cooldown=0.25)
    assert len((run / "metrics.csv").read_text().splitlines()) == 1 + 4 * 2
    wrong = {
        "epochs must be": ["--optimisation.epochs", "0"],
        "cooldown must be": ["--optimisation.cooldown", "1.5"],
        "learning rate would have been another": ["--optimisation.cooldown", "0.5"],
        "more than 2": ["--optimisation.epochs", "2"],
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
    assert fit.RunFolder(run).recipe() == recipe(epochs=4, cooldown=0.25)
