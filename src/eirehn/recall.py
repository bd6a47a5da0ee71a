"""What followed states like the present one is expected again: a continuous cache (Grave et al. 2017)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .checks import positive_int


class Recall:
    """Reads what a language model puts out, part by part, and remembers the last `window` states and what followed
    each. The chance of a word is the share of those it followed, each weighed by `exp(θ cos(h_t, h_i))`, for every
    sharpness θ of `sharpness`, (M, K). Nothing is trained.

    Grave et al. weigh by inner products. The angle alone needs no scale: θ is of the same size for all networks.
    """

    def __init__(self, window: int, sharpness: Tensor) -> None:
        self.window = positive_int("window", window)
        self.sharpness = sharpness
        self._states: Tensor | None = None  # (M, B, P, H), of length 1
        self._words: Tensor | None = None  # (M, B, P)

    def __call__(self, out: Tensor, target: Tensor) -> Tensor:
        """Of `target`, (M, B, T), the words that follow the states `out`, (M, B, T, H), the chances (K, M, B, T);
        NaN at the first state of all, before which there is none."""
        now = F.normalize(out, dim=-1)
        states = now if self._states is None else torch.cat([self._states, now], -2)  # (M, B, P + T, H)
        words = target if self._words is None else torch.cat([self._words, target], -1)
        before, steps = words.size(-1) - target.size(-1), target.size(-1)
        place = torch.arange(before, before + steps, device=out.device).unsqueeze(-1)
        there = torch.arange(before + steps, device=out.device)
        seen = (there < place) & (there >= place - self.window)  # (T, P + T)
        alike = torch.matmul(now, states.transpose(-1, -2))
        same = words.unsqueeze(-2) == target.unsqueeze(-1)  # (M, B, T, P + T)
        found = []
        for factor in self.sharpness.t().to(alike):
            weights = torch.softmax((alike * factor.view(-1, 1, 1, 1)).masked_fill(~seen, -math.inf), -1)
            found.append((weights * same).sum(-1))
        self._states, self._words = states[..., -self.window :, :], words[..., -self.window :]
        return torch.stack(found)
