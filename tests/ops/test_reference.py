"""The plain path: its loops over inner steps end by themselves, and where they may not look, nothing changes."""

import pytest
import torch
from helpers.systems import ELASTIC, draw, make
from hypothesis import given
from hypothesis import strategies as st

from eirehn.cells import gate

small = st.integers(1, 5)
seeds = st.integers(0, 10**6)


@given(st.sampled_from(ELASTIC), small, small, st.integers(1, 30), seeds)
def test_deeper_changes_no_bit_once_all_gates_are_shut(name, steps, batch, more, seed):
    """Once with the loop that stops by itself, once with one that may not look and runs on."""
    layer = make(name, 2, 3, seed=seed)
    x, h0 = draw(layer, steps, batch)
    needed = int(layer.depth_bound().max())
    if needed > 60:
        return
    runs = []
    for depth, stops in ((needed, True), (needed + more, False)):
        layer.zero_grad()
        with pytest.MonkeyPatch.context() as patch:
            if not stops:
                patch.setattr(gate, "stops_by_data", lambda _: False)
            results = layer(x, h0, max_depth=depth, return_depth=True, return_cost=True)
        (results[0].sum() + results[3].sum()).backward()
        runs.append((*results, *(parameter.grad for parameter in layer.parameters())))
    assert all(torch.equal(left, right) for left, right in zip(*runs, strict=True))


@pytest.mark.parametrize("name", ELASTIC)
def test_the_loop_ends_when_all_gates_are_shut(name, monkeypatch):
    """Nothing is computed beyond the deepest sample: one look at the gate after the last open inner step."""
    layer = make(name, 2, 3, max_depth=10**9)
    x, h0 = draw(layer, 4, 3)
    looks, original = [], gate.elastic_gate
    monkeypatch.setattr(gate, "elastic_gate", lambda *given: looks.append(given[-1]) or original(*given))
    depth = layer(x, h0, return_depth=True)[2][0]
    deepest = [max(1, int(step.max())) for step in depth]
    assert looks == [r for last in deepest for r in range(1, last + 2)]


def test_act_ends_when_all_have_halted(monkeypatch):
    layer = make("ACT-GRU", 2, 3, max_depth=10**9)
    x, h0 = draw(layer, 4, 3)
    taken, original = [], layer.cells[0].transition
    monkeypatch.setattr(layer.cells[0], "transition", lambda *given: taken.append(1) or original(*given))
    depth = layer(x, h0, return_depth=True)[2][0]
    assert len(taken) == sum(int(step.max()) for step in depth)
