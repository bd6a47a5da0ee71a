"""NaN, infinity, overflow, precisions."""

import math

import numpy as np
import pytest
import torch
from helpers.quick import quick
from helpers.systems import ELASTIC, HIGHWAY, SYSTEMS, draw, joined, make, oracle_run, parts

import eirehn


@pytest.mark.parametrize("name", SYSTEMS)
def test_nan_comes_out_in_its_own_sample_from_its_own_step_on(name):
    layer = make(name, 2, 3)
    x, h0 = draw(layer, 5, 3)
    clean = layer(x, h0)[0]
    x[2, 1, 0] = math.nan
    out, _, depth, cost = layer(x, h0, return_depth=True, return_cost=True)
    torch.testing.assert_close(out[:, [0, 2]], clean[:, [0, 2]], rtol=0, atol=0)
    torch.testing.assert_close(out[:2, 1], clean[:2, 1], rtol=0, atol=0)
    assert out[2:, 1].isnan().all()
    if name in ELASTIC or name.startswith("ACT"):
        assert (depth[0, 2:, 1] == 1).all()
    if name in ELASTIC:
        assert cost[0, 2:, 1].isnan().all()


@pytest.mark.parametrize("name", ELASTIC)
def test_a_nan_gate_of_one_unit(name):
    layer = make(name, 2, 3)
    with torch.no_grad():
        layer.cells[0].alpha_hat[1] = math.nan
    x, h0 = draw(layer, 1, 3)
    out, _, depth, _ = layer(x, h0, return_depth=True, return_cost=True)
    expected = oracle_run(name, layer, 0, x, h0[0])
    np.testing.assert_allclose(out.detach(), expected.out, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(depth[0], expected.depth)
    assert out[..., 1].isnan().all()


@pytest.mark.parametrize("name", HIGHWAY)
@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e300])
def test_infinity_does_what_the_equations_say(name, value):
    layer = make(name, 1, 3)
    x, h0 = draw(layer, 2, 2)
    x[0, 1] = value
    with np.errstate(invalid="ignore", over="ignore"):
        expected = oracle_run(name, layer, 0, x, h0[0])
    out, _, depth = layer(x, h0, return_depth=True)
    np.testing.assert_allclose(out.detach(), expected.out, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(depth[0], expected.depth)


@pytest.mark.parametrize("name", ELASTIC)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", quick(50.0, of=[1e-4, 0.5, 50.0]))
def test_gradients_are_finite_at_a_thousand_inner_steps(name, dtype, alpha):
    kind, options = SYSTEMS[name]
    torch.manual_seed(0)
    layer = kind(2, 3, dtype=dtype, **{**options, "max_depth": 1000})
    # Small weights: with large ones the states themselves explode over hundreds of inner steps.
    layer.reset_parameters(weight_bound=0.05, alpha=alpha, decay_bias=-80.0 if alpha > 1 else -6.0)
    x = torch.randn(2, 2, 2, dtype=dtype, requires_grad=True)
    out, _, depth, cost = layer(x, return_depth=True, return_cost=True)
    assert depth.max() > 200 if alpha < 0.1 else depth.max() == 1
    (out.sum() + cost.sum()).backward()
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


@pytest.mark.parametrize("name", ["SREHN", "EIREHN-recursive"])
def test_depth_of_hundreds_is_reached(name):
    kind, options = SYSTEMS[name]
    layer = kind(2, 3, **{**options, "max_depth": 1000})
    layer.reset_parameters(alpha=1e-3, decay_bias=-12.0)
    depth = layer(torch.randn(1, 2, 2), return_depth=True)[2]
    assert (depth > 500).all()
    assert (depth <= layer.depth_bound().max()).all()


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_halves_the_products_and_keeps_the_state(name, dtype):
    layer = make(name, 3, 8, dtype=torch.float32)
    x, h0 = draw(layer, 4, 5)
    x, h0 = x.float(), tuple(part.float() for part in parts(h0))
    h0 = h0 if len(h0) == 2 else h0[0]
    full = layer(x, h0)[0]
    with torch.autocast("cpu", dtype=dtype):
        out, h_n, _, cost = layer(x, h0, return_depth=True, return_cost=True)
        half_input = layer(x.to(dtype), h0)[0]
    assert out.dtype == joined(h_n).dtype == cost.dtype == torch.float32
    # A depth may change by one where a gate is nearly shut, so the bound is loose; it is far under the signal.
    assert (out - full).abs().mean() < 0.02 * full.abs().mean()
    assert not torch.equal(out, full)
    # Only the products are halved: with the products of the plain run the state keeps 24 bits.
    assert ((out * 2**10).frac() != 0).any()
    assert half_input.dtype == torch.float32
    out.sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in layer.parameters() if p.requires_grad)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_layer_in_half_precision(name, dtype):
    layer = make(name, 3, 8)
    x, _ = draw(layer, 4, 5)
    full = layer(x)[0]
    half = layer.to(dtype)
    out, h_n, depth = half(x.to(dtype), return_depth=True)
    assert out.dtype == joined(h_n).dtype == dtype
    assert depth.dtype == torch.int64
    assert (out.double() - full).abs().mean() < 0.05 * full.abs().mean()


def test_float32_follows_float64():
    layer = make("EIREHN-paper", 3, 8)
    x, h0 = draw(layer, 10, 5)
    full = layer(x, h0)[0]
    single = layer.float()(x.float(), h0.float())[0]
    assert (single.double() - full).abs().max() < 1e-5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", SYSTEMS)
def test_cuda_gives_the_cpu_s_numbers(name):
    layer = make(name, 3, 8, num_layers=2, bidirectional=True)
    x, h0 = draw(layer, 6, 5)
    expected = layer(x, h0, return_depth=True, return_cost=True)
    layer.cuda()
    h0 = tuple(part.cuda() for part in parts(h0)) if isinstance(h0, tuple) else h0.cuda()
    out, h_n, depth, cost = layer(x.cuda(), h0, return_depth=True, return_cost=True)
    torch.testing.assert_close(out.cpu(), expected[0], rtol=0, atol=1e-11)
    torch.testing.assert_close(joined(h_n).cpu(), joined(expected[1]), rtol=0, atol=1e-11)
    assert torch.equal(depth.cpu(), expected[2])
    torch.testing.assert_close(cost.cpu(), expected[3], rtol=0, atol=1e-11)
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast("cuda", dtype=dtype):
            assert layer.float()(x.cuda().float())[0].dtype == torch.float32


def test_the_cost_of_depth_can_be_trained_down():
    torch.manual_seed(0)
    layer = eirehn.EIREHN(2, 6, max_depth=8)
    x = torch.randn(10, 8, 2)
    optimizer = torch.optim.Adam(layer.parameters(), 0.05)
    costs, depths = [], []
    for _ in range(40):
        _, _, depth, cost = layer(x, return_depth=True, return_cost=True)
        optimizer.zero_grad()
        cost.mean().backward()
        optimizer.step()
        costs.append(cost.mean().item())
        depths.append(depth.double().mean().item())
    assert costs[-1] < 0.3 * costs[0]
    assert depths[-1] < 0.5 * depths[0]
