"""Each cell against the NumPy oracle, and the pieces of the contract a single time step has."""

import numpy as np
import pytest
import torch
from helpers.quick import quick
from helpers.systems import ELASTIC, SYSTEMS, draw, joined, make, oracle_run, parts


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize(("inputs", "hidden", "hyper"), [(3, 5, None), (1, 1, None), (2, 4, 7)])
@pytest.mark.parametrize("cap", [None, 1, 2, 3])
def test_against_the_oracle(name, inputs, hidden, hyper, cap):
    options = {"hyper_size": hyper} if hyper and name.startswith("EIREHN") else {}
    layer = make(name, inputs, hidden, seed=hidden, **options)
    x, h0 = draw(layer, 6, 7)
    out, h_n, depth, cost = layer(x, h0, max_depth=cap, return_depth=True, return_cost=True)
    expected = oracle_run(name, layer, 0, x, joined(h0)[0], max_depth=cap)
    np.testing.assert_allclose(out.detach(), expected.out, rtol=0, atol=1e-12)
    np.testing.assert_allclose(joined(h_n)[0].detach(), expected.h_n, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(depth[0], expected.depth)
    np.testing.assert_allclose(cost[0].detach(), expected.cost, rtol=0, atol=1e-12)
    assert cap is None or depth.max() <= cap
    if name in ELASTIC and hidden == 5 and cap is None:
        assert depth.unique().numel() >= 2


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_cell_is_one_step_of_its_layer(name):
    layer = make(name, 3, 5)
    x, h0 = draw(layer, 1, 4)
    state = tuple(part[0] for part in parts(h0)) if isinstance(h0, tuple) else h0[0]
    _, h_n, depth, cost = layer(x, h0, return_depth=True, return_cost=True)
    stepped, cell_depth, cell_cost = layer.cells[0](x[0], state, return_depth=True, return_cost=True)
    assert torch.equal(joined(stepped), joined(h_n)[0])
    assert torch.equal(cell_depth, depth[0, 0])
    assert torch.equal(cell_cost, cost[0, 0])
    alone = layer.cells[0](x[0, 1], tuple(part[1] for part in state) if isinstance(state, tuple) else state[1])
    torch.testing.assert_close(joined(alone), joined(h_n)[0, 1])
    torch.testing.assert_close(
        joined(layer.cells[0](x[0])), joined(layer.cells[0](x[0], zeros_like(state))), rtol=0, atol=0
    )


def zeros_like(state):
    return tuple(torch.zeros_like(part) for part in state) if isinstance(state, tuple) else torch.zeros_like(state)


@pytest.mark.parametrize("name", ["SREHN", "EIREHN-paper", "EIREHN-outer"])
def test_a_shut_unit_keeps_its_bits(name):
    layer = make(name, 2, 4)
    with torch.no_grad():
        layer.cells[0].b_a[1] = 50.0  # α_t = 1 there: d¹ = β + e^α (1 − e) < 0
    x, h0 = draw(layer, 5, 3)
    h0[0, 0, 1] = -0.0
    out = layer(x, h0)[0]
    assert torch.equal(out[..., 1].view(torch.int64), h0[0, :, 1].expand(5, 3).contiguous().view(torch.int64))
    assert not torch.equal(out[..., 0], h0[0, :, 0].expand(5, 3))


def test_eirehn_without_weight_updates_is_srehn():
    plain = make("SREHN", 3, 5, seed=3)
    none = make("EIREHN-none", 3, 5, seed=3)
    assert {key: value.shape for key, value in plain.state_dict().items()} == {
        key: value.shape for key, value in none.state_dict().items()
    }
    x, h0 = draw(plain, 4, 3)
    for left, right in zip(
        plain(x, h0, return_depth=True, return_cost=True),
        none(x, h0, return_depth=True, return_cost=True),
        strict=True,
    ):
        assert torch.equal(left, right)


@pytest.mark.parametrize("name", quick("SREHN", of=SYSTEMS))
def test_gradients_against_finite_differences(name):
    layer = make(name, 2, 3, seed=2, **({"max_depth": 3} if "HN" not in name or "EHN" in name else {"depth": 3}))
    x, h0 = draw(layer, 2, 2)
    names = [key for key, value in layer.named_parameters() if value.requires_grad]
    values = [layer.get_parameter(key).detach().clone().requires_grad_() for key in names]
    inputs = [x.requires_grad_(), *(part.requires_grad_() for part in parts(h0)), *values]
    states = len(parts(h0))

    def run(x, *rest):
        hx = tuple(rest[:2]) if states == 2 else rest[0]
        results = torch.func.functional_call(
            layer, dict(zip(names, rest[states:], strict=True)), (x, hx), {"return_cost": True}
        )
        return results[0], *parts(results[1]), results[2]

    assert torch.autograd.gradcheck(run, inputs, eps=1e-6, atol=1e-7)
    assert torch.autograd.gradgradcheck(run, inputs, eps=1e-6, atol=1e-6)
