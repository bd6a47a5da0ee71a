"""Trainings that start from the weights of a trained run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.language import small_language_recipe, written
from helpers.resume import StopAt, same, train_with_stops
from helpers.small import Sums, small, with_data, with_network

from eirehn import cli
from eirehn._internal.files import RunError, read_json, write_json
from eirehn.models.io import read_values
from eirehn.training.config import DATA, Recipe
from eirehn.training.trainer import make_task, start_from, train


def started(recipe: Recipe, init: Path) -> dict[str, torch.Tensor]:
    recipe = replace(recipe, init=str(init))
    task = make_task(recipe)
    start_from(task, recipe)
    return task.ensemble.values()


def test_each_seed_starts_from_its_own_or_from_the_best(tmp_path: Path) -> None:
    result = train(small(seeds=(3, 5)), tmp_path / "run")
    values = read_values(tmp_path / "run" / "best.safetensors")
    best = min((0, 1), key=lambda at: result["best_validation"][at])
    for name, value in started(small(seeds=(5, 7)), tmp_path / "run").items():
        assert torch.equal(value[0], values[name][1])
        assert torch.equal(value[1], values[name][best])


def test_a_warm_start_is_ahead_and_resumes_with_the_same_bits(tmp_path: Path) -> None:
    first = train(small(seeds=(0,), epochs=20), tmp_path / "run")
    recipe = replace(small(seeds=(0,), learning_rate=1e-4), init=str(tmp_path / "run"))
    second = train(recipe, tmp_path / "straight")
    assert second["values"][0] < 1.05 * first["values"][0]
    assert second["values"][0] < 0.5 * train(replace(recipe, init=None), tmp_path / "cold")["values"][0]
    train_with_stops(recipe, tmp_path / "stopped", [StopAt(2, killed=True), StopAt(5, killed=False)], 0.0)
    same(tmp_path / "stopped", tmp_path / "straight")


def test_a_head_of_another_size_starts_afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two outputs of a regression, then three classes; the recurrent layers are kept."""
    monkeypatch.setitem(DATA, Sums.kind, Sums)
    monkeypatch.setattr(Sums, "output_size", 3)
    train(small(seeds=(0,), epochs=1), tmp_path / "run")
    values = read_values(tmp_path / "run" / "best.safetensors")
    with pytest.warns(UserWarning, match="head.bias, head.weight do not fit those of .* and start afresh"):
        found = started(with_data(small(seeds=(0,)), Sums()), tmp_path / "run")
    assert found["head.weight"].shape == (1, 3, 5)
    assert all(torch.equal(found[name], values[name]) for name in found if name.startswith("body."))


def test_a_seed_without_a_best_epoch_is_passed_over(tmp_path: Path) -> None:
    train(small(seeds=(3, 5), epochs=1), tmp_path / "run")
    values, about = read_values(tmp_path / "run" / "best.safetensors"), read_json(tmp_path / "run" / "model.json")
    write_json(tmp_path / "run" / "model.json", {**about, "best_score": [None, 1.0]})
    for name, value in started(small(seeds=(3,)), tmp_path / "run").items():
        assert torch.equal(value[0], values[name][1])
    for content, said in (({**about, "best_score": [None, None]}, "no best epoch of any seed"), ({}, "is damaged")):
        write_json(tmp_path / "run" / "model.json", content)
        with pytest.raises(RunError, match=said):
            started(small(seeds=(3,)), tmp_path / "run")


def test_what_does_not_fit(tmp_path: Path) -> None:
    train(small(epochs=1), tmp_path / "run")
    with pytest.raises(RunError, match=r"recurrent layers of .* are of another form"):
        started(with_network(small(), hidden_size=6), tmp_path / "run")
    with pytest.raises(RunError, match="holds no trained model"):
        train(replace(small(), init=str(tmp_path / "none")), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_language_models_have_the_same_words(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    data = written(tmp_path, train=500, test=100)
    train(small_language_recipe(data, epochs=1), tmp_path / "run")
    started(small_language_recipe(data), tmp_path / "run")
    other = written(tmp_path / "other", train=500, test=100)
    (tmp_path / "other" / "train.txt").write_text("some other words here\n" * 100)
    with pytest.raises(RunError, match="another vocabulary"):
        started(small_language_recipe(other), tmp_path / "run")
    with pytest.raises(RunError, match="of the other kind"):
        started(small(), tmp_path / "run")


def test_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "--recipe", "synthetic-ei-rehn-10", "--data.train", "40", "--optimisation.epochs", "1"]
    assert cli.main([*words, "--seeds", "[0]", "--out", "first"]) == 0
    assert cli.main([*words, "--seeds", "[1]", "--out", "second", "--init", "first"]) == 0
    assert cli.main([*words, "--seeds", "[1]", "--out", "third", "--init", "nothing"]) == 2
    assert "nothing holds no trained model" in capsys.readouterr().err
