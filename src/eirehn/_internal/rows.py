"""Converts the inputs of a layer to rows in time order, and the results back to the form of the input."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .checks import check_not_exporting
from .episodes import Episodes, check_reset, cleared


class Rows(NamedTuple):
    """A batch of sequences in the order of a `PackedSequence`: step after step, the longest sequences first."""

    data: Tensor  # (N, X), N = sum(batch_sizes); (T, B, X) without
    batch_sizes: list[int] | None  # how many samples are still running at each step; None while exporting
    steps: int  # T of the input
    batch: int  # B of the input
    directions: int
    batched: bool
    batch_first: bool
    packed: PackedSequence | None
    first_reset: Tensor | None  # (B,): resets at the first time step
    episodes: Episodes | None  # the samples of the rows, if there are resets at later time steps

    @classmethod
    def of(
        cls,
        input: Tensor | PackedSequence,
        *,
        batch_first: bool,
        bidirectional: bool,
        reset: Tensor | None = None,
    ) -> Rows:
        directions = 2 if bidirectional else 1
        if reset is not None:
            check_reset(reset, input)
        if isinstance(input, PackedSequence):
            check_not_exporting()
            lengths = input.batch_sizes.tolist()
            check_packed(input.data, lengths)
            steps, batch = len(lengths), lengths[0]
            return cls(input.data, lengths, steps, batch, directions, True, batch_first, input, None, None)
        batched = input.dim() == 3
        swapped = batched and batch_first
        data = input if batched else input.unsqueeze(1)  # (T, B, X)
        if swapped:
            data = data.transpose(0, 1)
        steps, batch = data.size(0), data.size(1)
        if steps == 0:
            raise ValueError("Expected sequence length to be larger than 0 in RNN")
        exporting = torch.compiler.is_exporting()  # then T may be a symbol
        rows, sizes = (data, None) if exporting else (data.flatten(0, 1), [batch] * steps)
        first, episodes = None, None
        if reset is not None:
            reset = reset.t() if swapped else reset.view(steps, batch)
            first, episodes = reset[0], Episodes.of(reset, data.device)
            if episodes is not None:
                rows, sizes = rows.index_select(0, episodes.rows), episodes.batch_sizes
        return cls(rows, sizes, steps, batch, directions, batched, batch_first, None, first, episodes)

    @property
    def samples(self) -> int:
        """How many the rows have: each episode is one."""
        return self.batch if self.batch_sizes is None else self.batch_sizes[0]

    def states_in(self, hx: Tensor) -> Tensor:
        """The caller's states (L·D, B, S), with the samples of the rows."""
        hx = hx if self.batched else hx.unsqueeze(1)
        if self.episodes is not None:
            return self.episodes.states_in(hx, self.directions)
        if self.first_reset is not None:
            return cleared(hx, self.first_reset, self.directions)
        if self.packed is None or self.packed.sorted_indices is None:
            return hx
        return hx.index_select(1, self.packed.sorted_indices)

    def states_out(self, states: Tensor) -> Tensor:
        if self.episodes is not None:
            states = self.episodes.states_out(states, self.directions)
        states = self._unsort(states, 1)
        return states if self.batched else states.squeeze(1)

    def masks_in(self, masks: Tensor) -> Tensor:
        """A value for each sequence (B, ·), for the samples of the rows."""
        return masks if self.episodes is None else masks.index_select(0, self.episodes.samples)

    def outputs(self, out: Tensor) -> Tensor | PackedSequence:
        """(N, H) in the form of the input."""
        if self.packed is not None:
            return PackedSequence(out, *self.packed[1:])
        if self.episodes is not None:
            out = out.index_select(0, self.episodes.places)
        if self.batch_sizes is not None:
            out = out.reshape(self.steps, self.batch, out.size(-1))  # (T, B, H)
        if not self.batched:
            return out.squeeze(1)
        return out.transpose(0, 1) if self.batch_first else out

    def per_step(self, values: Tensor) -> Tensor:
        """(L·D, N) with samples and time steps as axes in the caller's order, 0 where a sequence has ended."""
        if self.episodes is not None:
            values = values.index_select(1, self.episodes.places)
        if self.batch_sizes is None:
            pass  # they are in this form
        elif self.packed is None or self.batch_sizes[-1] == self.batch:
            values = values.reshape(values.size(0), self.steps, self.batch)  # (L·D, T, B)
        else:
            parts = values.split(self.batch_sizes, 1)
            values = torch.stack([F.pad(part, (0, self.batch - part.size(1))) for part in parts], 1)
        values = self._unsort(values, 2)
        if not self.batched:
            return values.squeeze(2)
        return values.transpose(1, 2) if self.batch_first else values

    def _unsort(self, values: Tensor, dim: int) -> Tensor:
        if self.packed is None or self.packed.unsorted_indices is None:
            return values
        return values.index_select(dim, self.packed.unsorted_indices)


def shaped_by_values(input: Tensor | PackedSequence, reset: Tensor | None, *, batch_first: bool) -> bool:
    """Whether the shapes of the rows depend on values, of the lengths or of `reset` after the first time step."""
    if isinstance(input, PackedSequence):
        return True
    return isinstance(reset, Tensor) and input.size(1 if input.dim() == 3 and batch_first else 0) > 1


def check_packed(data: Tensor, batch_sizes: list[int]) -> None:
    if not batch_sizes:
        raise ValueError("Expected sequence length to be larger than 0 in RNN")
    falling = all(a >= b for a, b in pairwise(batch_sizes))
    if not falling or batch_sizes[-1] <= 0 or sum(batch_sizes) != data.size(0):
        raise ValueError(
            "PackedSequence: batch_sizes must be positive, not increasing and sum to the number of rows "
            f"({data.size(0)}); make it with torch.nn.utils.rnn.pack_padded_sequence or pack_sequence"
        )
