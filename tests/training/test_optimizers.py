"""Learning rates and optimisers, step by step."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from eirehn.models import LanguageModel, LanguageNetwork
from eirehn.training.config import LanguageOptimisation, Optimisation
from eirehn.training.optimizers import early_stop, make_optimizer, schedule
from eirehn.training.tasks import LanguageModelling


@pytest.mark.parametrize(("name", "later"), [("constant", (1.0, 1.0)), ("cosine", (0.5, 0.0))])
def test_schedules(name: str, later: tuple[float, float]) -> None:
    rate = schedule(Optimisation(schedule=name, warmup=0.1), 100)
    found = [rate(step) for step in (0, 10, 55, 100)]
    assert found == pytest.approx([1 / 11, 1.0, *later])


def test_the_learning_rate_of_every_epoch() -> None:
    """As the RHN authors have it, epochs counted from 0: 0.2 / 1.02^max(i − 20 + 1, 0)."""

    an_epoch = 1327
    rate = schedule(LanguageOptimisation(epochs=500, schedule="decay"), 500 * an_epoch)
    for epoch in (0, 1, 18, 19, 20, 21, 100, 499):
        expected = 1.02 ** -max(epoch - 20 + 1, 0)
        assert rate(epoch * an_epoch) == pytest.approx(expected, rel=1e-12)
        assert rate((epoch + 1) * an_epoch - 1) == pytest.approx(expected, rel=1e-12)
    assert rate(20 * an_epoch) == pytest.approx(1 / 1.02)
    assert rate(20 * an_epoch - 1) == 1.0


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_recurrent_layers_have_a_rate_of_their_own(optimizer: str) -> None:
    """Of one step all of them move by that much less, and nothing else does; the schedule falls for both."""
    moved = {}
    for factor in (1.0, 0.25):
        torch.manual_seed(0)
        optimisation = LanguageOptimisation(optimizer=optimizer, learning_rate=0.1, recurrent_rate=factor)
        network = LanguageNetwork("EIREHN", 6, max_depth=2)
        task = LanguageModelling([LanguageModel(network, 9).double()], optimisation)
        made = make_optimizer(optimisation, task.parameters(), task.ensemble.recurrent())
        torch.optim.lr_scheduler.LambdaLR(made, lambda step: 0.5)
        before = {name: value.clone() for name, value in task.ensemble.values().items()}
        tokens = torch.randint(0, 9, (1, 3, 8), generator=torch.Generator().manual_seed(1))
        task.training_step((tokens[..., :-1], tokens[..., 1:], 1.0), 0).backward()
        made.step()
        moved[factor] = {name: value - before[name] for name, value in task.ensemble.values().items()}
        assert [group["lr"] for group in made.param_groups] == ([0.05] if factor == 1 else [0.05, 0.0125])
    for name, whole in moved[1.0].items():
        share = 0.25 if name.startswith("body.") else 1.0
        torch.testing.assert_close(moved[0.25][name], share * whole, rtol=1e-6, atol=1e-12)
        assert whole.abs().max() > 0
    assert any(name.startswith("body.") for name in moved[1.0])


@pytest.mark.parametrize(("early", "max_depth"), [(0.6, 4), (0.2, 2), (0.9, 6)])
def test_how_often_and_where(early: float, max_depth: int) -> None:
    """Binomial counts, none further than five deviations from what is asked for."""
    steps, own = 5000, LanguageOptimisation(early=early)
    found = Counter(early_stop(own, step, max_depth) for step in range(steps))
    fewer = range(1, max_depth)
    wanted = {None: 1 - early, **{stop: early * stop / sum(fewer) for stop in fewer}}
    assert set(found) == set(wanted)
    for stop, share in wanted.items():
        assert abs(found[stop] - steps * share) < 5 * (steps * share * (1 - share)) ** 0.5, stop
    assert [early_stop(own, step, max_depth) for step in range(50)] == [
        early_stop(own, step, max_depth) for step in range(50)
    ]
    assert {early_stop(LanguageOptimisation(), step, max_depth) for step in range(200)} == {None}
