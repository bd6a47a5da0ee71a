"""From its default initialisation a layer remembers at least as long as torch's LSTM, and does not explode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import eirehn

H = 32
UPDATES = ("bounded", "recursive", "paper", "additive", "scaling", "outer")
LAYERS: dict[str, Any] = {
    "SREHN": lambda **options: eirehn.SREHN(9, H, **options),
    **{
        f"EIREHN-{update}": lambda update=update, **options: eirehn.EIREHN(9, H, weight_update=update, **options)
        for update in UPDATES
    },
    "two layers": lambda **options: eirehn.EIREHN(9, H, 2, **options),
    "both directions": lambda **options: eirehn.EIREHN(9, H, bidirectional=True, **options),
}


def gradient(layer: Any, steps: int, seed: int) -> float:
    """The norm of the gradient of `v · h_T` with respect to the first state, and in an LSTM also to its cell."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(steps, 1, 9, dtype=torch.float64, generator=generator)
    v = torch.randn(H, dtype=torch.float64, generator=generator)
    cells = layer.num_layers * (2 if layer.bidirectional else 1)
    first = [torch.zeros(cells, 1, H, dtype=torch.float64, requires_grad=True) for _ in "hc"]
    out = layer.double()(x, tuple(first) if isinstance(layer, nn.LSTM) else first[0])[0]
    found = torch.autograd.grad(out[-1, 0, :H] @ (v / v.norm()), first, allow_unused=True)
    return float(torch.cat([part.flatten() for part in found if part is not None]).norm())


def median(make: Any, steps: int, grown: float = 1.0) -> float:
    sizes = []
    for seed in range(5):
        torch.manual_seed(seed)
        layer = make()
        with torch.no_grad():
            for parameter in layer.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(grown)
        sizes.append(gradient(layer, steps, seed))
    return float(np.median(sizes))


@pytest.mark.parametrize("steps", [16, 64, 256])
@pytest.mark.parametrize("name", LAYERS)
def test_it_remembers_as_long_as_an_lstm(name: str, steps: int) -> None:
    assert median(lambda: LAYERS[name](max_depth=5), steps) >= median(lambda: nn.LSTM(9, H), steps)


@pytest.mark.parametrize("depth", [1, 2, 10])
def test_whatever_the_depth(depth: int) -> None:
    assert median(lambda: eirehn.EIREHN(9, H, max_depth=depth), 64) >= median(lambda: nn.LSTM(9, H), 64)


@pytest.mark.slow
def test_it_does_not_explode_as_its_weights_grow() -> None:
    """Six times as large, about what training makes of them; from gates that fall slowly the gradient explodes."""

    def flat() -> Any:
        layer = eirehn.EIREHN(9, H, max_depth=5, weight_update="paper")
        layer.reset_parameters(alpha=0.05, gate_bias=0.0, decay_bias=-4.0, decay_scale=0.1)
        return layer

    for depth in (1, 5, 10):
        assert median(lambda depth=depth: eirehn.EIREHN(9, H, max_depth=depth), 256, grown=6.0) <= 1e3
    assert median(flat, 256, grown=6.0) > 1e6


@pytest.mark.parametrize("kind", [eirehn.SREHNCell, eirehn.EIREHNCell])
def test_a_time_step_rewrites_a_modest_share_whatever_the_depth(kind: Any) -> None:
    """Σ_r d^r ĝ^r by the paper's equations, with ĝ where its bias alone puts it."""
    shares = []
    for depth in (1, 2, 3, 10, 50):
        cell = kind(9, 8, max_depth=depth)
        p = {name: value.detach().double().numpy() for name, value in cell.named_parameters()}
        alpha, beta = np.log1p(np.exp(p["alpha_hat"])), 1 / (1 + np.exp(-p["beta_hat"]))
        alpha_t, g = 1 / (1 + np.exp(-p["b_a"])), 1 / (1 + np.exp(-p["b"][8:]))
        d = [np.maximum(beta + np.exp(alpha) - np.exp((alpha + alpha_t) * r), 0) for r in range(1, depth + 1)]
        shares.append(float((np.sum(d, 0) * g).mean()))
    assert shares[0] == pytest.approx(0.21, abs=0.005)
    assert shares[1:] == pytest.approx([0.33] * 4, abs=0.005)
