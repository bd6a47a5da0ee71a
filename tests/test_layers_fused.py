"""The contract of the layers once more, with the kernels in place of the plain path."""

import pytest
import torch
from helpers.systems import ELASTIC, draw, make
from test_layers import *  # noqa: F403  # the same tests, under another fixture

import eirehn

del test_the_loop_ends_when_all_gates_are_shut  # noqa: F821  # it counts the plain path's own steps
# The kernels add up weight gradients in blocks whose size goes by max_depth: the same to rounding, not to the bit.
del test_deeper_changes_no_bit_once_all_gates_are_shut  # noqa: F821


@pytest.fixture(autouse=True, scope="module")
def _kernels(_plain_path):
    with eirehn.use_backend("auto"):
        yield


@pytest.mark.parametrize("name", ELASTIC)
@pytest.mark.parametrize("seed", range(5))
def test_deeper_changes_no_bit_of_the_results(name, seed):
    layer = make(name, 2, 3, seed=seed)
    x, h0 = draw(layer, 4, 5)
    needed = min(int(layer.depth_bound().max()), 60)
    runs = []
    for depth in (needed, needed + 7):
        layer.zero_grad()
        results = layer(x, h0, max_depth=depth, return_depth=True, return_cost=True)
        (results[0].sum() + results[3].sum()).backward()
        runs.append((results, [parameter.grad for parameter in layer.parameters()]))
    (shallow, below), (deep, beyond) = runs
    if layer.depth_bound().max() <= 60:
        assert all(torch.equal(left, right) for left, right in zip(shallow, deep, strict=True))
        for left, right in zip(below, beyond, strict=True):
            torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-13)
