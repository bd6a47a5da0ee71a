"""Trainings with nothing held out: the last epoch counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.resume import StopAt, same, stopped, train_with_stops
from helpers.small import Sums, small, with_data

import eirehn
from eirehn._internal.files import RunError
from eirehn.models.io import read_values
from eirehn.training.checkpoint import KIND, MARK
from eirehn.training.config import DATA, Recipe
from eirehn.training.trainer import make_task, train


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setitem(DATA, Sums.kind, Sums)
    return with_data(small(epochs=4, learning_rate=0.05), Sums())


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_the_last_epoch_is_the_best(recipe: Recipe, average: float, tmp_path: Path) -> None:
    recipe = replace(recipe, optimisation=replace(recipe.optimisation, average=average))
    result = train(recipe, tmp_path)
    best, last = (read_values(tmp_path / f"{name}.safetensors") for name in ("best", "last"))
    assert all(torch.equal(best[name], last[name]) for name in last)
    assert result["best_epoch"] == [4, 4]
    assert result["values"] == result["final_values"]
    assert result["best_validation"] is None


def test_it_goes_on_after_stops(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(recipe, tmp_path / "whole")
    stops = [StopAt(3, killed=False), StopAt(4, killed=False), StopAt(9, killed=True)]
    train_with_stops(recipe, tmp_path / "stopped", stops, 0.0)
    same(tmp_path / "stopped", tmp_path / "whole")


def test_the_last_epoch_counts_also_where_it_is_worse(recipe: Recipe) -> None:
    task = make_task(recipe)
    losses = torch.tensor([[1.0, 1.0], [2.0, torch.nan]], dtype=torch.float64)
    for epoch, loss in enumerate(losses):
        task.best.take(loss, epoch, task.ensemble)
    assert task.best.epoch.tolist() == [1, 0]
    assert task.best.score.tolist() == [2.0, 1.0]


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_training_is_that_of_a_run_with_validation(recipe: Recipe, average: float, tmp_path: Path) -> None:
    recipe = replace(recipe, optimisation=replace(recipe.optimisation, average=average))
    train(recipe, tmp_path / "without")
    train(replace(recipe, data=Sums(validation=30)), tmp_path / "with")
    # The two draw their sequences in one, so those to train on are the same.
    ours, theirs = (read_values(tmp_path / name / "last.safetensors") for name in ("without", "with"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_the_member_loaded_is_the_one_with_the_least_training_loss(recipe: Recipe, tmp_path: Path) -> None:
    train(recipe, tmp_path)
    lines = [line.split(",") for line in (tmp_path / "metrics.csv").read_text().splitlines()]
    column = lines[0].index("train_loss")
    losses = {int(line[1]): float(line[column]) for line in lines[1:] if line[0] == "4"}
    expected = eirehn.load(tmp_path, seed=min(losses, key=losses.__getitem__))
    model = eirehn.load(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))


def test_data_of_an_unknown_kind(recipe: Recipe) -> None:
    content = recipe.to_dict()
    assert content["data"] == {"kind": "sums", "train": 64, "validation": 0}
    for kind in ("nothing", None, ["sums"]):
        with pytest.raises(ValueError, match=r"data.kind must be one of synthetic, har"):
            Recipe.from_dict({**content, "data": {"kind": kind}})


def test_a_checkpoint_of_another_version(recipe: Recipe, tmp_path: Path) -> None:
    stopped(recipe, tmp_path, 3)
    content = (tmp_path / "last.ckpt").read_bytes()
    (tmp_path / "last.ckpt").write_bytes(content.replace(MARK, KIND + b"1\n", 1))
    with pytest.raises(RunError, match="another version"):
        train(recipe, tmp_path)
