"""Whole trainings: against a loop of plain torch, from other weights, and with nothing held out."""

from __future__ import annotations

import csv
import gc
import math
import shutil
import signal
import weakref
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from helpers.language import RATE, small_language_recipe, written
from helpers.resume import StopAt, same, train_with_stops
from helpers.small import DATA, Sums, exploding, small, with_data, with_network
from torch import nn
from torch.func import functional_call

from eirehn._internal.checks import UnstableTraining
from eirehn._internal.files import RunError, read_json, write_json
from eirehn.data.synthetic import SyntheticData
from eirehn.models import SequenceModel
from eirehn.models.io import load, read_values
from eirehn.training import config
from eirehn.training.config import Recipe
from eirehn.training.evaluate import evaluate
from eirehn.training.in_memory import Tensors, train_in_memory
from eirehn.training.trainer import make_task, start_from, train

ALL_OPTIONS = {
    "optimizer": "adamw",
    "beta1": 0.6,
    "beta2": 0.97,
    "weight_decay": 0.1,
    "schedule": "cosine",
    "warmup": 0.25,
    "average": 0.8,
    "clip": 0.05,
    "depth_penalty": 1e-3,
}


@pytest.mark.parametrize("options", [{}, ALL_OPTIONS], ids=["plain", "all options"])
def test_against_a_loop_of_plain_torch(options: dict[str, Any], tmp_path: Path) -> None:
    """The same training written out: the same order of the same data, the best epoch on validation data."""
    recipe = small(seeds=(3,), precision="64-true", epochs=5, **options)
    recipe = replace(recipe, data=replace(recipe.data, turn=bool(options)))
    result = train(recipe, tmp_path)
    splits, quarter = DATA.load(), torch.tensor([[0.0, 1.0], [-1.0, 0.0]]).double()
    torch.manual_seed(3)
    model = SequenceModel(recipe.network, 2, 2).double()
    average = {name: value.detach().clone() for name, value in model.named_parameters()}
    if options:
        optimizer = torch.optim.AdamW(model.parameters(), 0.01, (0.6, 0.97), weight_decay=0.1)
    else:
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
    best, losses, step = (float("inf"), 0.0, 0), [], 0
    for epoch in range(5):
        order, seen = np.random.default_rng([3, epoch]).permutation(60), []
        for number, rows in enumerate(np.array_split(order, [16, 32, 48])):
            x, target = (part[rows].double() for part in splits.train[:2])
            if options:
                quarters = np.random.default_rng([3, epoch, number]).integers(4, size=len(rows))
                turns = torch.stack([quarter.matrix_power(count) for count in quarters.tolist()])  # (B, 2, 2)
                x, target = x @ turns, target @ turns
            optimizer.zero_grad()
            outcome = model.run(x, with_cost=True)
            loss = nn.functional.mse_loss(outcome.prediction, target)
            seen += [loss.item()] * len(rows)
            penalty = options.get("depth_penalty", 0.0) * loss.detach()
            (loss + penalty * (outcome.cost - 2).clamp_min(0).mean()).backward()
            if options:
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                progress = (step - 5) / 15  # 20 steps, the first quarter of them to warm up
                factor = (step + 1) / 6 if step < 5 else 0.5 * (1 + math.cos(math.pi * progress))
                optimizer.param_groups[0]["lr"] = 0.01 * factor
            optimizer.step()
            step += 1
            for name, value in model.named_parameters():
                average[name].lerp_(value.detach(), 1 - min(0.8, step / (step + 9)))
        losses.append(np.mean(seen))
        judged = average if options else {name: value.detach() for name, value in model.named_parameters()}
        validation, test = (
            nn.functional.mse_loss(functional_call(model, judged, x.double()), target.double()).item()
            for x, target, _ in splits[1:]
        )
        best = min(best, (validation, test, epoch + 1))
    assert result["values"][0] == pytest.approx(best[1], rel=1e-9)
    assert result["best_epoch"] == [best[2]]
    assert result["best_validation"][0] == pytest.approx(best[0], rel=1e-9)
    assert result["final_values"][0] == pytest.approx(test, rel=1e-9)
    lines = (tmp_path / "metrics.csv").read_text().splitlines()[1:]
    assert [float(line.split(",")[2]) for line in lines] == pytest.approx(losses, rel=1e-9)


def test_a_member_without_any_figure_has_no_result(tmp_path: Path) -> None:
    with pytest.warns(UnstableTraining, match="its weights are not finite"):
        result = train(small(optimizer="sgd", learning_rate=1e38, epochs=1), tmp_path)
    assert result["stopped_epoch"] == [1, 1]
    assert all(math.isnan(value) for value in result["values"])
    assert read_json(tmp_path / "result.json")["values"] == [None, None]
    with pytest.raises(RunError, match="has no best epoch of seed 0"):
        load(tmp_path, seed=0)
    assert all(math.isnan(value) for value in evaluate(tmp_path).values)


def test_of_accuracies_the_highest_is_the_best(tmp_path: Path) -> None:
    """A classification from data to result: the epoch kept is that of the highest accuracy, the first of equals."""
    recipe = with_data(small(seeds=(0, 1), epochs=12), Sums(train=120, validation=40))
    result = train(recipe, tmp_path)
    with open(tmp_path / "metrics.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    test = recipe.data.load().test
    for index, seed in enumerate((0, 1)):
        accuracies = [float(line["accuracy"]) for line in lines if line["seed"] == str(seed)]
        assert min(accuracies) < max(accuracies)
        assert result["best_epoch"][index] == accuracies.index(max(accuracies)) + 1
        assert result["best_validation"][index] == max(accuracies)
        answers = load(tmp_path, seed=seed)(test.x).argmax(-1)
        assert result["values"][index] == pytest.approx((answers == test.target).double().mean().item())


def test_more_data_than_an_evaluation_takes_at_once(tmp_path: Path) -> None:
    """The metric is the mean over all, also where the last part is smaller."""
    recipe = replace(small(epochs=1), data=SyntheticData(train=30, validation=20, test=730))
    result = train(recipe, tmp_path)
    test = recipe.data.load().test
    with torch.no_grad():
        error = nn.functional.mse_loss(load(tmp_path, seed=1)(test.x), test.target).item()
    assert result["values"][1] == pytest.approx(error, rel=1e-5)


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_nothing_held_out(average: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last epoch counts, of the training that a run with validation data is."""
    monkeypatch.setitem(config.DATA, Sums.kind, Sums)
    recipe = with_data(small(epochs=4, learning_rate=0.05, average=average), Sums())
    result = train(recipe, tmp_path / "without")
    best, last = (read_values(tmp_path / "without" / f"{name}.safetensors") for name in ("best", "last"))
    assert all(torch.equal(best[name], last[name]) for name in last)
    assert result["best_epoch"] == [4, 4]
    assert result["values"] == result["final_values"]
    assert result["best_validation"] is None
    # The two draw their sequences in one, so those to train on are the same.
    train(replace(recipe, data=Sums(validation=30)), tmp_path / "with")
    theirs = read_values(tmp_path / "with" / "last.safetensors")
    assert all(torch.equal(last[name], theirs[name]) for name in theirs)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the seeds 3 and 5."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    train(small(seeds=(3, 5)), folder)
    return folder


def started(recipe: Recipe, init: Path) -> dict[str, torch.Tensor]:
    recipe = replace(recipe, init=str(init))
    task = make_task(recipe)
    start_from(task, recipe)
    for name, value in task.ensemble.values().items():
        assert torch.equal(value, task.best.values[name])
        assert torch.equal(value, task.last_values()[name])  # of the averages, where there are any
    return task.ensemble.values()


def test_each_seed_starts_from_its_own_or_from_the_best(trained: Path, tmp_path: Path) -> None:
    """One without a best epoch is passed over."""
    values, about = read_values(trained / "best.safetensors"), read_json(trained / "model.json")
    best = min((0, 1), key=lambda at: about["best_score"][at])
    for name, value in started(small(seeds=(3, 5, 7), average=0.9), trained).items():
        assert torch.equal(value, values[name][[0, 1, best]])
    run = shutil.copytree(trained, tmp_path / "run")
    write_json(run / "model.json", {**about, "best_score": [None, 1.0]})
    for name, value in started(small(seeds=(3,)), run).items():
        assert torch.equal(value[0], values[name][1])
    more = {**about, "seeds": [3, 5, 6], "best_score": [1.0, 1.0, 1.0]}
    wrong = {"no best epoch of any": {**about, "best_score": [None, None]}, "is damaged": {}, "does not fit": more}
    for said, content in wrong.items():
        write_json(run / "model.json", content)
        with pytest.raises(RunError, match=said):
            train(replace(small(seeds=(3,)), init=str(run)), tmp_path / "new")
        assert not (tmp_path / "new").exists()


def test_a_warm_start_is_ahead_and_resumes_with_the_same_bits(tmp_path: Path) -> None:
    first = train(small(seeds=(0,), epochs=20), tmp_path / "run")
    recipe = replace(small(seeds=(0,), learning_rate=1e-4), init=str(tmp_path / "run"))
    second = train(recipe, tmp_path / "straight")
    assert second["values"][0] < 1.05 * first["values"][0]
    assert second["values"][0] < 0.5 * train(replace(recipe, init=None), tmp_path / "cold")["values"][0]
    train_with_stops(recipe, tmp_path / "stopped", [StopAt(2, killed=True), StopAt(5, killed=False)], 0.0)
    same(tmp_path / "stopped", tmp_path / "straight")
    # Once it has been read, the other run is not needed any more.
    shutil.rmtree(tmp_path / "run")
    (tmp_path / "stopped" / "result.json").unlink()
    assert train(recipe, tmp_path / "stopped")["values"] == train(recipe, tmp_path / "straight")["values"]


def test_a_head_of_another_size_starts_afresh(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two outputs of a regression, then three classes; the recurrent layers are kept."""
    monkeypatch.setitem(config.DATA, Sums.kind, Sums)
    monkeypatch.setattr(Sums, "output_size", 3)
    values = read_values(trained / "best.safetensors")
    with pytest.warns(
        UserWarning, match="head.bias, head.weight do not fit those of .* and are initialised afresh"
    ):
        found = started(with_data(small(seeds=(3, 5)), Sums()), trained)
    assert found["head.weight"].shape == (2, 3, 5)
    assert all(torch.equal(found[name], values[name]) for name in found if name.startswith("body."))


def test_what_does_not_fit(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"recurrent layers of .* differ in kind, size or depth"):
        started(with_network(small(), hidden_size=6), trained)
    with pytest.raises(RunError, match="no trained model"):
        train(replace(small(), init=str(tmp_path / "none")), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_words_are_found_by_name(tmp_path: Path) -> None:
    """On a text in which they have other numbers, one is gone and one is new."""
    (tmp_path / "other").mkdir()
    data, other = written(tmp_path, train=500, test=100), written(tmp_path / "other", train=500, test=100)
    train(small_language_recipe(data, epochs=1), tmp_path / "run")
    text = (tmp_path / "train.txt").read_text().replace("w3 ", "new ").replace("w5 ", "w5 w5 w5 w5 w5 w5 ")
    (tmp_path / "other" / "train.txt").write_text(text)
    recipe = small_language_recipe(other)
    found, fresh = started(recipe, tmp_path / "run"), make_task(recipe).ensemble.values()
    values = read_values(tmp_path / "run" / "best.safetensors")
    theirs, ours = data.vocabulary(), other.vocabulary()
    assert theirs.tokens.index("w5") != ours.tokens.index("w5")
    for number, token in enumerate(ours.tokens):
        for name in ("embedding.weight", "bias"):
            wanted = values[name][0, theirs.tokens.index(token)] if token in theirs else fresh[name][0, number]
            torch.testing.assert_close(found[name][0, number], wanted, rtol=0, atol=0)
    assert "new" in ours
    assert all(torch.equal(found[name], values[name]) for name in found if name.startswith("body."))
    with pytest.raises(RunError, match=r"is a language model, and .* is not a language model"):
        started(small(), tmp_path / "run")
    with pytest.raises(RunError, match="is a model of words, and small-language of chars"):
        started(replace(recipe, data=replace(other, level="char")), tmp_path / "run")


def test_a_small_model_learns_a_text(language_run: Path) -> None:
    """Far more than how frequent words are, and not what cannot be known."""
    train_text, test_text = (
        (language_run.parent / f"{name}.txt").read_text().replace("\n", " <eos> ").split()
        for name in ("train", "test")
    )
    counts, result = Counter(train_text), read_json(language_run / "result.json")
    known = -sum(math.log(counts[token] / len(train_text)) for token in test_text) / len(test_text)  # nats a token
    reached = math.log(result["values"][0])
    assert reached < known - 1.5  # there are 2.4 to be known
    assert reached > 0.9 * RATE * 10 / 11  # ends of lines are certain where ten words are counted; words are not
    assert result["metric"] == "perplexity"


def test_in_memory_too() -> None:
    data = Tensors(DATA.load(), "regression", 2, last=False)
    with pytest.warns(UnstableTraining) as caught:
        train_in_memory(replace(exploding(seeds=(0,)), data=data))
    assert str(caught[-1].message).startswith("small-srehn, seed 0: training stopped after epoch 2")


def test_nothing_of_a_training_stays_in_memory(tmp_path: Path) -> None:
    """A signal's handler, which Python's collector does not see, would keep the trainer and its data."""
    trainers: list[weakref.ref[pl.Trainer]] = []

    class Look(pl.Callback):
        def on_train_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
            trainers.append(weakref.ref(trainer))

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    train(small(epochs=1), tmp_path, callbacks=[Look()])
    gc.collect()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert [each() for each in trainers] == [None]
