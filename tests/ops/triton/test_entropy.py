"""Cross-entropies by the Triton kernels against torch in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from helpers.gpu_problems import DEVICE, GPU_TESTS
from torch import Tensor

import eirehn
from eirehn.ops import cross_entropies

entropy = pytest.importorskip("eirehn.ops.triton.entropy")
pytestmark = GPU_TESTS


def given(rows: int, words: int, size: float = 3.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = (size * torch.randn(rows, words, generator=generator)).bfloat16()
    target = torch.randint(words, (rows,), generator=generator)
    target[0], target[-1] = 0, words - 1
    return logits.to(DEVICE).requires_grad_(), target.to(DEVICE)


@pytest.mark.parametrize(("rows", "words"), [(1, 1), (3, 7), (2, 64), (5, 129)])
def test_entropies_and_gradients(rows: int, words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropy, "BLOCK", 64)
    logits, target = given(rows, words)
    above = torch.linspace(-1.0, 2.0, rows, device=DEVICE)
    found = entropy.by_kernel(logits, target)
    assert found.dtype == torch.float32
    (d_logits,) = torch.autograd.grad(found, logits, above)
    exact = logits.detach().double().requires_grad_()
    wanted = F.cross_entropy(exact, target, reduction="none")
    (d_exact,) = torch.autograd.grad(wanted, exact, above.double())
    torch.testing.assert_close(found, wanted.float(), rtol=1e-6, atol=1e-6)
    assert d_logits.dtype == torch.bfloat16
    torch.testing.assert_close(d_logits, d_exact.bfloat16(), rtol=2**-7, atol=1e-6)


def test_large_logits_stay_finite() -> None:
    logits, target = given(4, 50, size=1e4)
    found = entropy.by_kernel(logits, target)
    wanted = F.cross_entropy(logits.detach().double(), target, reduction="none")
    torch.testing.assert_close(found, wanted.float(), rtol=1e-6, atol=1e-6)
    (d_logits,) = torch.autograd.grad(found.sum(), logits)
    assert d_logits.isfinite().all()


def test_nan_stays_in_its_row() -> None:
    logits, target = given(3, 20)
    with torch.no_grad():
        logits[1, 4] = torch.nan
    assert entropy.by_kernel(logits, target).isnan().tolist() == [False, True, False]


def test_which_logits_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[torch.dtype] = []
    monkeypatch.setattr(entropy, "by_kernel", lambda logits, target: taken.append(logits.dtype) or target)
    logits, target = given(3, 20)
    for backend in ("auto", "reference"):
        with eirehn.use_backend(backend):
            cross_entropies(logits, target)
            cross_entropies(logits.float(), target)
    assert taken == ([torch.bfloat16] if DEVICE == "cuda" else [])
    assert cross_entropies(logits[:0].float(), target[:0]).shape == (0,)
