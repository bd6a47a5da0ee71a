"""What a training step and an evaluation do, whatever the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.padded import LENGTHS, padded, two_layers
from helpers.small import small

from eirehn.data.dataset import Split
from eirehn.models import LanguageModel, LanguageNetwork
from eirehn.training.config import LanguageOptimisation, Optimisation
from eirehn.training.ensemble import Ensemble
from eirehn.training.optimizers import early_stop
from eirehn.training.tasks import LanguageModelling, Regression
from eirehn.training.trainer import train


def test_a_task_does_not_count_what_is_not_there() -> None:
    """Loss with a depth penalty, metric and mean depth, from the sequences one by one."""
    member = two_layers("EIREHN")
    with torch.no_grad():
        member.body.cells[1].b_a.add_(1.0)  # so that some time steps take one inner step or none
    task = Regression([member], Optimisation(depth_penalty=0.5)).double()
    x, target = padded(), torch.randn(4, 3).double()
    loss = task.training_step((x[None], target[None], LENGTHS[None], 1.0), 0)
    (metric,), (depth,) = task.measure([Split(x, target, LENGTHS)], task.ensemble.values())
    alone = [member.run(x[row : row + 1, :end], with_cost=True) for row, end in enumerate(LENGTHS.tolist())]
    squares = torch.cat([(each.prediction[0] - target[row]).square() for row, each in enumerate(alone)])
    costs = torch.cat([each.cost.flatten() for each in alone if each.cost is not None])
    depths = torch.cat([each.depth.flatten() for each in alone]).double()
    beyond = (costs - 2).clamp_min(0).mean()
    assert 0 < (costs > 2).sum() < len(costs)
    assert loss.item() == pytest.approx((squares.mean() * (1 + 0.5 * beyond)).item(), rel=1e-12)
    assert metric == pytest.approx(squares.mean().item(), rel=1e-12)
    assert depth == pytest.approx(depths.mean().item(), rel=1e-12)


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
        task = LanguageModelling([model], LanguageOptimisation(early=0.5, depth_penalty=0.1))
        task.stop = stop
        loss = task.loss((tokens[..., :-1], tokens[..., 1:], 1.0))
        loss.backward()
        found.append([loss, *(value.grad for value in task.ensemble.stacked)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
