"""The mixture of softmaxes of Yang et al. (2018): a language model that weighs words in several ways at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cells.base import at_least_float32, fill_uniform
from .checks import positive_int


class MixtureOfSoftmaxes(nn.Module):
    """`p(w) = Σ_k π_k softmax(E tanh(V_k h + c_k) + b)_w` with `π = softmax(U h)`, for `count` softmaxes over words
    that E, (V, `size`), and b, (V), tell apart.

    The logits of one softmax are linear in h: over all h they have at most one rank more than E has columns. A
    mixture has no such bound."""

    def __init__(self, hidden_size: int, size: int, count: int, bound: float = 0.1) -> None:
        super().__init__()
        self.count = positive_int("count", count)
        self.latents = nn.Linear(hidden_size, count * size)
        self.prior = nn.Linear(hidden_size, count, bias=False)
        fill_uniform(bound, *self.parameters())

    def forward(
        self,
        out: Tensor,
        weight: Tensor,
        bias: Tensor,
        target: Tensor | None = None,
        *,
        drop: Callable[[Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Logarithms of p, (B, T, V), for outputs (B, T, H); where there is a `target` (B, T), of p of that alone,
        (B, T), which takes less time. `drop` hides a part of what each softmax reads, (B, T, count · size)."""
        latents = torch.tanh(self.latents(out))
        latents = (latents if drop is None else drop(latents)).unflatten(-1, (self.count, -1))  # (B, T, K, E)
        shares = at_least_float32(self.prior(out)).log_softmax(-1)  # (B, T, K)
        if target is None:  # one softmax after the other: V is large
            each = zip(latents.unbind(-2), shares.unsqueeze(-2).unbind(-1), strict=True)  # (B, T, E), (B, T, 1)
            return reduce(torch.logaddexp, (share + self._of_all(latent, weight, bias) for latent, share in each))
        logits = at_least_float32(F.linear(latents, weight, bias))  # (B, T, K, V)
        wanted = target.unsqueeze(-1).expand(logits.shape[:-1])
        entropies = F.cross_entropy(logits.flatten(0, -2), wanted.flatten(), reduction="none")
        return torch.logsumexp(shares - entropies.view(shares.shape), -1)

    @staticmethod
    def _of_all(latent: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return at_least_float32(F.linear(latent, weight, bias)).log_softmax(-1)  # (B, T, V)
