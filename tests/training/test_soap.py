"""The optimiser against Adam where they must agree, and against what it is for."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from eirehn.training.soap import FullSOAP


def problem(members: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ill-conditioned and turned out of the axes: Q diag(1 … 1e-4) Qᵀ, one for each member."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.linalg.qr(torch.randn(members, size, size, generator=generator, dtype=torch.float64))[0]
    scales = torch.logspace(0, -4, size, dtype=torch.float64)
    return basis @ torch.diag(scales) @ basis.mT, torch.randn(
        members, size, generator=generator, dtype=torch.float64
    )


def test_before_its_first_basis_it_is_adam() -> None:
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


def test_after_a_new_basis_it_is_adam_there() -> None:
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
    matrix, start = problem(3, 6)
    together = nn.Parameter(start.clone())
    alone = nn.Parameter(start[1:2].clone())
    for value, matrices in ((together, matrix), (alone, matrix[1:2])):
        optimizer = FullSOAP([value], 0.01)
        for _ in range(700):
            optimizer.zero_grad()
            (0.5 * torch.einsum("mi,mij,mj->m", value, matrices, value)).sum().backward()
            optimizer.step()
    torch.testing.assert_close(together[1], alone[0], rtol=0, atol=1e-9)


def test_it_goes_where_adam_does_not() -> None:
    """On noisy gradients of a turned, ill-conditioned bowl, at the same rate and number of steps."""
    matrix, start = problem(1, 20)
    left = {}
    root = torch.linalg.cholesky(matrix + 1e-12 * torch.eye(20).double())
    for name in ("adam", "soap"):
        value = nn.Parameter(start.clone())
        optimizer = torch.optim.Adam([value], 0.01) if name == "adam" else FullSOAP([value], 0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2000)
        generator = torch.Generator().manual_seed(1)
        for _ in range(2000):
            noise = 0.1 * torch.randn(1, 20, generator=generator, dtype=torch.float64)
            value.grad = torch.einsum("mij,mj->mi", matrix, value.detach()) + torch.einsum(
                "mij,mj->mi", root, noise
            )
            optimizer.step()
            schedule.step()
        left[name] = torch.einsum("mi,mij,mj->", value, matrix, value).item()
    assert left["soap"] < 0.3 * left["adam"]


def test_a_member_that_diverges_does_not_stop_the_others() -> None:
    value = nn.Parameter(torch.ones(2, 4).double())
    optimizer = FullSOAP([value], 0.01)
    for _ in range(150):
        value.grad = value.detach().clone()
        value.grad[0] = torch.nan
        optimizer.step()
    assert value[1].isfinite().all()
    assert value[1].abs().max() < 1
