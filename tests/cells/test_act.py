"""ACT on a case small enough to compute by hand."""

import math

import pytest
import torch
from torch import nn

import eirehn


def logit(p):
    return math.log(p / (1 - p))


def constant_halting(p, *, max_depth=10, epsilon=0.01):
    """An RNN cell of one unit whose halting unit says `p` at every inner step.

    With `h' = tanh(h + flag)` and no input, the states are known in closed form.
    """
    cell = eirehn.ACTCell(1, 1, cell="RNN", max_depth=max_depth, epsilon=epsilon, dtype=torch.float64)
    with torch.no_grad():
        cell.cell.weight_ih[:] = torch.tensor([[0.0, 1.0]])
        cell.cell.weight_hh.fill_(1.0)
        cell.cell.bias_ih.zero_()
        cell.w_p.zero_()
        cell.b_p.fill_(logit(p))
    return cell


X = torch.zeros(1, 1, dtype=torch.float64)
S1 = math.tanh(1.0)  # the flag is 1 at the first inner step
S2 = math.tanh(S1)  # and 0 after
S3 = math.tanh(S2)


def run(cell, **options):
    h, depth, cost = cell(X, return_depth=True, return_cost=True, **options)
    return h.item(), depth.item(), cost.item()


def test_mean_state_remainder_and_ponder_cost():
    # 0.4 + 0.4 < 0.99 ≤ 0.4 · 3, so three inner steps; the last weighs what is left, 0.2.
    h, depth, cost = run(constant_halting(0.4))
    assert depth == 3
    assert h == pytest.approx(0.4 * S1 + 0.4 * S2 + 0.2 * S3, abs=1e-14)
    assert cost == pytest.approx(3 + 0.2, abs=1e-14)


def test_one_step_when_the_first_probability_is_enough():
    h, depth, cost = run(constant_halting(0.995))
    assert (depth, h, cost) == (1, pytest.approx(S1, abs=1e-14), 2.0)


def test_epsilon_decides_the_edge():
    # The sum after two steps is 0.98: enough with ε = 0.02 (a little more), not with ε = 0.01.
    assert run(constant_halting(0.49, epsilon=0.021))[1] == 2
    assert run(constant_halting(0.49, epsilon=0.01))[1] == 3


def test_time_limit():
    h, depth, cost = run(constant_halting(0.1, max_depth=2))
    assert depth == 2
    assert h == pytest.approx(0.1 * S1 + 0.9 * S2, abs=1e-14)
    assert cost == pytest.approx(2 + 0.9, abs=1e-14)
    assert run(constant_halting(0.1), max_depth=2) == (h, depth, cost)


def test_weights_sum_to_one():
    """With a state that stays at one, the mean state is the sum of the weights."""
    for p in (0.07, 0.3, 0.6, 0.98):
        cell = constant_halting(p)
        with torch.no_grad():
            cell.cell.weight_ih.zero_()
            cell.cell.weight_hh.zero_()
            cell.cell.bias_ih.fill_(math.inf)
        assert run(cell)[0] == pytest.approx(1.0, abs=1e-14)


def test_the_ponder_cost_teaches_the_halting_unit():
    """∂(N + R)/∂p = −(N − 1): only the remainder has a gradient."""
    cell = constant_halting(0.4)
    cost = cell(X, return_cost=True)[1]
    (gradient,) = torch.autograd.grad(cost.sum(), cell.b_p)
    assert gradient.item() == pytest.approx(-2 * 0.4 * 0.6, abs=1e-12)


@pytest.mark.parametrize("cell", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("second_bias", [False, True])
def test_one_inner_step_is_torch_s_own_cell(cell, second_bias):
    """Also with weights taken over from a torch cell with both biases."""
    torch.manual_seed(0)
    layer = eirehn.ACTCell(3, 4, cell=cell, max_depth=1, dtype=torch.float64)
    if second_bias:
        nn.init.normal_(layer.cell.bias_hh)
    x, h = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    state = (h, torch.randn_like(h)) if cell == "LSTM" else h
    flagged = torch.cat([x, torch.ones(5, 1, dtype=torch.float64)], 1)
    torch.testing.assert_close(layer(x, state), layer.cell(flagged, state), rtol=0, atol=1e-14)


def test_half_precision_counts_in_single():
    deep = constant_halting(0.003, max_depth=1000)
    half = constant_halting(0.003, max_depth=1000).bfloat16()
    depth, cost = half(X.bfloat16(), return_depth=True, return_cost=True)[1:]
    assert abs(depth.item() - run(deep)[1]) <= 5  # counted in bfloat16 it would be 56 short
    assert cost.dtype == torch.float32


def test_samples_stop_each_at_its_own_depth():
    cell = constant_halting(0.3)
    with torch.no_grad():
        cell.cell.weight_ih[0, 0] = 1.0
        cell.w_p.fill_(1.0)
    x = torch.linspace(-3, 3, 7, dtype=torch.float64)[:, None]
    h, depth, cost = cell(x, return_depth=True, return_cost=True)
    assert depth.unique().numel() > 2
    for index in range(7):
        alone = cell(x[index], return_depth=True, return_cost=True)
        assert torch.equal(alone[0], h[index])
        assert torch.equal(alone[1], depth[index])
        assert torch.equal(alone[2], cost[index])
