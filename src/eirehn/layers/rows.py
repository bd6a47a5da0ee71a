"""Converts the inputs of a layer to rows in time order, and the results back to the form of the input."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .._internal.checks import check_not_exporting


class Rows(NamedTuple):
    """A batch of sequences in the order of a `PackedSequence`: step after step, the longest sequences first."""

    data: Tensor  # (N, X), N = sum(batch_sizes); (T, B, X) without
    batch_sizes: list[int] | None  # how many samples are still running at each step; None while exporting
    batch: int
    batched: bool
    batch_first: bool
    packed: PackedSequence | None

    @classmethod
    def of(cls, input: Tensor | PackedSequence, *, batch_first: bool) -> Rows:
        if isinstance(input, PackedSequence):
            check_not_exporting()
            sizes = input.batch_sizes.tolist()
            check_packed(input.data, sizes)
            return cls(input.data, sizes, sizes[0], True, batch_first, input)
        batched = input.dim() == 3
        data = input if batched else input.unsqueeze(1)  # (T, B, X)
        if batched and batch_first:
            data = data.transpose(0, 1)
        if data.size(0) == 0:
            raise ValueError("Expected sequence length to be larger than 0 in RNN")
        steps, batch = data.size(0), data.size(1)
        if torch.compiler.is_exporting():
            return cls(data, None, batch, batched, batch_first, None)
        return cls(data.flatten(0, 1), [batch] * steps, batch, batched, batch_first, None)

    def states_in(self, hx: Tensor) -> Tensor:
        """The caller's states (L·D, B, S), with samples in the order of the rows."""
        hx = hx if self.batched else hx.unsqueeze(1)
        if self.packed is None or self.packed.sorted_indices is None:
            return hx
        return hx.index_select(1, self.packed.sorted_indices)

    def states_out(self, states: Tensor) -> Tensor:
        states = self._unsort(states, 1)
        return states if self.batched else states.squeeze(1)

    def outputs(self, out: Tensor) -> Tensor | PackedSequence:
        """(N, H) in the form of the input."""
        if self.packed is not None:
            return PackedSequence(out, *self.packed[1:])
        if self.batch_sizes is not None:
            out = out.reshape(len(self.batch_sizes), self.batch, out.size(-1))  # (T, B, H)
        if not self.batched:
            return out.squeeze(1)
        return out.transpose(0, 1) if self.batch_first else out

    def per_step(self, values: Tensor) -> Tensor:
        """(L·D, T, B) with the samples and axes in the caller's order."""
        values = self._unsort(values, 2)
        if not self.batched:
            return values.squeeze(2)
        return values.transpose(1, 2) if self.batch_first else values

    def _unsort(self, values: Tensor, dim: int) -> Tensor:
        if self.packed is None or self.packed.unsorted_indices is None:
            return values
        return values.index_select(dim, self.packed.unsorted_indices)


def check_packed(data: Tensor, batch_sizes: list[int]) -> None:
    if not batch_sizes:
        raise ValueError("Expected sequence length to be larger than 0 in RNN")
    falling = all(a >= b for a, b in pairwise(batch_sizes))
    if not falling or batch_sizes[-1] <= 0 or sum(batch_sizes) != data.size(0):
        raise ValueError(
            "PackedSequence: batch_sizes must be positive, not increasing and sum to the number of rows "
            f"({data.size(0)}); make it with torch.nn.utils.rnn.pack_padded_sequence or pack_sequence"
        )
