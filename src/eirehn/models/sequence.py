"""Numbers or a class for a sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from .._internal.checks import positive_int
from ..data.dataset import Scaling
from .body import Outcome, build_body, run_body
from .body import output_size as body_size
from .config import SequenceNetwork


class SequenceModel(nn.Module):
    """A network and a linear head, at every time step or, with `last`, once for a sequence, by `network.pooling`.

    >>> model = SequenceModel(SequenceNetwork("EIREHN", hidden_size=20), input_size=2, output_size=2)
    >>> model(torch.zeros(8, 20, 2)).shape
    torch.Size([8, 20, 2])
    """

    def __init__(
        self,
        network: SequenceNetwork,
        input_size: int,
        output_size: int,
        *,
        last: bool = False,
        scaling: Scaling | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.input_size = positive_int("input_size", input_size)
        self.output_size = positive_int("output_size", output_size)
        self.last = last
        self.scaling = scaling
        self.classes: tuple[Any, ...] = ()  # what the outputs of a classification stand for, where that is known
        self.body = build_body(network, input_size)
        self.head = nn.Linear(body_size(network), output_size)

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
        out, state, depth, cost = run_body(self.body, given, hx, max_depth=max_depth, with_cost=with_cost)
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
