"""What comes next in a text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..cells.base import at_least_float32, default_bound, fill_uniform
from ..checks import positive_int
from ..gating import GatedMap
from ..mixture import MixtureOfSoftmaxes
from ..pointer import PointerSentinel
from .network import ELASTIC, FIXED, Network, Outcome

if TYPE_CHECKING:
    from ..data.vocabulary import Vocabulary


class LanguageModel(nn.Module):
    """Tokens in, the logits of the next token out. One matrix embeds them and, with a bias, tells them apart; where
    `network.embedding_size` is not that of the state, another maps states to what this one takes; with
    `network.gated_output` a map with a gate does, whatever the size.

    Dropout is that of Gal and Ghahramani (2016): a sequence has the same words, inputs, states and outputs dropped
    at all its steps. RNNs and LSTMs have it as in Zaremba et al. (2014), anew at every step and never on states;
    with `network.step_masks` highway networks, too, but for their states.

    With `network.calibrated` its logits are divided by `temperature`, 1 until it is set, when it is not training.

    >>> model = LanguageModel(Network("EIREHN", hidden_size=20), vocabulary=50)
    >>> model(torch.zeros(8, 35, dtype=torch.int64)).shape
    torch.Size([8, 35, 50])
    """

    tokens: Vocabulary | None = None  # what the numbers stand for, where `eirehn.load` found it

    def __init__(self, network: Network, vocabulary: int) -> None:
        super().__init__()
        if network.bidirectional:
            raise ValueError("a language model reads one way: network.bidirectional must be false")
        self.network = network
        self.vocabulary = positive_int("vocabulary", vocabulary)
        self.by_step = network.step_masks or network.kind not in FIXED + ELASTIC
        body = replace(network, input_dropout=0.0) if self.by_step else network
        size, hidden = network.embedding_size or network.hidden_size, network.hidden_size
        self.embedding = nn.Embedding(vocabulary, size)
        self.body = body.build(size)
        mixed = network.mixture > 1
        as_it_is = mixed or network.gated_output or size == hidden
        self.narrowing = None if as_it_is else nn.Parameter(torch.empty(size, hidden))
        self.output = None if network.tied else nn.Parameter(torch.empty(vocabulary, size))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        # A number that no gradient moves; a parameter, so that it is kept where the others are.
        self.temperature = nn.Parameter(torch.ones(()), requires_grad=False) if network.calibrated else None
        bound = network.start.get("weight_bound")
        self.pointer = PointerSentinel(hidden, network.pointer, bound or 0.1) if network.pointer else None
        self.mixture = (
            MixtureOfSoftmaxes(hidden, size, network.mixture, default_bound(bound, hidden)) if mixed else None
        )
        self.gated = GatedMap(hidden, size, default_bound(bound, hidden)) if network.gated_output else None
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
        self, tokens: Tensor, hx: Any = None, *, max_depth: int | None = None, with_cost: bool = False
    ) -> Outcome:
        """As `forward`, and the final state, which the next call takes as `hx` to read on."""
        return self._run(tokens, hx, None, max_depth, with_cost)[0]

    def run_watched(
        self,
        tokens: Tensor,
        hx: Any = None,
        target: Tensor | None = None,
        *,
        max_depth: int | None = None,
        with_cost: bool = False,
        margin: float = 0.0,
    ) -> tuple[Outcome, Tensor, Tensor | None]:
        """As `run`, and what the network put out, (B, T, H). Of a model with a pointer or a mixture, or with a
        `margin`, where there is a `target`, (B, T), the prediction is the logarithm of what it gives that alone,
        (B, T), and there is the loss that a pointer has for it, of that shape. For a `margin` see `with_margin`."""
        if margin and (self.by_target or target is None):
            raise ValueError("margin is of a target, for models without a pointer or a mixture")
        if target is not None and not (self.by_target or margin):
            raise ValueError(
                "this model has no pointer (network.pointer is 0) and no mixture (network.mixture is 1)"
            )
        if target is not None and self.temperature is not None and not self.training:
            raise ValueError("target must be None for a calibrated model that is not training")
        return self._run(tokens, hx, target, max_depth, with_cost, margin)

    @property
    def by_target(self) -> bool:
        """Whether it can tell what it gives one word for less than what it gives all."""
        return self.pointer is not None or self.mixture is not None

    def _run(
        self,
        tokens: Tensor,
        hx: Any,
        target: Tensor | None,
        max_depth: int | None,
        with_cost: bool,
        margin: float = 0.0,
    ) -> tuple[Outcome, Tensor, Tensor | None]:
        options: dict[str, Any] = {"max_depth": max_depth, "with_cost": with_cost}
        own, memory = hx if self.pointer is not None and hx is not None else (hx, None)
        out, state, depth, cost = self.network.run(self.body, self._embedded(tokens), own, **options)
        logits, loss = self._logits(out, target if self.pointer is None else None, margin), None
        if self.pointer is not None:
            with torch.autocast(out.device.type, enabled=False):
                whole = out.to(self.bias.dtype)
                # As much is hidden from it as from the vocabulary, or it is relied on too much and learns by heart.
                asking = self._dropped(whole, self.network.output_dropout) if self.training else whole
                logits, memory, loss = self.pointer(whole, tokens, logits, memory, target, asking=asking)
            state = (state, tuple(memory))  # a state is saved, and read back without pickle
        if self.temperature is not None and not self.training:
            logits = logits / self.temperature
            logits = logits.log_softmax(-1) if self.by_target else logits  # theirs are logarithms of chances
        return Outcome(logits, state, depth, cost), out, loss

    def _embedded(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.embedding(tokens)  # (B, T, E)
        if self.training and self.network.word_dropout:
            x = x * word_mask(x.new_ones(tokens.shape), tokens, self.network.word_dropout)
        if self.training and self.by_step and self.network.input_dropout:
            x = F.dropout(x, self.network.input_dropout)
        return x

    def _logits(self, out: Tensor, target: Tensor | None, margin: float) -> Tensor:
        weight = self.embedding.weight if self.output is None else self.output
        if self.training:
            out = self._dropped(self._narrowed(out), self.network.output_dropout)
            return self._told_apart(out, weight, target, margin)
        with torch.autocast(out.device.type, enabled=False):  # bfloat16 has two or three digits of a logit
            return self._told_apart(self._narrowed(out.to(weight.dtype)), weight, target, margin)

    def _told_apart(self, out: Tensor, weight: Tensor, target: Tensor | None, margin: float) -> Tensor:
        if self.mixture is None:
            logits = F.linear(out, weight, self.bias)
            return logits if target is None else with_margin(logits, out, weight, target, margin)
        drop = self._drop_latents if self.training else None
        chances: Tensor = self.mixture(out, weight, self.bias, target, drop=drop)
        return chances

    def _narrowed(self, out: Tensor) -> Tensor:
        if self.gated is not None:
            mapped: Tensor = self.gated(self._dropped(out, self.network.gated_dropout if self.training else 0.0))
            return mapped
        return out if self.narrowing is None else F.linear(out, self.narrowing)

    def _drop_latents(self, latents: Tensor) -> Tensor:
        return self._dropped(latents, self.network.mixture_dropout)

    def _dropped(self, out: Tensor, dropped: float) -> Tensor:
        if not dropped:
            return out
        return out * F.dropout(torch.ones_like(out if self.by_step else out[:, :1]), dropped)  # (B, T or 1, E)


def with_margin(logits: Tensor, out: Tensor, weight: Tensor, target: Tensor, margin: float) -> Tensor:
    """Logarithms of the chance of `target`, (B, T), at its worst, if the row w of `weight` that tells it apart may
    be moved by `margin` times its own length: away from the output h, so that its logit is less by
    `margin · ‖w‖ · ‖h‖` (Wang et al. 2019, "Improving Neural Language Modeling via Adversarial Training")."""
    rows = F.embedding(target, weight)  # (B, T, E)
    less = margin * at_least_float32(rows).norm(dim=-1) * at_least_float32(out).norm(dim=-1)
    worst = at_least_float32(logits).scatter_add(-1, target.unsqueeze(-1), -less.unsqueeze(-1))
    return -F.cross_entropy(worst.flatten(0, -2), target.flatten(), reduction="none").view(target.shape)


def word_mask(ones: Tensor, tokens: Tensor, dropped: float) -> Tensor:
    """Inverted dropout of whole words, (B, T, 1) for `tokens` (B, T): a word that a sequence repeats is dropped or
    kept in all its places. `ones` (B, T) has the type and the device."""
    first = (tokens.unsqueeze(-1) == tokens.unsqueeze(-2)).int().argmax(-1)  # (B, T): where each word stands first
    return F.dropout(ones, dropped).gather(-1, first).unsqueeze(-1)
