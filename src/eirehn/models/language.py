"""Language models: the next token of a text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._internal.checks import positive_int
from ..cells.base import at_least_float32, default_bound, fill_uniform
from .body import Outcome, build_body, run_body
from .config import ELASTIC, FIXED, LanguageNetwork

if TYPE_CHECKING:
    from ..data.vocabulary import Vocabulary


class LanguageModel(nn.Module):
    """Tokens in, the logits of the next token out. One matrix embeds tokens and, with a bias, scores them; where
    `network.embedding_size` is not that of the state, a linear map brings states to that size first.

    Dropout is that of Gal and Ghahramani (2016): a sequence has the same words, inputs, states and outputs dropped
    at all its steps. RNN, GRU and LSTM have it as in Zaremba et al. (2014), anew at every step and never on states;
    with `network.step_masks` highway networks, too, but for their states.

    With `network.calibrated` logits are divided by `temperature`, 1 until it is set, when it is not training.

    >>> model = LanguageModel(LanguageNetwork("EIREHN", hidden_size=20), vocabulary=50)
    >>> model(torch.zeros(8, 35, dtype=torch.int64)).shape
    torch.Size([8, 35, 50])
    """

    tokens: Vocabulary | None = None  # what the numbers stand for, where `eirehn.load` found it

    def __init__(self, network: LanguageNetwork, vocabulary: int) -> None:
        super().__init__()
        self.network = network
        self.vocabulary = positive_int("vocabulary", vocabulary)
        self.by_step = network.step_masks or network.kind not in FIXED + ELASTIC
        body = replace(network, input_dropout=0.0) if self.by_step else network
        size, hidden = network.embedding_size or network.hidden_size, network.hidden_size
        self.embedding = nn.Embedding(vocabulary, size)
        self.body = build_body(body, size)
        self.narrowing = None if size == hidden else nn.Parameter(torch.empty(size, hidden))
        self.output = None if network.tied else nn.Parameter(torch.empty(vocabulary, size))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        # No gradient changes it; a parameter, so that it is kept where the others are.
        self.temperature = nn.Parameter(torch.ones(()), requires_grad=False) if network.calibrated else None
        bound = network.start.get("weight_bound")
        self.pointer = PointerSentinel(hidden, network.pointer, bound or 0.1) if network.pointer else None
        fill_uniform(0.1 if bound is None else bound, self.embedding.weight)
        if self.narrowing is not None:
            fill_uniform(default_bound(bound, hidden), self.narrowing)
        if self.output is not None:
            fill_uniform(0.1 if bound is None else bound, self.output)
        if bound is not None:
            fill_uniform(bound, self.bias)

    def forward(self, tokens: Tensor, hx: Any = None, *, max_depth: int | None = None) -> Tensor:
        """Logits (B, T, V) of what follows each of `tokens` (B, T)."""
        return self.run(tokens, hx, max_depth=max_depth).prediction

    def run(
        self,
        tokens: Tensor,
        hx: Any = None,
        *,
        target: Tensor | None = None,
        max_depth: int | None = None,
        with_cost: bool = False,
    ) -> Outcome:
        """As `forward`, and the final state, which the next call takes as `hx` to read on. A model with a pointer
        gives, where there is a `target` (B, T), the log-probability of that alone, (B, T), which is faster."""
        if target is not None and self.pointer is None:
            raise ValueError("target is for models with a pointer (network.pointer)")
        if target is not None and self.temperature is not None and not self.training:
            raise ValueError("target must be None for a calibrated model that is not training")
        own, memory = hx if self.pointer is not None and hx is not None else (hx, None)
        embedded = self._embedded(tokens)
        out, state, depth, cost = run_body(self.body, embedded, own, max_depth=max_depth, with_cost=with_cost)
        logits = self._logits(out)
        if self.pointer is not None:
            with torch.autocast(out.device.type, enabled=False):
                whole = out.to(self.bias.dtype)
                # As much is hidden from it as from the vocabulary: relied on too much, a pointer overfits.
                asking = self._dropped(whole) if self.training else whole
                logits, memory = self.pointer(whole, asking, tokens, logits, memory, target)
            state = (state, memory)
        if self.temperature is not None and not self.training:
            logits = logits / self.temperature
            logits = logits if self.pointer is None else logits.log_softmax(-1)  # a pointer gives log-probabilities
        return Outcome(logits, state, depth, cost)

    def _embedded(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.embedding(tokens)  # (B, T, E)
        if self.training and self.network.word_dropout:
            x = x * word_mask(x.new_ones(tokens.shape), tokens, self.network.word_dropout)
        if self.training and self.by_step and self.network.input_dropout:
            x = F.dropout(x, self.network.input_dropout)
        return x

    def _logits(self, out: Tensor) -> Tensor:
        weight = self.embedding.weight if self.output is None else self.output
        if self.training:
            return F.linear(self._dropped(self._narrowed(out)), weight, self.bias)
        with torch.autocast(out.device.type, enabled=False):  # bfloat16 has two or three digits of a logit
            return F.linear(self._narrowed(out.to(weight.dtype)), weight, self.bias)

    def _narrowed(self, out: Tensor) -> Tensor:
        return out if self.narrowing is None else F.linear(out, self.narrowing)

    def _dropped(self, out: Tensor) -> Tensor:
        if not self.network.output_dropout:
            return out
        ones = torch.ones_like(out if self.by_step else out[:, :1])  # (B, T or 1, E)
        return out * F.dropout(ones, self.network.output_dropout)


def word_mask(ones: Tensor, tokens: Tensor, dropped: float) -> Tensor:
    """Inverted dropout of whole words, (B, T, 1) for `tokens` (B, T): a word that a sequence repeats is dropped or
    kept in all its places. `ones` (B, T) has the type and the device."""
    first = (tokens.unsqueeze(-1) == tokens.unsqueeze(-2)).int().argmax(-1)  # (B, T): where each word stands first
    return F.dropout(ones, dropped).gather(-1, first).unsqueeze(-1)


class PointerSentinel(nn.Module):
    """The pointer sentinel of Merity et al. (2016), by which a model can also point at a word it has just read:
    `p(w) = g p_vocab(w) + Σ_{i: w_i = w} a_i` over the last `window` words, the present one among them, with
    `[a; g] = softmax([q · h_i; q · s])`, `q = tanh(W h + b)`, and a learned sentinel s, whose share g is left to
    the vocabulary. It is trained by the cross-entropy of p alone."""

    def __init__(self, hidden_size: int, window: int, bound: float) -> None:
        super().__init__()
        self.window = window
        self.query = nn.Linear(hidden_size, hidden_size)
        self.sentinel = nn.Parameter(torch.empty(hidden_size))
        fill_uniform(bound, self.query.weight, self.query.bias, self.sentinel)

    def forward(
        self,
        out: Tensor,
        asking: Tensor,
        tokens: Tensor,
        logits: Tensor,
        memory: tuple[Tensor, Tensor] | None,
        target: Tensor | None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Log-probabilities, (B, T, V), for outputs (B, T, H) at `tokens` (B, T) and queries made from `asking`,
        (B, T, H); and what to point at next: the last outputs (B, L, H) and their words (B, L), −1 where there was
        none yet. With a `target`, (B, T), they are of the target alone, (B, T), which is faster."""
        outputs, words = self._nothing(out) if memory is None else memory
        keys = torch.cat([outputs.to(out.dtype), out], 1)  # (B, L + T, H)
        words = torch.cat([words, tokens], 1)  # (B, L + T)
        queries = torch.tanh(self.query(asking))  # (B, T, H)
        sentinels = self.sentinel.to(out.dtype).expand(out.size(0), 1, -1)
        scores = queries @ torch.cat([keys, sentinels], 1).transpose(1, 2)
        shares = at_least_float32(scores).masked_fill(~self._in_sight(words, out.size(1)), -torch.inf).softmax(-1)
        pointed, left = shares[..., :-1], shares[..., -1:]  # (B, T, L + T), (B, T, 1)
        memory = keys[:, -self.window :], words[:, -self.window :]
        logits = at_least_float32(logits)
        if target is None:
            places = words.clamp(min=0).unsqueeze(1).expand_as(pointed)
            return _log((left * logits.softmax(-1)).scatter_add(-1, places, pointed)), memory
        left, wanted = left.squeeze(-1), target.unsqueeze(-1)
        found = (pointed * (words.unsqueeze(1) == wanted)).sum(-1)  # (B, T)
        vocabulary = logits.log_softmax(-1).gather(-1, wanted).squeeze(-1).exp()
        return _log(left * vocabulary + found), memory

    def _nothing(self, out: Tensor) -> tuple[Tensor, Tensor]:
        words = out.new_full((out.size(0), self.window), -1, dtype=torch.int64)
        return out.new_zeros(*words.shape, out.size(-1)), words

    def _in_sight(self, words: Tensor, steps: int) -> Tensor:
        """What each step may point at, (B, T, L + T + 1): the window up to itself, and the sentinel."""
        at = torch.arange(words.size(1), device=words.device)
        now = torch.arange(steps, device=words.device)[:, None] + self.window  # where each step's own word is
        window = (at <= now) & (at > now - self.window)  # (T, L + T)
        seen = window & (words >= 0).unsqueeze(1)  # (B, T, L + T)
        return torch.cat([seen, torch.ones_like(seen[..., :1])], -1)


def _log(chance: Tensor) -> Tensor:
    return chance.clamp(min=torch.finfo(chance.dtype).tiny).log()
