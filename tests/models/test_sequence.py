"""Sequence models against the same sums written out; sequences of unequal lengths give what each gives alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.padded import LENGTHS, drawn, padded, two_layers

from eirehn.models import Scaling, SequenceNetwork
from eirehn.models.body import LAYERS


def test_the_last_states_of_both_directions():
    model, x = drawn(SequenceNetwork("EIREHN", 5, max_depth=3, bidirectional=True), last=True)
    h = model.body(x)[1]
    torch.testing.assert_close(model(x), model.head(torch.cat([h[0], h[1]], -1)), rtol=1e-12, atol=1e-12)
    reverse = drawn(SequenceNetwork("EIREHN", 5, max_depth=3, bidirectional=True, shortcut=True), last=True)[0]
    sides = reverse.body.first(x)[0] + reverse.body.linear(x)
    ends = torch.cat([sides[:, -1, :5], sides[:, 0, 5:]], -1)
    torch.testing.assert_close(reverse(x), reverse.head(ends), rtol=1e-12, atol=1e-12)


def test_a_class_from_the_mean_of_all_outputs():
    model, x = drawn(SequenceNetwork("EIREHN", 5, max_depth=3, bidirectional=True, pooling="mean"), last=True)
    torch.testing.assert_close(model(x), model.head(model.body(x)[0].mean(1)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("both", [False, True], ids=["one way", "both ways"])
@pytest.mark.parametrize("last", [False, True], ids=["each step", "last"])
@pytest.mark.parametrize("kind", [*LAYERS, "LSTM shortcut", "EIREHN shortcut", "RNN mean", "EIREHN mean"])
def test_together_is_alone(kind: str, last: bool, both: bool) -> None:
    kind, _, option = kind.partition(" ")
    options: dict[str, Any] = {"shortcut": {"shortcut": True}, "mean": {"pooling": "mean"}, "": {}}[option]
    one, x = two_layers(kind, last=last, bidirectional=both, **options), padded()
    outcome = one.run(x, lengths=LENGTHS, with_cost=True)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = one.run(x[row : row + 1, :length], with_cost=True)
        found = outcome.prediction[row] if last else outcome.prediction[row, :length]
        torch.testing.assert_close(found, alone.prediction[0], rtol=1e-12, atol=1e-12)
        for name in ("depth", "cost"):
            values, expected = getattr(outcome, name), getattr(alone, name)
            torch.testing.assert_close(values[:, row, :length], expected[:, 0], rtol=1e-12, atol=1e-12)
            assert not values[:, row, length:].any()


def test_a_model_in_its_users_units() -> None:
    """Also where single precision could not tell the steps of a signal apart."""
    scaling = Scaling((1e9, -2.0), (1e-3, 5.0), (10.0, 20.0, 30.0), (2.0, 3.0, 4.0))
    raw = two_layers("EIREHN", last=False, scaling=scaling).float()
    x = torch.randn(2, 5, 2).double()
    seen = raw(x * torch.tensor([1e-3, 5.0]) + torch.tensor([1e9, -2.0]).double())
    raw.scaling = None
    expected = raw(x.float()).double() * torch.tensor([2.0, 3.0, 4.0]) + torch.tensor([10.0, 20.0, 30.0])
    torch.testing.assert_close(seen, expected, rtol=1e-3, atol=1e-3)
