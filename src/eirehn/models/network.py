"""The recurrent network of a model: which of the family, how large, how it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from torch.utils._pytree import tree_map

from ..cells import GRU, LSTM, RNN
from ..cells.base import default_bound, fill_uniform
from ..cells.lstm import OneBias
from ..cells.weight_update import RENAMED
from ..checks import boolean, positive_int, probability
from ..layers import ACT, EIREHN, RHN, SREHN, SRHN

LAYERS: dict[str, Callable[..., Any]] = {
    "RNN": RNN,
    "GRU": GRU,
    "LSTM": LSTM,
    "RHN": RHN,
    "SRHN": SRHN,
    "SREHN": SREHN,
    "EIREHN": EIREHN,
    "ACT": ACT,
}
DEPTH_NAMES = {"RHN": "depth", "SRHN": "depth", "SREHN": "max_depth", "EIREHN": "max_depth", "ACT": "max_depth"}
SHALLOW = ("RNN", "GRU", "LSTM")
FIXED = ("RHN", "SRHN")
ELASTIC = ("SREHN", "EIREHN")
POOLINGS = ("last", "mean")


class Outcome(NamedTuple):
    prediction: Tensor
    state: Any  # as the network's h_n
    depth: Tensor  # (layers · directions, B, T): inner steps taken
    cost: Tensor | None  # of the same shape


@dataclass(frozen=True)
class Network:
    """The recurrent network."""

    kind: str = "EIREHN"
    """RNN, GRU, LSTM, RHN, SRHN, SREHN, EIREHN or ACT."""
    hidden_size: int = 20
    """Units of a layer."""
    num_layers: int = 1
    """Layers, one above the other."""
    max_depth: int = 6
    """Inner steps of a time step: all of them for RHN and SRHN, at most for SREHN, EIREHN and ACT."""
    weight_update: str = "bounded"
    """How EIREHN changes its weights with depth: bounded, recursive, paper, additive, scaling, outer or none."""
    hyper_size: int | None = None
    """Units of EIREHN's hypernetwork; half of hidden_size where null."""
    dropout: float = 0.0
    """Dropout between layers."""
    input_dropout: float = 0.0
    """Dropout on what a highway network reads, one mask per sequence; in a language model of RNNs or LSTMs, or with
    step_masks, on the embedded words, anew at every step."""
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
    """Language models: dropout on what tells words apart and on what a pointer asks by, one mask each per sequence;
    of RNNs and LSTMs, or with step_masks, one per step."""
    step_masks: bool = False
    """Language models: drop inputs and outputs of a highway network anew at every step, as RNNs and LSTMs do; what
    layers above the first read then has `dropout` alone."""
    embedding_size: int | None = None
    """Language models: numbers that stand for a word; hidden_size where null. Where it is another, a linear
    map brings outputs to that size."""
    tied: bool = True
    """Language models: tell words apart by the matrix that embeds them."""
    pointer: int = 0
    """Language models: also point at one of so many last words (Merity et al. 2016); 0: not."""
    calibrated: bool = False
    """Language models: divide all logits by a temperature when not training. A training brings it, from epoch to
    epoch, to where validation data are expected best."""
    start: Mapping[str, float] = field(default_factory=dict)
    """Initial values by name, as the cell's reset_parameters takes them: gate_bias, alpha, decay_bias, …;
    weight_bound is for all networks, and in a language model for the embedding, the map to its size, the pointer
    and the last bias too."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "weight_update", RENAMED.get(self.weight_update, self.weight_update))
        if self.kind not in LAYERS:
            raise ValueError(f"kind must be one of {', '.join(LAYERS)}, got {self.kind!r}")
        for name in ("hidden_size", "num_layers", "max_depth"):
            positive_int(name, getattr(self, name))
        if self.pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}, got {self.pooling!r}")
        for name in ("word_dropout", "output_dropout"):
            probability(name, getattr(self, name))
        if self.embedding_size is not None:
            positive_int("embedding_size", self.embedding_size)
        boolean("tied", self.tied)
        boolean("step_masks", self.step_masks)
        boolean("calibrated", self.calibrated)
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
        if isinstance(layer, OneBias):
            layer.layer_by_layer = True
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
