"""The pointer sentinel of Merity et al. (2016): a language model that can also point at a word it has just read."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .._internal.checks import positive_int
from ..cells.base import at_least_float32, fill_uniform


class Memory(NamedTuple):
    """What can be pointed at: the last outputs and the words that they were for, −1 where there was none yet."""

    outputs: Tensor  # (B, L, H)
    words: Tensor  # (B, L)


class PointerSentinel(nn.Module):
    """`p(w) = g p_vocab(w) + Σ_{i: w_i = w} a_i` over the last `window` words, the present one among them, with
    `[a; g] = softmax([q · h_i; q · s])`, `q = tanh(W h + b)`, and a learned sentinel s, whose share g is left to
    the vocabulary. It is trained by the cross-entropy of p alone."""

    def __init__(self, hidden_size: int, window: int, bound: float = 0.1) -> None:
        super().__init__()
        self.window = positive_int("window", window)
        self.query = nn.Linear(hidden_size, hidden_size)
        self.sentinel = nn.Parameter(torch.empty(hidden_size))
        fill_uniform(bound, self.query.weight, self.query.bias, self.sentinel)

    def forward(
        self,
        out: Tensor,
        tokens: Tensor,
        logits: Tensor,
        memory: Memory | None,
        target: Tensor | None = None,
        *,
        asking: Tensor | None = None,
    ) -> tuple[Tensor, Memory]:
        """Log-probabilities, (B, T, V), for outputs (B, T, H) at `tokens` (B, T); and what to point at next.

        With a `target`, (B, T), they are of the target alone, (B, T), which is faster. Where `asking` is given,
        (B, T, H), the queries are of that and not of `out`, which is then only pointed at."""
        memory = self.empty(out) if memory is None else Memory(*memory)
        keys = torch.cat([memory.outputs.to(out.dtype), out], 1)  # (B, L + T, H)
        words = torch.cat([memory.words, tokens], 1)  # (B, L + T)
        queries = torch.tanh(self.query(out if asking is None else asking))  # (B, T, H)
        sentinels = self.sentinel.to(out.dtype).expand(out.size(0), 1, -1)
        scores = queries @ torch.cat([keys, sentinels], 1).transpose(1, 2)
        shares = at_least_float32(scores).masked_fill(~self._in_sight(words, out.size(1)), -torch.inf).softmax(-1)
        pointed, left = shares[..., :-1], shares[..., -1:]  # (B, T, L + T), (B, T, 1)
        memory = Memory(keys[:, -self.window :], words[:, -self.window :])
        logits = at_least_float32(logits)
        if target is None:
            places = words.clamp(min=0).unsqueeze(1).expand_as(pointed)
            return _log((left * logits.softmax(-1)).scatter_add(-1, places, pointed)), memory
        left, wanted = left.squeeze(-1), target.unsqueeze(-1)
        found = (pointed * (words.unsqueeze(1) == wanted)).sum(-1)  # (B, T)
        vocabulary = logits.log_softmax(-1).gather(-1, wanted).squeeze(-1).exp()
        return _log(left * vocabulary + found), memory

    def empty(self, out: Tensor) -> Memory:
        words = out.new_full((out.size(0), self.window), -1, dtype=torch.int64)
        return Memory(out.new_zeros(*words.shape, out.size(-1)), words)

    def _in_sight(self, words: Tensor, steps: int) -> Tensor:
        """What each step may point at, (B, T, L + T + 1): the window up to itself, and the sentinel."""
        at = torch.arange(words.size(1), device=words.device)
        now = torch.arange(steps, device=words.device)[:, None] + self.window  # where each step's own word is
        window = (at <= now) & (at > now - self.window)  # (T, L + T)
        seen = window & (words >= 0).unsqueeze(1)  # (B, T, L + T)
        return torch.cat([seen, torch.ones_like(seen[..., :1])], -1)


def _log(chance: Tensor) -> Tensor:
    return chance.clamp(min=torch.finfo(chance.dtype).tiny).log()
