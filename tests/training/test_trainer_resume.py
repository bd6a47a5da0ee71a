"""A training that was stopped, wherever it was, or made longer ends with the bits of one that was not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.language import calibrated, small_language_recipe, temperatures, written
from helpers.quick import quick
from helpers.ragged import ragged
from helpers.resume import StopAt, same, stopped, train_with_stops
from helpers.small import Sums, small, with_data, with_network

from eirehn._internal.files import RunError, read_json
from eirehn.data import text
from eirehn.data.table import FileData
from eirehn.models import LanguageNetwork
from eirehn.training.config import DATA, Recipe
from eirehn.training.evaluate import evaluate
from eirehn.training.loaders import Data
from eirehn.training.run import RunFolder
from eirehn.training.trainer import train, with_more_epochs


def language(folder: Path, **options: Any) -> Recipe:
    options = {"penalty": 1e-4, "sum_steps": True, **options}
    return small_language_recipe(written(folder, train=500, test=100), **options)  # 6 batches an epoch


def own_file(folder: Path) -> Recipe:
    return with_data(small(), FileData(path=str(ragged(folder)), validation=0.15, class_weights="balanced"))


START = {"weight_bound": 0.5, "alpha": 0.05, "gate_bias": 0.0, "decay_bias": -4.0}
RECIPES: dict[str, Callable[[Path], Recipe]] = {
    "double precision": lambda folder: small(precision="64-true", average=0.9),
    "own file": own_file,
    "nothing held out": lambda folder: with_data(small(), Sums()),
    "random offsets": lambda folder: language(folder, shift=True),
    "language by sgd": lambda folder: language(folder, optimizer="sgd", schedule="decay", average=0.9),
    # What a pointer can point at is a part of the state that is saved.
    "pointer": lambda folder: replace(
        language(folder, optimizer="sgd"), network=LanguageNetwork("LSTM", 8, pointer=5)
    ),
    "calibrated": lambda folder: calibrated(language(folder, average=0.9), start=START),
}
ALL: dict[str, Any] = {"schedule": "cosine", "clip": 0.1, "depth_penalty": 1e-3, "average": 0.9}
OPTIONS = {"plain": {}, "all options": {**ALL, "optimizer": "adamw", "warmup": 0.2, "early": 0.5}}
STOPS = [[(1, False)], [(3, False)], [(4, False)], [(5, True)], [(12, True)]]
STOPS += [[(2, False), (6, True), (7, False), (11, False)]]
saved = pytest.mark.parametrize("every", quick(0.0, of=[0.0, 1e9]), ids=["saved every step", "saved on request"])


def check_the_same_bits(recipe: Recipe, folder: Path, stops: list[tuple[int, bool]], every: float) -> None:
    train(recipe, folder / "straight")
    train_with_stops(recipe, folder / "stopped", [StopAt(at, killed=killed) for at, killed in stops], every)
    same(folder / "stopped", folder / "straight")


@pytest.mark.parametrize("options", quick("all options", of=OPTIONS))
@saved
@pytest.mark.parametrize("stops", STOPS, ids=str)
def test_the_same_bits(options: str, every: float, stops: list[tuple[int, bool]], tmp_path: Path) -> None:
    # 4 batches an epoch, 3 epochs; dropout draws from torch's generator at every step.
    recipe = with_network(small(**OPTIONS[options]), input_dropout=0.2, hidden_dropout=0.2)
    check_the_same_bits(recipe, tmp_path, stops, every)


@saved
@pytest.mark.parametrize("name", RECIPES)
def test_the_same_bits_of_other_trainings(
    name: str, every: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DATA, Sums.kind, Sums)
    stops = [(1, False), (3, True), (4, False)] if name == "own file" else [(3, False), (4, False), (8, True)]
    check_the_same_bits(RECIPES[name](tmp_path), tmp_path, stops, every)
    if name == "calibrated":
        assert temperatures(tmp_path / "straight")[-1] != [1.0]


@pytest.mark.parametrize("level", ["word", "char"])
def test_texts_in_files(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits of a training with the text in memory."""
    recipe = small_language_recipe(replace(written(tmp_path, train=500, test=100), level=level))
    train(recipe, tmp_path / "memory")
    assert recipe.data.texts().train.dtype == torch.int32
    text._read_texts.cache_clear()
    monkeypatch.setenv("EIREHN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(text, "LARGE", 0)
    monkeypatch.setattr(Data, "most_bytes", 0)
    train_with_stops(recipe, tmp_path / "files", [StopAt(4, killed=False), StopAt(8, killed=True)], 1e9)
    assert recipe.data.texts().train.dtype == torch.int16
    same(tmp_path / "files", tmp_path / "memory")
    in_files = evaluate(tmp_path / "files", batch=3)
    monkeypatch.setattr(text, "LARGE", 1 << 30)
    text._read_texts.cache_clear()
    assert evaluate(tmp_path / "memory", batch=3) == in_files


def test_an_ended_run_is_not_trained_again(tmp_path: Path) -> None:
    first = train(small(), tmp_path)
    again = train(small(), tmp_path, callbacks=[StopAt(1, killed=True)])  # which would end a training
    assert again == read_json(tmp_path / "result.json")
    assert first["values"] == again["values"]


DECAY: dict[str, Any] = {"schedule": "decay", "decay": 1.2, "decay_from": 1, "average": 0.8, "clip": 0.1}


def with_decay(**options: Any) -> Recipe:
    return with_network(small(**DECAY | options), input_dropout=0.2, hidden_dropout=0.2)


@pytest.mark.parametrize("step", [None, 6], ids=["ended", "stopped in an epoch"])
def test_more_epochs(step: int | None, tmp_path: Path) -> None:
    if step is None:
        train(with_decay(), tmp_path / "run")
    else:
        stopped(with_decay(), tmp_path / "run", step)
    longer = with_more_epochs(tmp_path / "run", 5)
    assert longer == with_decay(epochs=5)
    assert not (tmp_path / "run" / "result.json").exists()
    train(longer, tmp_path / "run")
    train(with_decay(epochs=5), tmp_path / "straight")
    same(tmp_path / "run", tmp_path / "straight")


@pytest.mark.parametrize(
    ("options", "epochs", "left", "said"),
    [
        ({"schedule": "cosine"}, 5, "result.json", "schedule cosine.* depends on their number; .* --init"),
        ({"warmup": 0.5}, 5, "result.json", "warmup 0.5.* depends on their number; .* --init"),
        ({}, 2, "result.json", "cannot be made shorter"),
        ({}, 5, "result.json", "last.ckpt is missing"),  # it is not trained anew
        ({}, 5, "metrics.csv", "last.ckpt is missing"),
    ],
)
def test_more_epochs_that_cannot_be(
    options: dict[str, Any], epochs: int, left: str, said: str, tmp_path: Path
) -> None:
    RunFolder(tmp_path).open(with_decay(**options))
    (tmp_path / left).write_text("{}")
    with pytest.raises(RunError, match=said):
        with_more_epochs(tmp_path, epochs)
    assert RunFolder(tmp_path).recipe() == with_decay(**options)
    assert (tmp_path / left).read_text() == "{}"
