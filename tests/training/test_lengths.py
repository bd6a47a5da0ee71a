"""Sequences of unequal lengths in one batch: each gives what it gives alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from eirehn.data.dataset import Split
from eirehn.models import Scaling, SequenceModel, SequenceNetwork
from eirehn.models.body import LAYERS
from eirehn.training.config import ClassifierOptimisation, Optimisation
from eirehn.training.ensemble import Ensemble
from eirehn.training.loaders import Batches, Parts
from eirehn.training.tasks import Classification, Regression

LENGTHS = torch.tensor([3, 7, 1, 5])


def padded(channels: int = 2) -> Tensor:
    """What must not be read is not a number."""
    x = torch.randn(4, 9, channels).double()  # longer than the longest, as a batch of a larger split is
    for row, length in enumerate(LENGTHS.tolist()):
        x[row, length:] = torch.nan
    return x


def model(kind: str, *, last: bool, both: bool, scaling: Scaling | None = None) -> SequenceModel:
    kind, _, option = kind.partition(" ")
    options: dict[str, Any] = {"shortcut": {"shortcut": True}, "mean": {"pooling": "mean"}, "": {}}[option]
    network = SequenceNetwork(kind, 4, num_layers=2, max_depth=3, bidirectional=both, **options)
    return SequenceModel(network, 2, 3, last=last, scaling=scaling).double()


@pytest.mark.parametrize("both", [False, True], ids=["one way", "both ways"])
@pytest.mark.parametrize("last", [False, True], ids=["each step", "last"])
@pytest.mark.parametrize("kind", [*LAYERS, "LSTM shortcut", "EIREHN shortcut", "RNN mean", "EIREHN mean"])
def test_together_is_alone(kind: str, last: bool, both: bool) -> None:
    one, x = model(kind, last=last, both=both), padded()
    outcome = one.run(x, lengths=LENGTHS, with_cost=True)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = one.run(x[row : row + 1, :length], with_cost=True)
        found = outcome.prediction[row] if last else outcome.prediction[row, :length]
        torch.testing.assert_close(found, alone.prediction[0], rtol=1e-12, atol=1e-12)
        for name in ("depth", "cost"):
            values, expected = getattr(outcome, name), getattr(alone, name)
            torch.testing.assert_close(values[:, row, :length], expected[:, 0], rtol=1e-12, atol=1e-12)
            assert not values[:, row, length:].any()


@pytest.mark.parametrize("kind", ["LSTM", "EIREHN"])
def test_members_have_batches_of_their_own_lengths(kind: str) -> None:
    members = [model(kind, last=True, both=True) for _ in range(2)]
    x = torch.stack([padded(), padded().flip(0)])
    lengths = torch.stack([LENGTHS, LENGTHS.flip(0)])
    together = Ensemble(members)(x, lengths=lengths, with_cost=True)
    for index, member in enumerate(members):
        alone = member.run(x[index], lengths=lengths[index], with_cost=True)
        torch.testing.assert_close(together.prediction[index], alone.prediction, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(together.cost[index], alone.cost, rtol=1e-12, atol=1e-12)


def test_a_task_does_not_count_what_is_not_there() -> None:
    """Loss with a price on depth, metric and mean depth, from the sequences one by one."""
    member = model("EIREHN", last=True, both=False)
    task = Regression([member], Optimisation(price=0.5)).double()
    x, target = padded(), torch.randn(4, 3).double()
    loss = task.training_step((x[None], target[None], LENGTHS[None], 1.0), 0)
    (metric,), (depth,) = task.measure([Split(x, target, LENGTHS)], task.ensemble.values())
    alone = [member.run(x[row : row + 1, :end], with_cost=True) for row, end in enumerate(LENGTHS.tolist())]
    squares = torch.cat([(each.prediction[0] - target[row]).square() for row, each in enumerate(alone)])
    costs = torch.cat([each.cost.flatten() for each in alone if each.cost is not None])
    depths = torch.cat([each.depth.flatten() for each in alone]).double()
    assert loss.item() == pytest.approx((squares.mean() + 0.5 * costs.mean()).item(), rel=1e-12)
    assert metric == pytest.approx(squares.mean().item(), rel=1e-12)
    assert depth == pytest.approx(depths.mean().item(), rel=1e-12)


def test_changes_are_drawn_anew_for_each_member_epoch_and_batch() -> None:
    drawn: dict[tuple[int, int, int], float] = {}

    def augment(batch: Sequence[Tensor], random: Sequence[np.random.Generator]) -> tuple[Tensor, ...]:
        for seed, each in zip((5, 6), random, strict=True):
            drawn[seed, batches.epoch, sum(key[:2] == (seed, batches.epoch) for key in drawn)] = each.random()
        return batch[0] + 100, *batch[1:]

    batches = Batches([torch.zeros(10, 3, 1), torch.arange(10)], 4, [5, 6], augment=augment)
    for epoch in range(2):
        batches.set_epoch(epoch)
        assert all((x == 100).all() for x, *_ in batches)
    assert len(drawn) == len(set(drawn.values())) == 12
    assert drawn == {key: np.random.default_rng(key).random() for key in drawn}


def test_lengths_go_with_their_sequences() -> None:
    x = torch.arange(10.0)[:, None, None].expand(-1, 3, 1)
    split = Split(x, torch.arange(10), torch.arange(10) + 1)
    for rows, target, lengths, share in Batches([each for each in split if each is not None], 4, [5, 6]):
        assert share == 1.0
        assert torch.equal(rows[..., 0, 0].long(), target)
        assert torch.equal(lengths, target + 1)
    parts = Parts(split)
    parts.size = 4
    assert len(parts) == 3
    assert torch.equal(torch.cat([each.lengths for each in parts if each.lengths is not None]), split.lengths)


def test_weights_of_classes() -> None:
    """The mean of weight times cross-entropy."""
    weights = [0.5, 2.0, 1.0]
    task = Classification([model("EIREHN", last=True, both=False)], ClassifierOptimisation(), class_weights=weights)
    prediction, target = torch.randn(1, 6, 3).double(), torch.tensor([[0, 1, 2, 1, 0, 0]])
    chances = prediction.softmax(-1)[0]
    terms = [-weights[c] * chances[row, c].log() for row, c in enumerate(target[0].tolist())]
    assert task.errors(prediction, target)[0].item() == pytest.approx((sum(terms) / 6).item(), rel=1e-12)


def test_a_model_in_its_users_units() -> None:
    """Also where single precision could not tell the steps of a signal apart."""
    scaling = Scaling((1e9, -2.0), (1e-3, 5.0), (10.0, 20.0, 30.0), (2.0, 3.0, 4.0))
    raw = model("EIREHN", last=False, both=False, scaling=scaling).float()
    x = torch.randn(2, 5, 2).double()
    seen = raw(x * torch.tensor([1e-3, 5.0]) + torch.tensor([1e9, -2.0]).double())
    raw.scaling = None
    expected = raw(x.float()).double() * torch.tensor([2.0, 3.0, 4.0]) + torch.tensor([10.0, 20.0, 30.0])
    torch.testing.assert_close(seen, expected, rtol=1e-3, atol=1e-3)
