"""Weights beside the trained ones."""

from __future__ import annotations

import pytest
import torch
from helpers.small import small

from eirehn.training.averaging import Averages
from eirehn.training.trainer import make_task


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
