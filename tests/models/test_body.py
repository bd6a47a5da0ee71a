"""Recurrent layers of models: the shortcut, and what goes to all layers."""

from __future__ import annotations

import pytest
import torch
from helpers.padded import drawn

from eirehn.models import SequenceNetwork


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "RHN", "EIREHN", "ACT"])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_shortcut_adds_a_map_of_the_input_to_the_first_layer(kind, layers):
    model, x = drawn(SequenceNetwork(kind, 5, layers, max_depth=3, shortcut=True), last=False)
    out = model.body.first(x)[0] + x @ model.body.linear.weight.T + model.body.linear.bias
    if layers == 2:
        out = model.body.rest(out)[0]
    torch.testing.assert_close(model(x), model.head(out), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "EIREHN"])
def test_a_shortcut_reads_on_from_a_state(kind):
    model, x = drawn(SequenceNetwork(kind, 5, 3, max_depth=3, shortcut=True), last=False)
    begun = model.run(x[:, :4])
    went_on = model.run(x[:, 4:], begun.state)
    whole = model.run(x)
    torch.testing.assert_close(went_on.prediction, whole.prediction[:, 4:], rtol=1e-12, atol=1e-12)
    assert torch.equal(torch.cat([begun.depth, went_on.depth], 2), whole.depth)
    assert whole.depth.shape == (3, 4, 7)


def test_cost_and_cap_go_to_all_layers():
    model, x = drawn(SequenceNetwork("EIREHN", 5, 2, max_depth=4, shortcut=True), last=True)
    outcome = model.run(x, max_depth=1, with_cost=True)
    assert outcome.depth.max() == 1
    assert outcome.cost is not None
    assert outcome.cost.shape == outcome.depth.shape == (2, 4, 7)
