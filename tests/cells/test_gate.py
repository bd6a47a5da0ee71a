import math

import numpy as np
import pytest
import torch
from helpers import oracle
from hypothesis import given
from hypothesis import strategies as st

from eirehn import depth_bound, elastic_gate
from eirehn.cells.gate import global_decay, inverse_softplus

positive = st.floats(1e-6, 5.0)
unit = st.floats(0.0, 1.0)


@given(positive, unit, unit, st.integers(1, 30))
def test_gate_is_the_printed_equation(alpha, beta, alpha_t, r):
    d = elastic_gate(*torch.tensor([alpha, beta, alpha_t], dtype=torch.float64), r)
    printed = oracle.elastic_gate(np.float64(alpha), np.float64(beta), np.float64(alpha_t), r)
    assert abs(d.item() - printed) <= 1e-13 * math.exp(alpha)


@given(positive, unit, unit, st.integers(1, 30))
def test_gate_falls_with_depth_and_never_exceeds_beta(alpha, beta, alpha_t, r):
    values = torch.tensor([alpha, beta, alpha_t])
    here, deeper = elastic_gate(*values, r), elastic_gate(*values, r + 1)
    assert 0 <= deeper <= here <= values[1]


@given(positive, unit, unit, st.integers(1, 40))
def test_open_exactly_when_the_logarithm_says_so(alpha, beta, alpha_t, r):
    limit = math.log(beta + math.exp(alpha)) / (alpha + alpha_t)
    d = elastic_gate(*torch.tensor([alpha, beta, alpha_t], dtype=torch.float64), r)
    if abs(r - limit) > 1e-6:
        assert (d.item() > 0) == (r < limit)


@given(st.lists(st.tuples(positive, unit), min_size=1, max_size=5))
def test_depth_bound_is_the_paper_s(pairs):
    alpha, beta = torch.tensor(pairs, dtype=torch.float64).T
    ratio = np.log(beta.numpy() + np.exp(alpha.numpy())) / alpha.numpy()
    settled = np.abs(ratio - np.round(ratio)) > 1e-9  # at a whole number, rounding decides
    bound = depth_bound(alpha, beta).numpy()
    np.testing.assert_array_equal(bound[settled], oracle.depth_bound(alpha.numpy(), beta.numpy())[settled])


def test_depth_bound_of_the_default_start():
    alpha_hat = torch.tensor(inverse_softplus(0.05), dtype=torch.float64)
    alpha, beta = global_decay(alpha_hat, torch.tensor(3.0, dtype=torch.float64))
    assert alpha.item() == pytest.approx(0.05, rel=1e-12)
    assert depth_bound(alpha, beta).item() == 13  # log(0.9526 + 1.0513) / 0.05 = 13.9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha_hat", [-200.0, 0.0, 80.0, 300.0, 1000.0, math.inf])
@pytest.mark.parametrize("r", [1, 2, 1000, 10**6])
def test_no_overflow_reaches_value_or_gradient(dtype, alpha_hat, r):
    alpha_hat, beta_hat = torch.tensor([[alpha_hat] * 4, [0.3] * 4], dtype=dtype).requires_grad_()
    local = torch.tensor([0.0, 1e-30, 0.5, 1.0], dtype=dtype, requires_grad=True)
    d = elastic_gate(*global_decay(alpha_hat, beta_hat), local, r)
    gradients = torch.autograd.grad(d.sum(), [alpha_hat, beta_hat, local])
    assert ((d >= 0) & (d <= 1)).all()
    assert all(gradient.isfinite().all() for gradient in gradients)
    if r == 1:
        assert d[0] == torch.sigmoid(beta_hat[0])  # no decay at all: the gate is β


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype):
    values = torch.tensor([0.1, 0.5, 0.25], dtype=dtype)
    assert torch.equal(elastic_gate(*values, 2), elastic_gate(*values.float(), 2))


def test_nan_stays_nan():
    d = elastic_gate(torch.tensor(0.1), torch.tensor(0.5), torch.tensor(math.nan), 1)
    assert d.isnan()
