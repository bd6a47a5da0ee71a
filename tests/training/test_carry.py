"""A training carried elsewhere in small files goes on as it would have, but for the rounding of its weights."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from language import small_language_recipe, written
from test_resume import StopAt

from eirehn import cli
from eirehn.files import RunError, read_json, write_json
from eirehn.loading import read_values
from eirehn.training import carry, fit
from eirehn.training.callbacks import Stopped
from eirehn.training.evaluation import evaluate
from eirehn.training.recipe import Recipe

SGD = {
    "optimizer": "sgd",
    "learning_rate": 0.5,
    "schedule": "decay",
    "decay_from": 1,
    "sum_steps": True,
    "epochs": 4,
}


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    return small_language_recipe(written(tmp_path, train=500, test=100), **SGD)  # 6 batches an epoch


def stopped(recipe: Recipe, folder: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fit.make_trainer
    stop = StopAt(step, killed=False)
    monkeypatch.setattr(fit, "make_trainer", lambda recipe, path, calls: made(recipe, path, [stop, *calls]))
    with pytest.raises(Stopped):
        fit.train(recipe, folder)
    monkeypatch.setattr(fit, "make_trainer", made)


def test_sixteen_bits() -> None:
    random = np.random.default_rng(0)
    value = random.standard_normal((2, 300, 50)) * 10.0 ** random.integers(-6, 6, (2, 300, 1))
    value[0, 7] = 0.0
    back = carry.unpacked(carry.packed(torch.from_numpy(value).float())).double().numpy()
    largest = np.abs(value).max(-1, keepdims=True)
    assert (np.abs(back - value) <= largest * (0.5 / 32767 + 1e-6)).all()
    assert (back[0, 7] == 0).all()
    short = torch.randn(1, 5000)
    assert torch.equal(carry.unpacked(carry.packed(short)), short)


@pytest.mark.parametrize("average_from", [None, 0])
@pytest.mark.parametrize("step", [6, 9, 12])
def test_it_goes_on(
    recipe: Recipe, tmp_path: Path, step: int, average_from: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With values as they are, to the bit: the position, the history and the best so far come along."""
    monkeypatch.setattr(carry, "SHORT", 1 << 30)  # all values as they are
    recipe = replace(recipe, optimisation=replace(recipe.optimisation, average_from=average_from))
    straight = fit.train(recipe, tmp_path / "straight")
    stopped(recipe, tmp_path / "here", step, monkeypatch)
    packed = carry.pack(tmp_path / "here", tmp_path / "carried")
    assert packed.before == packed.after
    arrived = carry.unpack(tmp_path / "carried", tmp_path / "there")
    assert arrived.before == pytest.approx(arrived.after, rel=1e-6)
    result = fit.train(recipe, tmp_path / "there")
    ours, theirs = (read_values(tmp_path / name / "last.safetensors") for name in ("there", "straight"))
    for name, value in theirs.items():
        assert torch.equal(ours[name], value)
    assert (tmp_path / "there" / "metrics.csv").read_text() == (tmp_path / "straight" / "metrics.csv").read_text()
    assert result["best_validation"] == straight["best_validation"]
    assert result["best_epoch"] == straight["best_epoch"]


def test_the_rounding_is_small_and_told(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carry, "SHORT", 0)
    straight = fit.train(recipe, tmp_path / "straight")
    stopped(recipe, tmp_path / "here", 12, monkeypatch)
    carried = carry.pack(tmp_path / "here", tmp_path / "carried")
    assert carried.before != carried.after
    assert carried.before == pytest.approx(carried.after, rel=1e-3)
    carry.unpack(tmp_path / "carried", tmp_path / "there")
    # What arrived can be evaluated before it is trained on.
    found = evaluate(tmp_path / "there", split="validation", batch=recipe.optimisation.batch_size)
    assert found.values == pytest.approx(carried.after, rel=1e-6)
    assert fit.train(recipe, tmp_path / "there")["values"] == pytest.approx(straight["values"], rel=1e-2)


def test_the_best_epoch_can_be_carried(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(recipe, tmp_path / "here", 15, monkeypatch)
    carried = carry.pack(tmp_path / "here", tmp_path / "carried", which="best")
    assert carried.before == pytest.approx(carried.best, rel=1e-6)


def test_limits(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped(recipe, tmp_path / "here", 6, monkeypatch)
    monkeypatch.setattr(carry, "PART", 10_000)
    carry.pack(tmp_path / "here", tmp_path / "carried")
    parts = sorted((tmp_path / "carried").glob("carry.[0-9]*"))
    assert len(parts) > 2
    assert all(part.stat().st_size <= 10_000 for part in parts)
    assert len(read_json(tmp_path / "carried" / "carry.json")["parts"]) == len(parts)
    parts[1].write_bytes(b"?" + parts[1].read_bytes()[1:])
    with pytest.raises(RunError, match=r"carry.01 is damaged"):
        carry.unpack(tmp_path / "carried", tmp_path / "there")
    monkeypatch.setattr(carry, "MOST", 10_000)
    with pytest.raises(RunError, match="MiB to carry"):
        carry.pack(tmp_path / "here", tmp_path / "other")
    with pytest.raises(RunError, match="is not empty"):
        carry.pack(tmp_path / "here", tmp_path / "carried")


def test_the_published_sizes_fit() -> None:
    """25.3 million weights in 16 bits, in files of 16 MiB."""
    numbers = 25_400_000
    rows = 10_000 + 6 * 2400
    assert 2 * numbers + 4 * rows + 4 * 100_000 + (1 << 20) < carry.MOST
    assert carry.PART <= 16 << 20


def test_adam_remembers_too_much(recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(recipe, optimisation=replace(recipe.optimisation, optimizer="adam", learning_rate=0.01))
    stopped(other, tmp_path / "here", 6, monkeypatch)
    with pytest.raises(RunError, match="only trainings by sgd"):
        carry.pack(tmp_path / "here", tmp_path / "carried")


def test_by_command(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(recipe, tmp_path / "here", 9, monkeypatch)
    capsys.readouterr()
    assert cli.main(["carry", "pack", str(tmp_path / "here"), str(tmp_path / "carried")]) == 0
    assert "validation perplexity" in capsys.readouterr().out
    assert cli.main(["carry", "unpack", str(tmp_path / "carried"), str(tmp_path / "there")]) == 0
    assert "train --resume" in capsys.readouterr().out
    assert cli.main(["train", "--resume", str(tmp_path / "there")]) == 0
    assert "test perplexity" in capsys.readouterr().out
    assert cli.main(["carry", "push", "a", "b"]) == 2
    assert cli.main(["carry", "unpack", str(tmp_path), str(tmp_path / "other")]) == 2
    assert "no carry.json" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["no recipe", "another recipe", "no figures", "other bytes", "a list"])
def test_what_cannot_be_unpacked_is_told(
    damage: str,
    recipe: Recipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stopped(recipe, tmp_path / "here", 4, monkeypatch)
    carry.pack(tmp_path / "here", tmp_path / "carried")
    about = read_json(tmp_path / "carried" / "carry.json")
    if damage == "no recipe":
        del about["recipe"]
    elif damage == "another recipe":
        about["recipe"]["network"]["hidden_size"] += 1
    elif damage == "no figures":
        del about["before"]
    elif damage == "other bytes":  # with the checksum of those
        (tmp_path / "carried" / "carry.00").write_bytes(b"no training")
        about["parts"] = [{"name": "carry.00", "sha256": hashlib.sha256(b"no training").hexdigest()}]
    else:
        about = [about]
    write_json(tmp_path / "carried" / "carry.json", about)
    capsys.readouterr()
    assert cli.main(["carry", "unpack", str(tmp_path / "carried"), str(tmp_path / "there")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "there").exists()
