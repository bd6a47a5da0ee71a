"""Language models that come with the temperature that validation wants."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.language import loss_at, small_language_recipe, written
from helpers.resume import StopAt, same, train_with_stops
from numpy.typing import NDArray
from torch import Tensor

import eirehn
from eirehn import cli
from eirehn._internal.files import read_json
from eirehn.models import LanguageModel, LanguageNetwork
from eirehn.models.score import score
from eirehn.training.config import Recipe
from eirehn.training.evaluate import calibrate, evaluate
from eirehn.training.run import RunFolder
from eirehn.training.tasks import LanguageModelling
from eirehn.training.trainer import make_task, train

Array = NDArray[np.float64]
FORMS = [{}, {"pointer": 5}, {"embedding_size": 6}]
HEART = {"learning_rate": 0.02, "schedule": "decay", "decay": 1e9, "decay_from": 15, "epochs": 22}
"""A short text is learned by heart, and after 15 epochs all but nothing more."""


def calibrated(recipe: Recipe, **network: Any) -> Recipe:
    return replace(recipe, network=replace(recipe.network, calibrated=True, **network))


def chances(model: LanguageModel, tokens: Tensor, columns: int) -> tuple[Array, NDArray[np.int64]]:
    """Logits of a text in so many columns, as of a model that has no temperature, and what came."""
    length = (len(tokens) - 1) // columns
    x, target = (each[: columns * length].view(columns, length) for each in (tokens[:-1], tokens[1:]))
    assert model.temperature is not None
    own = model.temperature.item()
    model.temperature.data.fill_(1.0)
    with torch.no_grad():
        logits = model(x).flatten(0, 1).double().numpy()
    model.temperature.data.fill_(own)
    return logits, target.flatten().numpy()


def wanted_by_all(logits: Array, wanted: NDArray[np.int64]) -> float:
    """The best temperature, by looking at all there are."""
    low, high = 0.1, 10.0
    for _ in range(4):
        tried = np.geomspace(low, high, 41)
        at = int(np.argmin([loss_at(each, logits, wanted) for each in tried]))
        low, high = tried[max(at - 1, 0)], tried[min(at + 1, 40)]
    return float(tried[at])


def temperatures(run: Path) -> list[list[float]]:
    """Of each epoch, one of each member."""
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    seeds = len({row["seed"] for row in rows})
    found = [float(row["temperature"]) for row in rows]
    return [found[at : at + seeds] for at in range(0, len(found), seeds)]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_logits_are_divided_when_not_training(form: dict[str, Any]) -> None:
    torch.manual_seed(0)
    network = LanguageNetwork("EIREHN", hidden_size=8, max_depth=2, start={"weight_bound": 0.5}, **form)
    model = LanguageModel(replace(network, calibrated=True), 11).eval()
    plain = LanguageModel(network, 11).eval()
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if name != "temperature"})
    assert "temperature" in model.state_dict()
    assert sum(each.numel() for each in model.parameters() if each.requires_grad) == sum(
        each.numel() for each in plain.parameters()
    )
    tokens = torch.randint(11, (3, 6))
    torch.testing.assert_close(model(tokens), plain(tokens))
    assert model.temperature is not None
    model.temperature.data.fill_(2.0)
    torch.testing.assert_close(model(tokens).softmax(-1), (plain(tokens) / 2).softmax(-1))
    if form.get("pointer"):  # it gives log-probabilities
        torch.testing.assert_close(model(tokens).exp().sum(-1), torch.ones(3, 6))
    else:
        torch.testing.assert_close(model(tokens), plain(tokens) / 2)
    torch.testing.assert_close(model.train()(tokens), plain.train()(tokens))


@pytest.mark.parametrize(
    ("form", "averaged"),
    [
        *(pytest.param(each, {}, marks=pytest.mark.slow) for each in FORMS),
        ({}, {"average": 0.8}),
    ],
    ids=str,
)
def test_what_is_found_is_what_validation_wants(
    form: dict[str, Any], averaged: dict[str, Any], tmp_path: Path
) -> None:
    """Of two members that stand still in the end, against a search in NumPy."""
    recipe = small_language_recipe(written(tmp_path, train=500, test=300), **HEART, **averaged)
    recipe = replace(calibrated(recipe, **form), seeds=(0, 1))
    train(recipe, tmp_path / "run")
    tokens = torch.as_tensor(recipe.data.texts().validation).long()  # type: ignore[attr-defined]  # of a text
    found = []
    for seed in recipe.seeds:
        model = eirehn.load(tmp_path / "run", seed=seed, which="last")
        found.append(wanted_by_all(*chances(model, tokens, 10)))
        assert model.temperature.item() == pytest.approx(found[-1], rel=5e-4)
    assert max(abs(each - 1) for each in found) > 0.02
    assert abs(found[0] - found[1]) > 0.002
    assert temperatures(tmp_path / "run")[-1] == pytest.approx(found, rel=5e-4)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a text so short that it is learned by heart."""
    folder = tmp_path_factory.mktemp("calibrated")
    recipe = small_language_recipe(written(folder, train=600, test=600), epochs=30, learning_rate=0.015)
    with eirehn.use_backend("auto"):
        train(calibrated(recipe), folder / "run")
    return folder / "run"


def test_a_model_learned_by_heart_is_not_so_sure(run: Path) -> None:
    told = [each[0] for each in temperatures(run)]
    assert told[0] == 1.0
    assert told[-1] > 1.1
    recipe, result = RunFolder(run).recipe(), read_json(run / "result.json")
    model, texts = eirehn.load(run), recipe.data.texts()  # type: ignore[attr-defined]  # of a text
    assert model.temperature.item() == pytest.approx(told[result["best_epoch"][0] - 1])
    tokens = torch.as_tensor(texts.validation).long()
    loss = loss_at(model.temperature.item(), *chances(model, tokens, recipe.optimisation.batch_size))
    assert result["best_validation"] == [pytest.approx(math.exp(loss), rel=1e-5)]
    tokens = torch.as_tensor(texts.test).long()
    loss = loss_at(model.temperature.item(), *chances(model, tokens, 1))
    assert result["values"] == evaluate(run).values == [pytest.approx(math.exp(loss), rel=1e-5)]
    later = eirehn.load(run, which="last")
    assert loss_at(later.temperature.item(), *chances(later, tokens, 1)) < loss_at(1.0, *chances(later, tokens, 1))
    # What is to be found beyond it is little: it is the one of an epoch before.
    assert calibrate(run, split="validation", batch=10).temperatures == pytest.approx([1.0], abs=0.03)


def test_another_temperature_is_told_as_such(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = calibrate(run).temperatures[0]
    assert cli.main(["evaluate", str(run), "--calibrate", "--together"]) == 0
    said = capsys.readouterr().out
    assert f"temperature {found:.2f} besides its own" in said
    assert "together, 1 models: " in said
    assert "not at these temperatures" in said


def test_scores_are_of_it(run: Path) -> None:
    model = eirehn.load(run)
    words = ["w1", "w6", "w7", "<eos>", "w3", "w16"]
    tokens = torch.as_tensor(model.tokens.encode(["<eos>", *words])).long()
    logits, wanted = chances(model, tokens, 1)
    bits = [each.bits for each in score(model, model.tokens, words)]
    assert np.mean(bits) * math.log(2) == pytest.approx(loss_at(model.temperature.item(), logits, wanted), rel=1e-5)
    assert np.mean(bits) * math.log(2) != pytest.approx(loss_at(1.0, logits, wanted), rel=1e-3)


def test_it_goes_on_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(tmp_path, train=500, test=100)
    start = {"weight_bound": 0.5, "alpha": 0.05, "gate_bias": 0.0}
    recipe = calibrated(small_language_recipe(data, average=0.9), start=start)
    train(recipe, tmp_path / "straight")
    stops = [StopAt(4, killed=False), StopAt(8, killed=True), StopAt(13, killed=False)]
    train_with_stops(recipe, tmp_path / "stopped", stops, 0.0)
    same(tmp_path / "stopped", tmp_path / "straight")
    assert temperatures(tmp_path / "stopped") == temperatures(tmp_path / "straight")
    assert temperatures(tmp_path / "straight")[-1] != [1.0]


def test_derivatives(tmp_path: Path) -> None:
    """Of two members, against autograd."""
    recipe = calibrated(small_language_recipe(written(tmp_path, train=500, test=100)))
    task = make_task(replace(recipe, seeds=(0, 1)))
    torch.manual_seed(0)
    logits = 3 * torch.randn(2, 3, 5, 11, dtype=torch.float64)
    target = torch.randint(11, (2, 3, 5))
    factor = torch.ones(2, dtype=torch.float64, requires_grad=True)
    losses = F.cross_entropy((logits * factor.view(2, 1, 1, 1)).flatten(0, 2), target.flatten(), reduction="none")
    slope = torch.autograd.grad(losses.sum(), factor, create_graph=True)[0]
    bend = torch.autograd.grad(slope.sum(), factor)[0]
    found = task.calibration_sums(logits, target)
    torch.testing.assert_close(torch.stack(found), torch.stack([slope.detach(), bend]), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("sums", "found"),
    [
        ((0.0, 10.0), 1.5),
        ((1.0, 10.0), 1.5 / 0.9),
        ((-1.0, 10.0), 1.5 / 1.1),
        ((100.0, 10.0), 1.5 / 0.8),
        ((-100.0, 10.0), 1.5 / 1.25),
        ((math.inf, 10.0), 1.5),
        ((math.nan, 10.0), 1.5),
        ((1.0, math.inf), 1.5),
        ((1.0, 0.0), 1.5),
        ((0.0, 0.0), 1.5),
    ],
)
def test_sums_that_say_little(sums: tuple[float, float], found: float, tmp_path: Path) -> None:
    recipe = calibrated(small_language_recipe(written(tmp_path, train=500, test=100), average=0.9))
    task = make_task(recipe)
    assert isinstance(task, LanguageModelling)
    assert task.temperature_at is not None
    with torch.no_grad():
        task.ensemble.stacked[task.temperature_at].fill_(1.5)
        task.calibrate(torch.tensor(sums, dtype=torch.float64)[:, None])
    for values in (task.ensemble.stacked, task.averages.values):
        assert values[task.temperature_at].tolist() == [pytest.approx(found)]


def test_bounds_of_a_temperature(tmp_path: Path) -> None:
    task = make_task(calibrated(small_language_recipe(written(tmp_path, train=500, test=100))))
    with torch.no_grad():
        for _ in range(25):
            task.calibrate(torch.tensor([[100.0], [1.0]], dtype=torch.float64))
        assert task.ensemble.values()["temperature"].tolist() == [10.0]
        for _ in range(25):
            task.calibrate(torch.tensor([[-100.0], [1.0]], dtype=torch.float64))
        assert task.ensemble.values()["temperature"].tolist() == [pytest.approx(0.1)]


def test_what_cannot_be_calibrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TypeError, match="calibrated"):
        LanguageNetwork("LSTM", calibrated="yes")  # type: ignore[arg-type]
    model = LanguageModel(LanguageNetwork("LSTM", 4, calibrated=True, pointer=3), 9).eval()
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    with pytest.raises(ValueError, match="target must be None"):
        model.run(tokens, target=tokens)
    command = ["train", "--recipe", "synthetic-ei-rehn-20", "--network.calibrated", "true"]
    assert cli.main([*command, "--out", str(tmp_path / "run")]) == 2
    assert "unrecognized arguments: --network.calibrated" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
