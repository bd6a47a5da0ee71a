"""Learning rates and optimisers, step by step; SOAP against Adam where they must agree, and what it is for."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

from eirehn.models import LanguageModel, LanguageNetwork
from eirehn.training.config import LanguageOptimisation, Optimisation
from eirehn.training.optimizers import FullSOAP, early_stop, make_optimizer, schedule
from eirehn.training.tasks import LanguageModelling


@pytest.mark.parametrize(("name", "later"), [("constant", (1.0, 1.0)), ("cosine", (0.5, 0.0))])
def test_schedules(name: str, later: tuple[float, float]) -> None:
    rate = schedule(Optimisation(schedule=name, warmup=0.1), 100)
    found = [rate(step) for step in (0, 10, 55, 100)]
    assert found == pytest.approx([1 / 11, 1.0, *later])


def test_the_learning_rate_of_every_epoch() -> None:
    """As the RHN authors have it, epochs counted from 0: 0.2 / 1.02^max(i − 20 + 1, 0)."""
    an_epoch = 1327
    rate = schedule(LanguageOptimisation(epochs=500, schedule="decay"), 500 * an_epoch)
    for epoch in (0, 1, 18, 19, 20, 21, 100, 499):
        expected = 1.02 ** -max(epoch - 20 + 1, 0)
        assert rate(epoch * an_epoch) == pytest.approx(expected, rel=1e-12)
        assert rate((epoch + 1) * an_epoch - 1) == pytest.approx(expected, rel=1e-12)
    assert rate(20 * an_epoch) == pytest.approx(1 / 1.02)
    assert rate(20 * an_epoch - 1) == 1.0


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_recurrent_layers_have_a_rate_of_their_own(optimizer: str) -> None:
    """Of one step all of them move by that much less, and nothing else does; the schedule falls for both."""
    moved = {}
    for factor in (1.0, 0.25):
        torch.manual_seed(0)
        optimisation = LanguageOptimisation(optimizer=optimizer, learning_rate=0.1, recurrent_rate=factor)
        network = LanguageNetwork("EIREHN", 6, max_depth=2)
        task = LanguageModelling([LanguageModel(network, 9).double()], optimisation)
        made = make_optimizer(optimisation, task.parameters(), task.ensemble.recurrent())
        torch.optim.lr_scheduler.LambdaLR(made, lambda step: 0.5)
        before = {name: value.clone() for name, value in task.ensemble.values().items()}
        tokens = torch.randint(0, 9, (1, 3, 8), generator=torch.Generator().manual_seed(1))
        task.training_step((tokens[..., :-1], tokens[..., 1:], 1.0), 0).backward()
        made.step()
        moved[factor] = {name: value - before[name] for name, value in task.ensemble.values().items()}
        assert [group["lr"] for group in made.param_groups] == ([0.05] if factor == 1 else [0.05, 0.0125])
    for name, whole in moved[1.0].items():
        share = 0.25 if name.startswith("body.") else 1.0
        torch.testing.assert_close(moved[0.25][name], share * whole, rtol=1e-6, atol=1e-12)
        assert whole.abs().max() > 0
    assert any(name.startswith("body.") for name in moved[1.0])


@pytest.mark.parametrize(("early", "max_depth"), [(0.6, 4), (0.2, 2), (0.9, 6)])
def test_how_often_and_where(early: float, max_depth: int) -> None:
    """Binomial counts, none further than five deviations from what is asked for."""
    steps, own = 5000, LanguageOptimisation(early=early)
    found = Counter(early_stop(own, step, max_depth) for step in range(steps))
    fewer = range(1, max_depth)
    wanted = {None: 1 - early, **{stop: early * stop / sum(fewer) for stop in fewer}}
    assert set(found) == set(wanted)
    for stop, share in wanted.items():
        assert abs(found[stop] - steps * share) < 5 * (steps * share * (1 - share)) ** 0.5, stop
    assert found == Counter(early_stop(own, step, max_depth) for step in range(steps))
    assert {early_stop(LanguageOptimisation(), step, max_depth) for step in range(200)} == {None}


def problem(members: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ill-conditioned and turned out of the axes: Q diag(1 … 1e-4) Qᵀ, one for each member."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(members, size, size, generator=generator, dtype=torch.float64))[0]
    scales = torch.logspace(0, -4, size, dtype=torch.float64)
    start = torch.randn(members, size, generator=generator, dtype=torch.float64)
    return basis @ torch.diag(scales) @ basis.mT, start


def test_before_its_first_basis_soap_is_adam() -> None:
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(2, 3, 4).double()), nn.Parameter(torch.randn(2, 5).double())]
    theirs = [nn.Parameter(value.detach().clone()) for value in ours]
    soap, adam = FullSOAP(ours, 0.01, (0.9, 0.99)), torch.optim.Adam(theirs, 0.01, (0.9, 0.99))
    for _ in range(FullSOAP.BLOCK):
        for values, optimizer in ((ours, soap), (theirs, adam)):
            optimizer.zero_grad()
            (values[0].pow(4).sum() + values[1].cos().sum()).backward()
            optimizer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_after_a_new_basis_soap_is_adam_there() -> None:
    """Steps written out: Adam on the turned gradient, its mean carried over, its squares from the eigenvalues."""
    matrix, start = problem(1, 5)
    value = nn.Parameter(start.clone())
    optimizer = FullSOAP([value], 0.01, (0.9, 0.97), weight_decay=0.1)
    x, Q = start[0].numpy().copy(), np.eye(5)
    mean, square, gradients = np.zeros(5), np.zeros(5), []
    noise = np.random.default_rng(0).standard_normal((131, 5))  # without it the moment has directions of no weight
    for count in range(1, 131):
        gradient = matrix[0].numpy() @ x + noise[count]
        value.grad = (matrix @ value.detach()[..., None])[..., 0] + torch.from_numpy(noise[count])
        optimizer.step()
        gradients.append(gradient)
        turned = Q.T @ gradient
        mean, square = 0.9 * mean + 0.1 * turned, 0.97 * square + 0.03 * turned**2
        step = mean / (1 - 0.9**count) / (np.sqrt(square / (1 - 0.97**count)) + 1e-8)
        x = x * (1 - 0.01 * 0.1) - 0.01 * Q @ step
        if count == 100:
            moment = np.mean([np.outer(g, g) for g in gradients], 0)
            values, basis = np.linalg.eigh(moment)
            mean, square = basis.T @ (Q @ mean), values.clip(0) * (1 - 0.97**count)
            Q = basis
    np.testing.assert_allclose(value.detach().numpy()[0], x, rtol=1e-9)


def test_members_do_not_meet() -> None:
    """One of three ends where it does alone, though another has diverged."""
    matrix, start = problem(3, 6)
    together, alone = nn.Parameter(start.clone()), nn.Parameter(start[1:2].clone())
    for value, matrices in ((together, matrix), (alone, matrix[1:2])):
        optimizer = FullSOAP([value], 0.01)
        for _ in range(700):
            value.grad = (matrices @ value.detach()[..., None])[..., 0]
            if value is together:
                value.grad[0] = torch.nan
            optimizer.step()
    torch.testing.assert_close(together[1], alone[0], rtol=0, atol=1e-9)


def test_soap_goes_where_adam_does_not() -> None:
    """On noisy gradients of a turned, ill-conditioned bowl, at the same rate and number of steps."""
    matrix, start = problem(1, 20)
    root, left = torch.linalg.cholesky(matrix + 1e-12 * torch.eye(20).double()), []
    for kind in (torch.optim.Adam, FullSOAP):
        value = nn.Parameter(start.clone())
        optimizer = kind([value], 0.01)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2000)
        generator = torch.Generator().manual_seed(1)
        for _ in range(2000):
            noise = 0.1 * torch.randn(1, 20, generator=generator, dtype=torch.float64)
            value.grad = torch.einsum("mij,mj->mi", matrix, value.detach()) + noise @ root[0].mT
            optimizer.step()
            falling.step()
        left.append(torch.einsum("mi,mij,mj->", value, matrix, value).item())
    assert left[1] < 0.3 * left[0]
