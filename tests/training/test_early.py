"""Trainings some of whose steps stop the network before its last inner step."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.small import small, with_network

import eirehn
from eirehn.models import LanguageModel, LanguageNetwork
from eirehn.training.config import LanguageOptimisation
from eirehn.training.ensemble import Ensemble
from eirehn.training.evaluate import evaluate
from eirehn.training.optimizers import early_stop
from eirehn.training.tasks import LanguageModelling
from eirehn.training.trainer import train


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


def test_training_stops_and_validation_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[bool, list[int | None]] = {True: [], False: []}
    run = Ensemble._run

    def watched(self: Ensemble, *given: Any, max_depth: int | None = None, **options: Any) -> Any:
        seen[self.training].append(max_depth)
        return run(self, *given, max_depth=max_depth, **options)

    monkeypatch.setattr(Ensemble, "_run", watched)
    plan = small(early=0.8)
    train(plan, tmp_path)
    assert seen[True] == [early_stop(plan.optimisation, step, 3) for step in range(12)]
    assert set(seen[True]) == {None, 1, 2}
    assert set(seen[False]) == {None}


@pytest.mark.parametrize("options", [{}, {"pointer": 2}], ids=str)
def test_a_stopped_step_is_that_of_a_shallower_network(options: dict[str, int]) -> None:
    """Loss and gradients; of what only later inner steps read there are none."""
    tokens = torch.randint(0, 9, (1, 3, 8), generator=torch.Generator().manual_seed(1))
    found = []
    for depth, stop in ((4, 2), (2, None)):
        torch.manual_seed(0)
        model = LanguageModel(LanguageNetwork("EIREHN", 6, max_depth=depth, **options), 9).double()
        task = LanguageModelling([model], LanguageOptimisation(early=0.5, price=0.1))
        task.stop = stop
        loss = task.loss((tokens[..., :-1], tokens[..., 1:], 1.0))
        loss.backward()
        found.append([loss, *(value.grad for value in task.ensemble.stacked)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)


def test_a_trained_network_is_of_use_whenever_it_is_stopped(tmp_path: Path) -> None:
    """Beside one that was never stopped, whose first inner step alone is worth little."""
    alone = {}
    for early in (0.0, 0.7):
        plan = with_network(
            small(early=early, epochs=40, seeds=(0,)), max_depth=4, start={"gate_bias": -2.0, "alpha": 0.05}
        )
        with eirehn.use_backend("auto"):
            train(plan, tmp_path / str(early))
            alone[early] = evaluate(tmp_path / str(early), max_depth=1).values[0]
    assert alone[0.7] < 0.8 * alone[0.0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"early": 1.0}, "early must be at least 0 and below 1"),
        ({"early": -0.1}, "early must be at least 0 and below 1"),
        ({"early": float("nan")}, "early must be finite"),
    ],
)
def test_shares_that_are_none(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LanguageOptimisation(**given)


def test_what_cannot_be_stopped() -> None:
    with pytest.raises(ValueError, match="networks of several inner steps"):
        small("LSTM", early=0.5)
    with pytest.raises(ValueError, match="networks of several inner steps"):
        with_network(small(early=0.5), max_depth=1)
