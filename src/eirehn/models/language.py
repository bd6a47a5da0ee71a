"""Language models, which predict the next token of a text."""

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
from .hub import Pretrained

if TYPE_CHECKING:
    from ..data.vocabulary import Vocabulary


class LanguageModel(Pretrained, nn.Module):
    """A recurrent language model: tokens in, the logits of the next token out.

    One matrix embeds tokens and, with a bias, gives the logits; if `network.embedding_size` is not the size of the
    state, a linear map brings states to that size before. `eirehn.load` returns such models.

    Dropout is that of Gal and Ghahramani (2016), with the same words, inputs, states and outputs dropped at all
    steps of a sequence. RNN, GRU and LSTM have that of Zaremba et al. (2014), drawn anew at every step and never on
    states; so have highway networks with `network.step_masks`, except on states.

    If `network.calibrated`, logits are divided by `temperature` in evaluation mode.

    Args:
        network: the recurrent layers, embedding and dropout.
        vocabulary: the number of tokens.

    Attributes:
        tokens: the `Vocabulary` that maps tokens to indices; None for a model that is not from `eirehn.load`.
        results: what is known of the training: seed, recipe, metric, its value on test data, depth; None for a
            model that is not from `eirehn.load`.

    Shape:
        - tokens: `(B, T)`, int64.
        - logits: `(B, T, vocabulary)`.

    Examples:
        >>> from eirehn.models import LanguageModel, LanguageNetwork
        >>> model = LanguageModel(LanguageNetwork("EIREHN", hidden_size=20), vocabulary=50)
        >>> model(torch.zeros(8, 35, dtype=torch.int64)).shape
        torch.Size([8, 35, 50])
    """

    tokens: Vocabulary | None = None

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
        # A parameter, so that it is saved with the others, but without a gradient.
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
        """Predicts the next token after each token.

        Args:
            tokens: indices of tokens.
            hx: state before the first of them, from the `run` on the text before. Default: zeros.
            max_depth: most inner steps of a time step in this call. Default: the network's own.

        Returns:
            The logits of the next token; log-probabilities if the model has a pointer.

        Shape:
            - tokens: `(B, T)`, int64.
            - logits: `(B, T, vocabulary)`.

        Examples:
            >>> from eirehn.models import LanguageModel, LanguageNetwork
            >>> model = LanguageModel(LanguageNetwork("SREHN"), vocabulary=50).eval()
            >>> model(torch.zeros(1, 7, dtype=torch.int64), max_depth=2).softmax(-1).shape
            torch.Size([1, 7, 50])
        """
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
        """Predicts the next token after each token, and returns the final state and the depth, too.

        Args:
            tokens: indices of tokens.
            hx: state before the first of them: the `state` of the outcome for the text before. Default: zeros.
            target: for a model with a pointer, the next tokens: the prediction is then their log-probabilities
                alone, which is faster. Default: none.
            max_depth: most inner steps of a time step in this call. Default: the network's own.
            with_cost: whether to return the differentiable cost of depth, too. Default: `False`.

        Returns:
            An `Outcome`.

        Raises:
            ValueError: if there is a `target` and the model does not have a pointer, or is calibrated and in
                evaluation mode.

        Shape:
            - tokens and target: `(B, T)`, int64.
            - prediction: `(B, T, vocabulary)`, or `(B, T)` with a target.
            - depth and cost: `(L, B, T)`.

        Examples:
            >>> from eirehn.models import LanguageModel, LanguageNetwork
            >>> model = LanguageModel(LanguageNetwork("SREHN"), vocabulary=50).eval()
            >>> first, second = torch.randint(50, (1, 20)).split(10, 1)
            >>> outcome = model.run(second, model.run(first).state)
            >>> outcome.prediction.shape, outcome.depth.shape
            (torch.Size([1, 10, 50]), torch.Size([1, 1, 10]))
        """
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
                # With the same dropout as the logits: a pointer that is relied on too much overfits.
                asking = self._dropped(whole) if self.training else whole
                logits, memory = self.pointer(whole, asking, tokens, logits, memory, target)
            state = (state, memory)
        if self.temperature is not None and not self.training:
            logits = logits / self.temperature
            logits = logits if self.pointer is None else logits.log_softmax(-1)  # as those of a pointer
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
    """The mask of a dropout of whole words, (B, T, 1) for `tokens` (B, T): a word is dropped or kept at all its
    places in a sequence. `ones` (B, T) has the dtype and device of the mask."""
    first = (tokens.unsqueeze(-1) == tokens.unsqueeze(-2)).int().argmax(-1)  # (B, T): the first place of each word
    return F.dropout(ones, dropped).gather(-1, first).unsqueeze(-1)


class PointerSentinel(nn.Module):
    """The pointer sentinel of Merity et al. (2016), which lets a model point at a word it has just read:
    `p(w) = g p_vocab(w) + Σ_{i: w_i = w} a_i` over the last `window` words, the present one included, with
    `[a; g] = softmax([q · h_i; q · s])` and `q = tanh(W h + b)`. The share g of the learned sentinel s goes to the
    vocabulary. It is trained by the cross-entropy of p alone."""

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
        """Log-probabilities (B, T, V) for outputs (B, T, H) at `tokens` (B, T) and queries made from `asking` (B,
        T, H); and the memory of the next call: the last outputs (B, L, H) and their words (B, L), −1 before the
        first word. With a `target` (B, T) log-probabilities of the target alone, (B, T), which is faster."""
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
        """Where each step may point, (B, T, L + T + 1): at the window up to itself, and at the sentinel."""
        at = torch.arange(words.size(1), device=words.device)
        now = torch.arange(steps, device=words.device)[:, None] + self.window  # the place of each step's own word
        window = (at <= now) & (at > now - self.window)  # (T, L + T)
        seen = window & (words >= 0).unsqueeze(1)  # (B, T, L + T)
        return torch.cat([seen, torch.ones_like(seen[..., :1])], -1)


def _log(chance: Tensor) -> Tensor:
    return chance.clamp(min=torch.finfo(chance.dtype).tiny).log()
