"""Whole models: a recurrent network of the family and a head for regression, classification or language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_map

from .baselines import LSTM, RNN
from .cells.base import default_bound, fill_uniform
from .checks import boolean, positive_int, probability
from .layers import ACT, EIREHN, RHN, SREHN, SRHN
from .pointer import PointerSentinel

if TYPE_CHECKING:
    from .data.vocabulary import Vocabulary

LAYERS: dict[str, Callable[..., Any]] = {
    "RNN": RNN,
    "LSTM": LSTM,
    "RHN": RHN,
    "SRHN": SRHN,
    "SREHN": SREHN,
    "EIREHN": EIREHN,
    "ACT": ACT,
}
DEPTH_NAMES = {"RHN": "depth", "SRHN": "depth", "SREHN": "max_depth", "EIREHN": "max_depth", "ACT": "max_depth"}
SHALLOW = ("RNN", "LSTM")
FIXED = ("RHN", "SRHN")
ELASTIC = ("SREHN", "EIREHN")
POOLINGS = ("last", "mean")


@dataclass(frozen=True)
class Network:
    """The recurrent network."""

    kind: str = "EIREHN"
    """RNN, LSTM, RHN, SRHN, SREHN, EIREHN or ACT."""
    hidden_size: int = 20
    """Units of a layer."""
    num_layers: int = 1
    """Layers, one above the other."""
    max_depth: int = 6
    """Inner steps of a time step: all of them for RHN and SRHN, at most for SREHN, EIREHN and ACT."""
    weight_update: str = "printed"
    """How EIREHN changes its weights with depth: printed, recursive, additive, scaling, outer or none."""
    hyper_size: int | None = None
    """Units of EIREHN's hypernetwork; half of hidden_size where null."""
    dropout: float = 0.0
    """Dropout between layers."""
    input_dropout: float = 0.0
    """Dropout on what a highway network reads, one mask per sequence; in a language model of RNNs or LSTMs on the
    embedded words, anew at every step."""
    hidden_dropout: float = 0.0
    """Dropout on the state inside a highway network's products, one mask per sequence."""
    bidirectional: bool = False
    """Read each sequence both ways."""
    shortcut: bool = False
    """Add a linear map of the input to the first layer's output."""
    pooling: str = "last"
    """What a class is told from: the last output of each direction, or the mean of all."""
    word_dropout: float = 0.0
    """Language models: dropout of whole words of a sequence, wherever they stand in it."""
    output_dropout: float = 0.0
    """Language models: dropout on what tells words apart, one mask per sequence; of RNNs and LSTMs one per step."""
    tied: bool = True
    """Language models: tell words apart by the matrix that embeds them."""
    pointer: int = 0
    """Language models: also point at one of so many last words (Merity et al. 2016); 0: not."""
    start: Mapping[str, float] = field(default_factory=dict)
    """Initial values by name, as the cell's reset_parameters takes them: gate_bias, alpha, decay_bias, …;
    weight_bound is for all networks, and in a language model for the embedding and the last bias too."""

    def __post_init__(self) -> None:
        if self.kind not in LAYERS:
            raise ValueError(f"kind must be one of {', '.join(LAYERS)}, got {self.kind!r}")
        for name in ("hidden_size", "num_layers", "max_depth"):
            positive_int(name, getattr(self, name))
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, got {self.pooling!r}")
        for name in ("word_dropout", "output_dropout"):
            probability(name, getattr(self, name))
        boolean("tied", self.tied)
        if self.pointer != 0:
            positive_int("pointer", self.pointer)
        if set(self.start) - {"weight_bound"} and self.kind not in FIXED + ELASTIC:
            raise ValueError(
                f"start names initial values of a highway network, {self.kind} takes weight_bound only"
            )

    @property
    def output_size(self) -> int:
        return self.hidden_size * (2 if self.bidirectional else 1)

    def build(self, input_size: int) -> Any:
        """The layers, batch first, with initial values drawn from torch's generator."""
        if not self.shortcut:
            return self._layers(input_size, self.num_layers)
        first = self._layers(input_size, 1)
        rest = self._layers(self.output_size, self.num_layers - 1) if self.num_layers > 1 else None
        return Shortcut(first, rest, nn.Linear(input_size, self.output_size), self.dropout)

    def _layers(self, input_size: int, count: int) -> Any:
        options: dict[str, Any] = {
            "batch_first": True,
            "bidirectional": self.bidirectional,
            "dropout": 0.0 if self.shortcut and count == 1 else self.dropout,
        }
        sizes = (input_size, self.hidden_size, count)
        if self.kind in FIXED + ELASTIC:
            options |= {"input_dropout": self.input_dropout, "hidden_dropout": self.hidden_dropout}
        elif self.input_dropout or self.hidden_dropout:
            raise ValueError(
                f"input_dropout and hidden_dropout belong to the highway networks: with {self.kind} both must be 0"
            )
        if self.kind in DEPTH_NAMES:
            options[DEPTH_NAMES[self.kind]] = self.max_depth
        if self.kind == "EIREHN":
            options |= {"hyper_size": self.hyper_size, "weight_update": self.weight_update}
        layer = LAYERS[self.kind](*sizes, **options)
        if self.start and self.kind not in FIXED + ELASTIC:
            fill_uniform(default_bound(self.start["weight_bound"], self.hidden_size), *layer.parameters())
        elif self.start:
            try:
                layer.reset_parameters(**self.start)
            except TypeError as error:
                raise ValueError(f"start: {self.kind} has no such initial value ({error})") from None
        return layer

    def run(
        self, layer: nn.Module, x: Tensor | PackedSequence, hx: Any, *, max_depth: int | None, with_cost: bool
    ) -> tuple[Any, Any, Tensor, Tensor | None]:
        """Output, final state, depths and, where asked for, their cost, of what `build` made."""
        if not isinstance(layer, Shortcut):
            return self._run(layer, x, hx, max_depth=max_depth, with_cost=with_cost)
        return layer.run(lambda part, y, h: self._run(part, y, h, max_depth=max_depth, with_cost=with_cost), x, hx)

    def _run(
        self, layer: nn.Module, x: Tensor | PackedSequence, hx: Any, *, max_depth: int | None, with_cost: bool
    ) -> tuple[Any, Any, Tensor, Tensor | None]:
        if self.kind not in SHALLOW:
            out, state, depth, *cost = layer(x, hx, max_depth=max_depth, return_depth=True, return_cost=with_cost)
            return out, state, depth, cost[0] if cost else None
        if max_depth is not None:
            raise ValueError(f"{self.kind} has no inner steps for max_depth to cap")
        out, state = layer(x, hx)
        h = state[0] if isinstance(state, tuple) else state
        depth = _one_step(out).expand(h.size(0), -1, -1)
        return out, state, depth, depth.to(h.dtype) if with_cost else None


def _one_step(out: Tensor | PackedSequence) -> Tensor:
    """The depth of a network without inner steps, (B, T): one, and none where a packed sequence has ended."""
    if isinstance(out, PackedSequence):
        ones = out._replace(data=torch.ones_like(out.data[:, 0], dtype=torch.int64))
        return pad_packed_sequence(ones, batch_first=True)[0]
    return torch.ones(out.shape[:-1], dtype=torch.int64, device=out.device)


class Shortcut(nn.Module):
    """Layers with a linear map of the input added to what the first of them puts out."""

    def __init__(self, first: nn.Module, rest: nn.Module | None, linear: nn.Linear, dropout: float) -> None:
        super().__init__()
        self.first, self.linear = first, linear
        self.rest = rest
        self.dropout = nn.Dropout(dropout)

    def run(
        self, run: Callable[..., Any], x: Tensor | PackedSequence, hx: Any
    ) -> tuple[Any, Any, Tensor, Tensor | None]:
        """As `Network.run`, with `run(layer, x, hx)` for each part."""
        own, above = (None, None) if hx is None else _cut(hx, _state_rows(self.first))
        out, state, depth, cost = run(self.first, x, own)
        out = _each(torch.add, out, _each(self.linear, x))
        if self.rest is None:
            return out, state, depth, cost
        out, upper, more, dearer = run(self.rest, _each(self.dropout, out), above)
        joined = tree_map(lambda one, other: torch.cat([one, other]), state, upper)
        return out, joined, torch.cat([depth, more]), None if cost is None else torch.cat([cost, dearer])


def _each(change: Callable[..., Tensor], *given: Any) -> Any:
    """`change` made to sequences, packed or not, step by step."""
    if not isinstance(given[0], PackedSequence):
        return change(*given)
    return given[0]._replace(data=change(*(each.data for each in given)))


def _state_rows(layer: Any) -> int:
    return 2 if layer.bidirectional else 1


def _cut(hx: Any, rows: int) -> tuple[Any, Any]:
    return tree_map(lambda part: part[:rows], hx), tree_map(lambda part: part[rows:], hx)


class Outcome(NamedTuple):
    prediction: Tensor
    state: Any  # as the network's h_n
    depth: Tensor  # (layers · directions, B, T): inner steps taken
    cost: Tensor | None  # of the same shape


@dataclass(frozen=True)
class Scaling:
    """From the units of a user's data to those a model was trained in, and back."""

    mean: tuple[float, ...]  # of each channel
    scale: tuple[float, ...]
    target_mean: tuple[float, ...] = (0.0,)  # of each output
    target_scale: tuple[float, ...] = (1.0,)

    def inputs(self, x: Tensor, like: Tensor) -> Tensor:
        # In double precision, as are the outputs: a small change of a large number is lost otherwise.
        return ((x.double() - _double(self.mean, x)) / _double(self.scale, x)).to(like.dtype)

    def outputs(self, prediction: Tensor) -> Tensor:
        scale, mean = (_double(each, prediction) for each in (self.target_scale, self.target_mean))
        return prediction.double() * scale + mean


def _double(values: tuple[float, ...], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=like.device)


class SequenceModel(nn.Module):
    """A network and a linear head, at every time step or, with `last`, once for a sequence, by `network.pooling`.

    >>> model = SequenceModel(Network("EIREHN", hidden_size=20), input_size=2, output_size=2)
    >>> model(torch.zeros(8, 20, 2)).shape
    torch.Size([8, 20, 2])
    """

    def __init__(
        self,
        network: Network,
        input_size: int,
        output_size: int,
        *,
        last: bool = False,
        scaling: Scaling | None = None,
    ) -> None:
        super().__init__()
        if network.word_dropout or network.output_dropout or not network.tied or network.pointer:
            raise ValueError("word_dropout, output_dropout, tied and pointer belong to language models")
        self.network = network
        self.input_size = positive_int("input_size", input_size)
        self.output_size = positive_int("output_size", output_size)
        self.last = last
        self.scaling = scaling
        self.classes: tuple[Any, ...] = ()  # what the outputs of a classification stand for, where that is known
        self.body = network.build(input_size)
        self.head = nn.Linear(network.output_size, output_size)

    def forward(
        self, x: Tensor, hx: Any = None, *, lengths: Tensor | None = None, max_depth: int | None = None
    ) -> Tensor:
        """Predictions (B, T, O), or (B, O) with `last`, for `x` (B, T, X).

        With `lengths` (B,) sequence b ends after `lengths[b]` steps and gives what it would give alone: the rest is
        not read, and predictions there mean nothing.
        """
        return self.run(x, hx, lengths=lengths, max_depth=max_depth).prediction

    def run(
        self,
        x: Tensor,
        hx: Any = None,
        *,
        lengths: Tensor | None = None,
        max_depth: int | None = None,
        with_cost: bool = False,
    ) -> Outcome:
        """As `forward`, and the final state, the depths taken and their differentiable cost."""
        if self.scaling is not None:
            x = self.scaling.inputs(x, self.head.weight)
        given = x if lengths is None else pack_padded_sequence(x, lengths.cpu(), True, enforce_sorted=False)
        options: dict[str, Any] = {"max_depth": max_depth, "with_cost": with_cost}
        out, state, depth, cost = self.network.run(self.body, given, hx, **options)
        if lengths is not None:  # packing stops at the longest
            out, _ = pad_packed_sequence(out, True, total_length=x.size(1))
            depth = _padded(depth, x.size(1))
            cost = None if cost is None else _padded(cost, x.size(1))
        prediction = self.head(self._pooled(out, lengths) if self.last else out)
        if self.scaling is not None:
            prediction = self.scaling.outputs(prediction)
        return Outcome(prediction, state, depth, cost)

    def _pooled(self, out: Tensor, lengths: Tensor | None) -> Tensor:
        """Of `out` (B, T, …) its mean over time, or what each direction puts out where it ends."""
        if self.network.pooling == "mean":  # packed sequences are followed by zeros
            return out.mean(1) if lengths is None else out.sum(1) / lengths.to(out.device)[:, None]
        if lengths is None:
            last = out[:, -1]
        else:
            last = out[torch.arange(out.size(0), device=out.device), lengths.to(out.device) - 1]
        if not self.network.bidirectional:
            return last
        return torch.cat([last.chunk(2, -1)[0], out[:, 0].chunk(2, -1)[1]], -1)


def _padded(values: Tensor, steps: int) -> Tensor:
    """(L, B, T) with zeros up to `steps`."""
    return nn.functional.pad(values, (0, steps - values.size(-1)))


class LanguageModel(nn.Module):
    """Tokens in, the logits of the next token out. One matrix embeds them and, with a bias, tells them apart.

    Dropout is that of Gal and Ghahramani (2016): a sequence has the same words, inputs, states and outputs dropped
    at all its steps. RNNs and LSTMs have it as in Zaremba et al. (2014), anew at every step and never on states.

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
        self.by_step = network.kind not in FIXED + ELASTIC
        body = replace(network, input_dropout=0.0) if self.by_step else network
        self.embedding = nn.Embedding(vocabulary, network.hidden_size)
        self.body = body.build(network.hidden_size)
        self.output = None if network.tied else nn.Parameter(torch.empty(vocabulary, network.hidden_size))
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        bound = network.start.get("weight_bound")
        self.pointer = (
            PointerSentinel(network.hidden_size, network.pointer, bound or 0.1) if network.pointer else None
        )
        fill_uniform(0.1 if bound is None else bound, self.embedding.weight)
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
        options: dict[str, Any] = {"max_depth": max_depth, "with_cost": with_cost}
        own, memory = hx if self.pointer is not None and hx is not None else (hx, None)
        out, state, depth, cost = self.network.run(self.body, self._embedded(tokens), own, **options)
        logits = self._logits(out)
        if self.pointer is not None:
            with torch.autocast(out.device.type, enabled=False):
                logits, memory = self.pointer(out.to(self.bias.dtype), tokens, logits, memory)
            state = (state, tuple(memory))  # a state is saved, and read back without pickle
        return Outcome(logits, state, depth, cost)

    def _embedded(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.embedding(tokens)  # (B, T, H)
        if self.training and self.network.word_dropout:
            x = x * word_mask(x.new_ones(tokens.shape), tokens, self.network.word_dropout)
        if self.training and self.by_step and self.network.input_dropout:
            x = F.dropout(x, self.network.input_dropout)
        return x

    def _logits(self, out: Tensor) -> Tensor:
        weight = self.embedding.weight if self.output is None else self.output
        if self.training:
            return F.linear(self._dropped(out), weight, self.bias)
        with torch.autocast(out.device.type, enabled=False):  # bfloat16 has two or three digits of a logit
            return F.linear(out.to(weight.dtype), weight, self.bias)

    def _dropped(self, out: Tensor) -> Tensor:
        dropped = self.network.output_dropout
        if not dropped:
            return out
        return out * F.dropout(torch.ones_like(out if self.by_step else out[:, :1]), dropped)  # (B, T or 1, H)


def word_mask(ones: Tensor, tokens: Tensor, dropped: float) -> Tensor:
    """Inverted dropout of whole words, (B, T, 1) for `tokens` (B, T): a word that a sequence repeats is dropped or
    kept in all its places. `ones` (B, T) has the type and the device."""
    first = (tokens.unsqueeze(-1) == tokens.unsqueeze(-2)).int().argmax(-1)  # (B, T): where each word stands first
    return F.dropout(ones, dropped).gather(-1, first).unsqueeze(-1)
