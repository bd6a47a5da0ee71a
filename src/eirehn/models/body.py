"""The recurrent layers of a model, as its config describes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from torch.utils._pytree import tree_map

from ..cells import GRU, LSTM, RNN
from ..cells.base import default_bound, fill_uniform
from ..cells.lstm import OneBias
from ..layers import ACT, EIREHN, RHN, SREHN, SRHN
from .config import ELASTIC, FIXED, SHALLOW, Network, SequenceNetwork

LAYERS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (RNN, GRU, LSTM, RHN, SRHN, SREHN, EIREHN, ACT)
}


class Outcome(NamedTuple):
    """The result of a model for a batch, which its `run` returns.

    Examples:
        >>> from eirehn.models import SequenceModel, SequenceNetwork
        >>> model = SequenceModel(SequenceNetwork("EIREHN", max_depth=4), input_size=2, output_size=3)
        >>> outcome = model.run(torch.zeros(8, 20, 2))
        >>> outcome.prediction.shape, outcome.depth.shape, outcome.cost
        (torch.Size([8, 20, 3]), torch.Size([1, 8, 20]), None)
    """

    prediction: Tensor
    """What the model's `forward` returns."""
    state: Any
    """The final state of the recurrent layers, as their `h_n`."""
    depth: Tensor
    """Inner steps taken, int64 of shape `(L·D, B, T)`."""
    cost: Tensor | None
    """The differentiable cost of depth, `(L·D, B, T)`; None if not asked for."""


class Result(NamedTuple):
    """The result of recurrent layers for a batch."""

    out: Any  # (B, T, H · directions), or packed
    state: Any
    depth: Tensor  # (layers · directions, B, T)
    cost: Tensor | None


def build_body(network: Network, input_size: int) -> Any:
    """The layers, batch first, initialised by torch's generator."""
    if not isinstance(network, SequenceNetwork) or not network.shortcut:
        return _layers(network, input_size, network.num_layers, network.dropout)
    size, above = output_size(network), network.num_layers - 1
    first = _layers(network, input_size, 1, 0.0)
    rest = _layers(network, size, above, network.dropout if above > 1 else 0.0) if above else None
    return Shortcut(first, rest, nn.Linear(input_size, size), network.dropout)


def output_size(network: Network) -> int:
    return network.hidden_size * (2 if _both_ways(network) else 1)


def _both_ways(network: Network) -> bool:
    return isinstance(network, SequenceNetwork) and network.bidirectional


def _layers(network: Network, input_size: int, count: int, dropout: float) -> Any:
    options: dict[str, Any] = {"batch_first": True, "bidirectional": _both_ways(network), "dropout": dropout}
    highway = network.kind in FIXED + ELASTIC
    if highway:
        options |= {"input_dropout": network.input_dropout, "hidden_dropout": network.hidden_dropout}
    elif network.input_dropout or network.hidden_dropout:
        raise ValueError(
            f"input_dropout and hidden_dropout belong to the highway networks: with {network.kind} both must be 0"
        )
    if network.kind not in SHALLOW:
        options["max_depth"] = network.max_depth
    if network.kind == "EIREHN":
        options |= {"hyper_size": network.hyper_size, "weight_update": network.weight_update}
    layer = LAYERS[network.kind](input_size, network.hidden_size, count, **options)
    if isinstance(layer, OneBias):
        layer.layer_by_layer = True
    if network.start and not highway:
        fill_uniform(default_bound(network.start["weight_bound"], network.hidden_size), *layer.parameters())
    elif network.start:
        try:
            layer.reset_parameters(**network.start)
        except TypeError as error:
            raise ValueError(f"start: {network.kind} has no such initial value ({error})") from None
    return layer


def run_body(
    layer: nn.Module, x: Tensor | PackedSequence, hx: Any = None, *, max_depth: int | None, with_cost: bool
) -> Result:
    """The result of layers made by `build_body`; with `with_cost` also the cost of depth."""
    if isinstance(layer, Shortcut):
        return layer(x, hx, max_depth=max_depth, with_cost=with_cost)  # type: ignore[no-any-return]
    if not isinstance(layer, OneBias):
        out, state, depth, *cost = layer(x, hx, max_depth=max_depth, return_depth=True, return_cost=with_cost)
        return Result(out, state, depth, cost[0] if cost else None)
    if max_depth is not None:
        raise ValueError(f"{type(layer).__name__} has no inner steps for max_depth to cap")
    out, state = layer(x, hx)
    h = state[0] if isinstance(state, tuple) else state
    depth = _one_step(out).expand(h.size(0), -1, -1)
    return Result(out, state, depth, depth.to(h.dtype) if with_cost else None)


def _one_step(out: Tensor | PackedSequence) -> Tensor:
    """The depth of a network without inner steps, (B, T): 1, and 0 where a packed sequence has ended."""
    if isinstance(out, PackedSequence):
        ones = out._replace(data=torch.ones_like(out.data[:, 0], dtype=torch.int64))
        return pad_packed_sequence(ones, batch_first=True)[0]
    return torch.ones(out.shape[:-1], dtype=torch.int64, device=out.device)


class Shortcut(nn.Module):
    """Layers with a linear map of the input added to the output of the first."""

    def __init__(self, first: nn.Module, rest: nn.Module | None, linear: nn.Linear, dropout: float) -> None:
        super().__init__()
        self.first, self.linear, self.rest = first, linear, rest
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor | PackedSequence, hx: Any = None, **options: Any) -> Result:
        """As `run_body`."""
        rows = 2 if self.first.bidirectional else 1
        parts = slice(rows), slice(rows, None)
        own, above = (None if hx is None else tree_map(lambda part, at=at: part[at], hx) for at in parts)
        first = run_body(self.first, x, own, **options)
        out = _each(torch.add, first.out, _each(self.linear, x))
        if self.rest is None:
            return first._replace(out=out)
        rest = run_body(self.rest, _each(self.dropout, out), above, **options)
        state = tree_map(lambda one, other: torch.cat([one, other]), first.state, rest.state)
        cost = None if first.cost is None or rest.cost is None else torch.cat([first.cost, rest.cost])
        return Result(rest.out, state, torch.cat([first.depth, rest.depth]), cost)


def _each(change: Callable[..., Tensor], *given: Any) -> Any:
    """`change` applied to sequences, packed or not, at every step."""
    if not isinstance(given[0], PackedSequence):
        return change(*given)
    return given[0]._replace(data=change(*(each.data for each in given)))
