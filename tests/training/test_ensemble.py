"""Members trained together end as if each had been trained alone."""

from __future__ import annotations

import copy
import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.quick import quick
from helpers.small import DATA, Sums, small, with_data
from torch import nn

from eirehn._internal.checks import UnstableTraining
from eirehn._internal.files import RunError, read_json
from eirehn.data.synthetic import SyntheticData
from eirehn.models import SequenceModel, SequenceNetwork
from eirehn.models.io import load, read_values
from eirehn.training.ensemble import Ensemble
from eirehn.training.evaluate import evaluate
from eirehn.training.loaders import Batches
from eirehn.training.trainer import make_task, train

KINDS = ("RNN", "GRU", "LSTM", "RHN", "SRHN", "SREHN", "EIREHN", "ACT")


@pytest.mark.parametrize("kind", quick("RHN", of=KINDS))
def test_members_together_are_members_alone(kind: str, tmp_path: Path) -> None:
    """After 200 steps in float64, to 1e-9; with clipping, each by its own gradient."""
    recipe = small(kind, seeds=(0, 1, 2), precision="64-true", epochs=50, clip=0.05)  # 4 steps an epoch
    together = train(recipe, tmp_path / "together")
    for index, seed in enumerate(recipe.seeds):
        alone = train(replace(recipe, seeds=(seed,)), tmp_path / f"alone-{seed}")
        assert together["values"][index] == pytest.approx(alone["values"][0], rel=1e-9)
        assert together["best_epoch"][index] == alone["best_epoch"][0]
        for name in ("best", "last"):
            stacked = read_values(tmp_path / "together" / f"{name}.safetensors")
            for key, value in read_values(tmp_path / f"alone-{seed}" / f"{name}.safetensors").items():
                torch.testing.assert_close(stacked[key][index], value[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("norm", [0.5, 1e3], ids=["longer", "shorter"])
@pytest.mark.parametrize("members", [1, 2])
def test_gradients_are_clipped_as_torch_clips_them(members: int, norm: float) -> None:
    models = [SequenceModel(SequenceNetwork("LSTM", 4), 2, 3).double() for _ in range(members)]
    ensemble = Ensemble(models)
    for index, value in enumerate(ensemble.stacked):
        value.grad = torch.randn_like(value) if index else None  # one that is not trained
    for own, model in enumerate(models):
        for value, parameter in zip(ensemble.stacked, model.parameters(), strict=True):
            parameter.grad = None if value.grad is None else value.grad[own].clone()
        length = torch.nn.utils.clip_grad_norm_(model.parameters(), norm)
        assert (length > norm) == (norm < 1)
    ensemble.clip_gradients(norm)
    for own, model in enumerate(models):
        for value, parameter in zip(ensemble.stacked, model.parameters(), strict=True):
            if value.grad is None:
                assert parameter.grad is None
            else:
                torch.testing.assert_close(value.grad[own], parameter.grad, rtol=1e-12, atol=0)


@pytest.mark.parametrize("wrong", [torch.inf, torch.nan, 1e30], ids=["infinite", "no number", "too long to square"])
@pytest.mark.parametrize("members", [1, 2])
def test_a_gradient_that_overflows_moves_nothing(members: int, wrong: float) -> None:
    ensemble = Ensemble([SequenceModel(SequenceNetwork("LSTM", 4), 2, 3) for _ in range(members)])
    for value in ensemble.stacked:
        value.grad = torch.ones_like(value)
    ensemble.stacked[1].grad[0, 0, 0] = wrong
    assert ensemble.clip_gradients(0.5).tolist() == [True, False][:members]
    for value in ensemble.stacked:
        assert (value.grad[0] == 0).all()
        assert (value.grad[1:] > 0).all()
    others = [value.grad[1:].square().sum() for value in ensemble.stacked]
    assert sum(others) == pytest.approx(0.25 * (members - 1))


def test_skipped_steps_are_in_the_history_where_gradients_are_clipped(tmp_path: Path) -> None:
    train(small(seeds=(0, 1), epochs=1, clip=1.0), tmp_path / "clipped")
    assert "skipped_steps" in (tmp_path / "clipped" / "metrics.csv").read_text()
    train(small(seeds=(0, 1), epochs=1), tmp_path / "free")
    assert "skipped_steps" not in (tmp_path / "free" / "metrics.csv").read_text()


ALL_OPTIONS = {
    "optimizer": "adamw",
    "beta1": 0.6,
    "beta2": 0.97,
    "weight_decay": 0.1,
    "schedule": "cosine",
    "warmup": 0.25,
    "average": 0.8,
    "clip": 0.05,
    "price": 1e-3,
}


@pytest.mark.parametrize("options", [{}, ALL_OPTIONS], ids=["plain", "all options"])
def test_against_a_loop_of_plain_torch(options: dict[str, Any], tmp_path: Path) -> None:
    """The same training written out: the same order of the same data, the best epoch on validation data."""
    epochs, batches = 5, 4
    recipe = small(seeds=(3,), precision="64-true", epochs=epochs, **options)
    turning = bool(options)
    recipe = replace(recipe, data=replace(recipe.data, turn=turning))
    result = train(recipe, tmp_path)
    splits = DATA.load()
    x, target = (part.double() for part in splits.train[:2])
    torch.manual_seed(3)
    model = SequenceModel(recipe.network, 2, 2).double()
    average = [parameter.detach().clone() for parameter in model.parameters()]
    if options:
        optimizer = torch.optim.AdamW(model.parameters(), 0.01, (0.6, 0.97), weight_decay=0.1)
    else:
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
    best = (float("inf"), 0.0, 0)
    step, losses = 0, []
    for epoch in range(epochs):
        order = np.random.default_rng([3, epoch]).permutation(60)
        seen = []
        for number in range(batches):
            rows = order[16 * number : 16 * number + 16]
            xs, ts = x[rows], target[rows]
            if turning:
                quarters = np.random.default_rng([3, epoch, number]).integers(4, size=len(rows))
                turns = [np.linalg.matrix_power(np.array([[0.0, 1.0], [-1.0, 0.0]]), k) for k in quarters]
                xs, ts = (
                    torch.stack([s @ torch.from_numpy(turn) for s, turn in zip(part, turns, strict=True)])
                    for part in (xs, ts)
                )
            optimizer.zero_grad()
            outcome = model.run(xs, with_cost=True)
            loss = nn.functional.mse_loss(outcome.prediction, ts)
            seen += [loss.item()] * len(rows)
            (loss + options.get("price", 0.0) * outcome.cost.mean()).backward()
            if options:
                nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                progress = (step - 5) / 15  # 20 steps, the first quarter of them to warm up
                factor = (step + 1) / 6 if step < 5 else 0.5 * (1 + math.cos(math.pi * progress))
                optimizer.param_groups[0]["lr"] = 0.01 * factor
            optimizer.step()
            step += 1
            for mean, parameter in zip(average, model.parameters(), strict=True):
                decay = min(0.8, step / (step + 9))
                mean.mul_(decay).add_(parameter.detach(), alpha=1 - decay)
        losses.append(np.mean(seen))
        judged = copy.deepcopy(model)
        if options:
            for parameter, mean in zip(judged.parameters(), average, strict=True):
                parameter.data = mean.clone()
        with torch.no_grad():
            validation, test = (
                nn.functional.mse_loss(judged(split.x.double()), split.target.double()).item()
                for split in (splits.validation, splits.test)
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


def test_each_member_sees_all_data_in_an_order_of_its_own() -> None:
    x = torch.arange(10.0)[:, None]
    batches = Batches([x, x], 4, [5, 6])
    orders = []
    for epoch in range(2):
        batches.set_epoch(epoch)
        orders.append(torch.cat([batch[0] for batch in batches], 1).squeeze(-1))  # (M, N)
    for order in (*orders[0], *orders[1]):
        assert sorted(order.tolist()) == list(range(10))
    flat = [tuple(order.tolist()) for order in (*orders[0], *orders[1])]
    assert len(set(flat)) == 4
    alone = Batches([x, x], 4, [6])
    assert torch.equal(torch.cat([batch[0] for batch in alone], 1).squeeze(-1)[0], orders[0][1])


def test_processes_share_every_batch() -> None:
    x = torch.arange(11.0)[:, None]
    whole = list(Batches([x, x], 4, [0]))
    parts = [list(Batches([x, x], 4, [0], rank=rank, world=2)) for rank in range(2)]
    for number, (rows, _, share) in enumerate(whole):
        assert share == 1.0
        mine, others = parts[0][number], parts[1][number]
        assert sorted([*mine[0].flatten().tolist(), *others[0].flatten().tolist()]) == sorted(
            rows.flatten().tolist()
        )
        # The mean over processes of share times local mean is the batch's mean.
        mean = (mine[0].mean() * mine[2] + others[0].mean() * others[2]) / 2
        assert mean == pytest.approx(rows.mean().item())


def test_a_process_without_sequences_takes_part_but_does_not_count() -> None:
    x = torch.arange(5.0)[:, None]
    last = [list(Batches([x, x], 4, [0], rank=rank, world=3))[-1] for rank in range(3)]
    assert [each[2] for each in last] == [3.0, 0.0, 0.0]
    assert all(each[0].size(1) == 1 for each in last)


def test_a_member_that_diverges_leaves_the_others_alone(tmp_path: Path) -> None:
    recipe = small(seeds=(0, 1), epochs=3)
    task = make_task(recipe)
    with torch.no_grad():
        task.ensemble.stacked[0][0].fill_(torch.nan)
    outcome = task.ensemble(DATA.load().test.x.expand(2, -1, -1, -1))
    outcome.prediction.square().flatten(1).mean(1).sum().backward()
    for value in task.ensemble.stacked:
        assert value.grad is None or value.grad[1].isfinite().all()
    task.best.consider(torch.tensor([torch.nan, 1.0]).double(), 0, task.ensemble)
    assert task.best.epoch.tolist() == [-1, 0]


def test_a_member_by_itself() -> None:
    members = [SequenceModel(SequenceNetwork("EIREHN", 5, max_depth=3), 2, 2) for _ in range(3)]
    ensemble = Ensemble(members)
    x = torch.randn(3, 4, 7, 2)
    together = ensemble(x).prediction
    for index, member in enumerate(members):
        torch.testing.assert_close(ensemble.member(index)(x[index]), member(x[index]), rtol=0, atol=0)
        torch.testing.assert_close(together[index], member(x[index]), rtol=1e-5, atol=1e-6)


def test_load_gives_the_model_back(tmp_path: Path) -> None:
    result = train(small(epochs=2), tmp_path)
    test = DATA.load().test
    for index, seed in enumerate((0, 1)):
        for which, name in (("best", "values"), ("last", "final_values")):
            model = load(tmp_path, seed=seed, which=which)
            assert not model.training
            with torch.no_grad():
                error = nn.functional.mse_loss(model(test.x), test.target).item()
            assert error == pytest.approx(result[name][index], rel=1e-5)
    chosen = min(range(2), key=lambda index: result["best_validation"][index])
    torch.testing.assert_close(load(tmp_path)(test.x), load(tmp_path, seed=(0, 1)[chosen])(test.x), rtol=0, atol=0)
    assert read_json(tmp_path / "model.json")["network"]["kind"] == "EIREHN"


def test_more_data_than_an_evaluation_takes_at_once(tmp_path: Path) -> None:
    """The metric is the mean over all, also where the last part is smaller."""
    recipe = replace(small(epochs=1), data=SyntheticData(train=30, validation=20, test=730))
    result = train(recipe, tmp_path)
    test = recipe.data.load().test
    with torch.no_grad():
        error = nn.functional.mse_loss(load(tmp_path, seed=1)(test.x), test.target).item()
    assert result["values"][1] == pytest.approx(error, rel=1e-5)
