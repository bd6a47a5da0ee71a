"""Trainings that go back to their best epoch, against trainings put together by hand."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from helpers.resume import StopAt, same, train_with_stops
from helpers.small import Sums, small
from torch import Tensor

import eirehn.training.fit as fit
from eirehn import cli
from eirehn.loading import read_values
from eirehn.training import carry, packing
from eirehn.training.callbacks import Stopped
from eirehn.training.checkpoints import read_checkpoint, seeded
from eirehn.training.modules import Task
from eirehn.training.optimisation import Optimisation
from eirehn.training.recipe import Recipe
from eirehn.training.retreats import Retreats
from eirehn.training.tasks import Regression

SGD = {"optimizer": "sgd", "learning_rate": 0.5, "retreat": 1.1}
WILD = {**SGD, "learning_rate": 4.0, "retreat": 1.01, "epochs": 5}


class Watch(pl.Callback):
    """The values that every epoch starts from, and those at the end."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Tensor]] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        self.seen.append({name: value.clone() for name, value in task.ensemble.values().items()})

    on_train_end = on_train_epoch_start


def values_of_each_epoch(
    recipe: Recipe, start: dict[str, Tensor] | None = None
) -> tuple[list[dict[str, Tensor]], Task]:
    task, watch = fit.make_task(recipe), Watch()
    if start is not None:
        task.double().ensemble.load(start)
    with fit.quiet(), seeded(0):
        fit.make_trainer(recipe, None, [watch]).fit(task, datamodule=fit.Data(recipe, recipe.data.load()))
    return watch.seen, task


def scripted(monkeypatch: pytest.MonkeyPatch, scores: Sequence[Sequence[float]]) -> None:
    """Validation finds these, one for each member, epoch after epoch."""

    def totals(self: Regression, prediction: Tensor, target: Tensor) -> tuple[Tensor, int]:
        return torch.tensor(scores[self.current_epoch], dtype=torch.float64), 1

    monkeypatch.setattr(Regression, "totals", totals)


def whole(**options: Any) -> Recipe:
    """One batch an epoch, of all sequences, so that every epoch is the same but for the order of a sum."""
    return small(precision="64-true", **{**SGD, "batch_size": 60, **options})


def close(ours: dict[str, Tensor], theirs: dict[str, Tensor], member: int) -> None:
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name][member], value[member], rtol=1e-9, atol=1e-12)


def differ(ours: dict[str, Tensor], theirs: dict[str, Tensor], member: int) -> None:
    assert any(not torch.allclose(ours[name][member], theirs[name][member], rtol=1e-6) for name in ours)


@pytest.mark.parametrize("averaged", [{}, {"average": 0.5}, {"average_from": 0}], ids=str)
def test_back_and_on_at_half_the_rate(averaged: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Member 0 is lost in the third epoch and in the fifth, member 1 never."""
    scripted(monkeypatch, [(9.0, 9.0), (5.0, 5.0), (5.6, 5.4), (4.0, 4.0), (float("nan"), 4.0), (3.0, 3.0)])
    seen, task = values_of_each_epoch(whole(epochs=6, **averaged))
    monkeypatch.undo()
    # seen[k] is where epoch k, counted from 0, starts.
    if not averaged:  # else the best epoch's values are an average, which has a test of its own
        close(seen[3], seen[2], 0)
        differ(seen[3], seen[2], 1)
    halved, _ = values_of_each_epoch(whole(epochs=1, learning_rate=0.25, retreat=0.0), seen[3])
    close(seen[4], halved[1], 0)
    if not averaged:
        close(seen[5], seen[4], 0)  # NaN is lost, too; the fourth epoch, whose score was 4, was the best
    quarter, _ = values_of_each_epoch(whole(epochs=1, learning_rate=0.125, retreat=0.0), seen[5])
    close(seen[6], quarter[1], 0)
    straight, _ = values_of_each_epoch(whole(epochs=6, **{**averaged, "retreat": 0.0}))
    close(seen[6], straight[6], 1)
    assert task.retreats.share.tolist() == [0.25, 1.0]


def test_averages_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept as best is an average: what is trained and its average both go back to that."""
    scripted(monkeypatch, [(5.0, 5.0), (9.0, 4.0), (4.0, 3.0), (3.0, 2.0)])
    seen, task = values_of_each_epoch(whole(epochs=4, average_from=0))
    close(seen[2], seen[1], 0)  # after one step its average is the step itself
    since = {0: (3, 4), 1: (1, 2, 3, 4)}
    for member, steps in since.items():
        mean = {name: sum(seen[step][name] for step in steps) / len(steps) for name in seen[0]}
        close(task.last_values(), mean, member)


def test_which_are_lost() -> None:
    retreats = Retreats(Optimisation(optimizer="sgd", retreat=1.5), 6)
    inf, nan = float("inf"), float("nan")
    fault = torch.tensor([3.0, 3.1, nan, inf, nan, 1.0])
    best = torch.tensor([2.0, 2.0, 2.0, 2.0, inf, 2.0])
    assert retreats.lost(fault, best).tolist() == [False, True, True, True, False, False]
    assert not Retreats(Optimisation(), 3)


def test_lost_by_training_loss() -> None:
    retreats = Retreats(Optimisation(optimizer="sgd", retreat=1.5), 3)
    best = score = torch.ones(3)
    assert retreats.lost(score, best, torch.tensor([2.0, 2.0, 2.0])).tolist() == [False] * 3  # the first there is
    lost = retreats.lost(score, best, torch.tensor([2.9, 3.1, float("nan")]))
    assert lost.tolist() == [False, True, True]
    retreats.slow(lost)
    # Anew for those that went back, whose best epoch may have had a larger loss; the others' least is still 2.
    assert retreats.lost(score, best, torch.tensor([3.1, 3.1, 9.0])).tolist() == [True, False, False]


def test_lost_by_what_is_made_of_the_training_loss() -> None:
    """A tenth more perplexity is far less than a tenth more loss."""
    retreats = Retreats(Optimisation(optimizer="sgd", retreat=1.1), 2)
    best = score = torch.ones(2)
    assert retreats.lost(score, best, torch.tensor([4.8, 4.8]), torch.exp).tolist() == [False] * 2
    assert retreats.lost(score, best, 4.8 + torch.tensor([1.09, 1.11]).log(), torch.exp).tolist() == [False, True]


@pytest.mark.parametrize("average", [0.0, 0.9999])
def test_an_average_hides_nothing(average: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are lost are told by their loss in training, however good the average is still."""
    scripted(monkeypatch, [(5.0, 5.0), (4.0, 4.0), (4.0, 4.0), (4.0, 4.0)])
    losses = iter([(3.0, 3.0), (2.0, 2.0), (2.1, 2.3), (2.3, 1.9)])
    monkeypatch.setattr(Task, "_train_loss", lambda self: torch.tensor(next(losses)).double())
    _, task = values_of_each_epoch(whole(epochs=4, average=average))
    assert task.retreats.share.tolist() == ([0.5, 0.5] if average else [1.0, 1.0])


@pytest.mark.parametrize("retreat", [0.0, 1.1])
def test_a_lost_epoch_does_not_begin_an_average(retreat: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that the training got lost, not that it no longer gets better; that the last epoch says."""
    scripted(monkeypatch, [(5.0,), (4.0,), (9.0,), (4.1,)])
    begun = []
    recipe = replace(whole(epochs=4, average_after=0, retreat=retreat), seeds=(0,))

    class Look(pl.Callback):
        def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
            assert isinstance(task, Task)
            begun.append(task.averages.begun.item())

    with fit.quiet(), seeded(0):
        trainer = fit.make_trainer(recipe, None, [Look()])
        trainer.fit(fit.make_task(recipe), datamodule=fit.Data(recipe, recipe.data.load()))
    assert begun == [False, False, not retreat, True]


def shares(folder: Path) -> list[float]:
    with open(folder / "metrics.csv", newline="") as file:
        return [float(row["share_of_rate"]) for row in csv.DictReader(file)]


def test_a_rate_too_high_is_survived(tmp_path: Path) -> None:
    """The same training with and without: one is lost, the other is told to have gone back and learns."""
    lost = fit.train(small(**{**WILD, "retreat": 0.0, "epochs": 12}), tmp_path / "lost")
    kept = fit.train(small(**{**WILD, "retreat": 1.1, "epochs": 12}), tmp_path / "kept")
    assert min(shares(tmp_path / "kept")) < 1
    assert all(ours < theirs for ours, theirs in zip(kept["final_values"], lost["final_values"], strict=True))
    with open(tmp_path / "lost" / "metrics.csv", newline="") as file:
        assert "share_of_rate" not in next(csv.DictReader(file))


@pytest.mark.parametrize("every", [0.0, 1e9], ids=["saved every step", "saved on request"])
def test_a_training_that_was_stopped_has_the_same_bits(
    every: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(**WILD)
    fit.train(recipe, tmp_path / "straight")  # 4 batches an epoch
    assert min(shares(tmp_path / "straight")) < 1
    stops = [StopAt(4, killed=False), StopAt(9, killed=True), StopAt(15, killed=False)]
    train_with_stops(recipe, tmp_path / "stopped", stops, every)
    same(tmp_path / "stopped", tmp_path / "straight")


def test_a_member_that_is_never_lost_has_the_bits_of_one_that_cannot_be(tmp_path: Path) -> None:
    for name, retreat in (("with", 1e6), ("without", 0.0)):
        fit.train(small(**{**SGD, "retreat": retreat, "clip": 0.1}), tmp_path / name)
    ours, theirs = (read_values(tmp_path / name / "last.safetensors") for name in ("with", "without"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retreat": 1.1}, "sgd, got adam"),
        ({"optimizer": "sgd", "retreat": 1.1, "weight_decay": 0.1}, "weight_decay of 0.*got 0.1"),
        ({"optimizer": "sgd", "retreat": 1.0}, "above 1, got 1.0"),
        ({"optimizer": "sgd", "retreat": float("nan")}, "retreat"),
        ({"optimizer": "sgd", "retreat": -1.0}, "retreat"),
    ],
    ids=str,
)
def test_what_it_does_not_go_with(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Optimisation(**options)


def test_what_is_no_number() -> None:
    for value in (None, False, "1.1"):
        with pytest.raises(TypeError, match="retreat"):
            Optimisation(optimizer="sgd", retreat=value)  # type: ignore[arg-type]


class Unvalidated(Sums):
    task = "regression"


def test_nothing_to_go_by(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="not for classification"):
        replace(small(**SGD), data=Sums(validation=20))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="held out"):
        fit.train(replace(small(**SGD), data=Unvalidated()), tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
    assert cli.main(["train", "--recipe", "synthetic-rnn-20", "--optimisation.retreat", "2"]) == 2
    assert "retreat is for the optimizer sgd, got adam" in capsys.readouterr().err


@pytest.mark.parametrize("averaged", [{}, {"average": 0.5}, {"average_from": 0}], ids=str)
@pytest.mark.parametrize("spoiled", [pytest.param(float("nan"), marks=pytest.mark.slow), 1e6])
def test_a_lost_training_that_is_carried_goes_back(
    spoiled: float, averaged: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Since its best epoch's values stay behind, at once, before they do."""
    monkeypatch.setattr(packing, "SHORT", 1 << 30)  # all values as they are
    recipe = small(optimizer="sgd", learning_rate=0.05, retreat=1.1, epochs=5, **averaged)  # 4 batches an epoch
    made = fit.make_trainer

    class Spoil(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, task: pl.LightningModule, *_: Any) -> None:
            assert isinstance(task, Task)
            if trainer.global_step == 9:
                task.ensemble.stacked[0].data[0] += spoiled
                for value in task.averages.values[:1]:
                    value[0] += spoiled

    stops = [Spoil(), StopAt(10, killed=False)]
    monkeypatch.setattr(fit, "make_trainer", lambda recipe, path, calls: made(recipe, path, [*stops, *calls]))
    with pytest.raises(Stopped):
        fit.train(recipe, tmp_path / "here")
    monkeypatch.setattr(fit, "make_trainer", made)
    carried = carry.pack(tmp_path / "here", tmp_path / "carried")
    assert carried.back == (0,)
    assert carried.before[0] == pytest.approx(carried.best[0], rel=1e-6)
    carry.unpack(tmp_path / "carried", tmp_path / "there", measure=False)
    state = read_checkpoint(tmp_path / "there" / "last.ckpt")
    assert state["task"]["retreats"]["share"].tolist() == [0.5, 1.0]
    best = read_values(tmp_path / "here" / "best.safetensors")
    for index, name in enumerate(best):
        assert torch.equal(state["state_dict"][f"ensemble.stacked.{_place(recipe, name)}"][0], best[name][0]), index
    result = fit.train(recipe, tmp_path / "there")
    assert result["final_values"][0] < 0.1
    assert result["best_validation"][0] <= carried.best[0]


def _place(recipe: Recipe, name: str) -> int:
    return fit.make_task(recipe).ensemble.names.index(name)


def test_what_had_diverged_can_get_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a retreat, too: carried as NaN, any epoch after is a better one."""
    recipe = small(optimizer="sgd", learning_rate=0.05, epochs=3)
    made, stop = fit.make_trainer, StopAt(6, killed=False)
    monkeypatch.setattr(fit, "make_trainer", lambda recipe, path, calls: made(recipe, path, [stop, *calls]))
    with pytest.raises(Stopped):
        fit.train(recipe, tmp_path / "here")
    monkeypatch.setattr(fit, "make_trainer", made)
    monkeypatch.setattr(carry, "validation", lambda *_: [float("nan"), 1.0])
    carry.pack(tmp_path / "here", tmp_path / "carried")
    monkeypatch.undo()
    told = carry.unpack(tmp_path / "carried", tmp_path / "there", measure=False)
    assert math.isnan(told.after[0])
    result = fit.train(recipe, tmp_path / "there")
    assert result["best_epoch"][0] > 1
    assert math.isfinite(result["values"][0])
