"""Members trained together end as if each had been trained alone, and keep averages and best values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.language import small_language_recipe, written
from helpers.padded import LENGTHS, padded, two_layers
from helpers.quick import quick
from helpers.small import DATA, small

from eirehn.models import LanguageModel, LanguageNetwork, SequenceModel, SequenceNetwork
from eirehn.models.io import read_values
from eirehn.training.config import Hardware
from eirehn.training.ensemble import Averages, Ensemble
from eirehn.training.trainer import make_task, train

KINDS = ("RNN", "GRU", "LSTM", "RHN", "SRHN", "SREHN", "EIREHN", "ACT")


@pytest.mark.parametrize("kind", quick("RHN", "language", of=[*KINDS, "language"]))
def test_members_together_are_members_alone(kind: str, tmp_path: Path) -> None:
    """After 100 steps in float64, to 1e-9; with clipping, each by its own gradient."""
    if kind == "language":  # all read the same text in the same order
        plain = small_language_recipe(written(tmp_path, train=500, test=100), epochs=1, clip=0.05)
        network = LanguageNetwork("EIREHN", 24, max_depth=2)
        recipe = replace(plain, network=network, seeds=(3, 4), hardware=Hardware("cpu", precision="64-true"))
    else:
        recipe = small(kind, seeds=(0, 1, 2), precision="64-true", epochs=25, clip=0.05)  # 4 steps an epoch
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


def test_a_member_that_diverges_leaves_the_others_alone() -> None:
    task = make_task(small(seeds=(0, 1)))
    with torch.no_grad():
        task.ensemble.stacked[0][0].fill_(torch.nan)
    outcome = task.ensemble(DATA.load().test.x.expand(2, -1, -1, -1))
    outcome.prediction.square().flatten(1).mean(1).sum().backward()
    for value in task.ensemble.stacked:
        assert value.grad is None or value.grad[1].isfinite().all()


@pytest.mark.parametrize("kind", ["LSTM", "EIREHN"])
def test_members_have_batches_of_their_own_lengths(kind: str) -> None:
    members = [two_layers(kind, bidirectional=True) for _ in range(2)]
    x = torch.stack([padded(), padded().flip(0)])
    lengths = torch.stack([LENGTHS, LENGTHS.flip(0)])
    together = Ensemble(members)(x, lengths=lengths, with_cost=True)
    for index, member in enumerate(members):
        alone = member.run(x[index], lengths=lengths[index], with_cost=True)
        torch.testing.assert_close(together.prediction[index], alone.prediction, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(together.cost[index], alone.cost, rtol=1e-12, atol=1e-12)


def test_members_draw_masks_of_their_own() -> None:
    model = LanguageModel(LanguageNetwork("EIREHN", 8, max_depth=2, hidden_dropout=0.25), 6)
    ensemble = Ensemble([model, model]).train()
    one, other = ensemble(torch.randint(0, 6, (2, 3, 5)).expand(2, 3, 5)).prediction
    assert not torch.equal(one, other)


def test_a_running_average_is_not_of_the_start_for_long() -> None:
    averages = Averages(0.999, [torch.zeros(1, 1)])
    for _ in range(50):
        averages.update([torch.full((1, 1), 4.0)])
    assert averages.values[0].item() == pytest.approx(4.0, rel=1e-5)  # else it would be 0.2
    # A state of version 0.1, which did not count its steps, resumes as it began.
    averages = Averages(0.9, [torch.zeros(1, 1)])
    old = {name: value for name, value in averages.state_dict().items() if name != "steps"}
    averages.load_state_dict(old)
    averages.update([torch.ones(1, 1)])
    assert averages.values[0].item() == pytest.approx(0.1)


@pytest.mark.parametrize(("if_better", "epoch", "score"), [(True, [1, 0], [0.5, 1.0]), (False, [2, 0], [0.7, 1.0])])
def test_the_best_epoch(if_better: bool, epoch: list[int], score: list[float]) -> None:
    """The lowest score, or without validation data the last; a member that diverges keeps what it had."""
    task = make_task(small())
    for number, scores in enumerate([[1.0, 1.0], [0.5, torch.nan], [0.7, torch.inf]]):
        task.ensemble.stacked[0].data.fill_(number)
        found = torch.tensor(scores, dtype=torch.float64)
        task.best.take(found, number, task.ensemble, if_better=if_better)
    assert task.best.epoch.tolist() == epoch
    assert task.best.score.tolist() == score
    kept = task.best.values[task.ensemble.names[0]]
    assert [value.unique().tolist() for value in kept] == [[float(each)] for each in epoch]
