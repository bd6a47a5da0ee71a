"""Sequences cut where their state is set back to zero, so that the episodes run side by side."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor
from torch.nn.utils.rnn import PackedSequence

from .checks import check_tensor


def check_reset(reset: Tensor, input: Tensor | PackedSequence) -> None:
    check_tensor("reset", reset)
    if isinstance(input, PackedSequence):
        raise ValueError("reset is for padded input, got a PackedSequence: pad it, or pack each episode by itself")
    if reset.dtype != torch.bool:
        raise TypeError(f"reset should be a bool Tensor, got: {reset.dtype}; convert it: reset.bool()")
    size = list(input.shape[:-1])
    if list(reset.shape) != size:
        raise ValueError(
            f"reset must have the shape {size} of the time and batch axes of input, got {list(reset.shape)}"
        )


class Episodes(NamedTuple):
    """The P episodes of a batch (T, B), as the samples of a packed batch: the longest first."""

    batch_sizes: list[int]
    rows: Tensor  # (T·B,): the row of the batch at each packed row
    places: Tensor  # (T·B,): the packed row of each row of the batch
    samples: Tensor  # (P,): the sample of each episode
    ends: tuple[Tensor, Tensor]  # (B,): the last episode of each sample, and the first
    sources: tuple[Tensor, Tensor]  # (P,): the initial state of each episode, forward and backward; B for zeros

    @classmethod
    def of(cls, reset: Tensor, device: torch.device) -> Episodes | None:
        """Cuts a batch at its resets (T, B); None if there is none after the first time step."""
        steps, batch = reset.shape
        if steps == 1:
            return None
        if (
            torch.compiler.is_compiling()
            or torch.jit._trace.is_tracing()
            or reset.is_meta
            or is_batchedtensor(reset)
        ):
            raise ValueError(
                "the values of reset must be known before the layer runs, which torch.export, torch.jit.trace, the "
                "meta device and vmap over reset do not allow: call the layer for one time step at a time"
            )
        reset, cpu = reset.cpu(), torch.device("cpu")  # whatever torch's default device is
        if not reset[1:].any():
            return None
        begins = reset.t().clone()  # (B, T)
        begins[:, 0] = True
        starts = begins.flatten().nonzero()[:, 0]  # (P,)
        lengths = starts.diff(append=torch.tensor([steps * batch], device=cpu))
        order = lengths.argsort(descending=True, stable=True)
        ranks = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=cpu))
        sizes = len(order) - lengths.bincount().cumsum(0)[:-1]  # episodes longer than 0, 1, … steps
        episodes = begins.flatten().cumsum(0) - 1  # (B·T,)
        since = torch.arange(steps * batch, device=cpu) - starts[episodes]  # time steps since the episode began
        places = ((sizes.cumsum(0) - sizes)[since] + ranks[episodes]).view(batch, steps).t().flatten()
        rows = torch.empty_like(places).scatter_(0, places, torch.arange(steps * batch, device=cpu))
        first, last = (ranks[episodes.view(batch, steps)[:, t]] for t in (0, -1))
        ahead, back = (torch.full_like(order, batch) for _ in range(2))
        ahead[first] = torch.arange(batch, device=cpu).where(~reset[0], batch)
        back[last] = torch.arange(batch, device=cpu)
        samples = (starts // steps)[order]
        indices = (each.to(device) for each in (rows, places, samples, last, first, ahead, back))
        rows, places, samples, last, first, ahead, back = indices
        return cls(sizes.tolist(), rows, places, samples, (last, first), (ahead, back))

    def states_in(self, hx: Tensor, directions: int) -> Tensor:
        """(L·D, B, S) as (L·D, P, S)."""
        padded = torch.cat([hx, hx.new_zeros(hx.size(0), 1, hx.size(2))], 1)
        return torch.stack([each.index_select(0, self.sources[k % directions]) for k, each in enumerate(padded)])

    def states_out(self, states: Tensor, directions: int) -> Tensor:
        """(L·D, P, S) as (L·D, B, S)."""
        return torch.stack([each.index_select(0, self.ends[k % directions]) for k, each in enumerate(states)])


def cleared(hx: Tensor, reset: Tensor, directions: int) -> Tensor:
    """`hx` (L·D, B, S), zero for the forward directions of the samples that are `reset` (B,) at the first step."""
    forward = torch.arange(hx.size(0), device=hx.device) % directions == 0
    return hx.masked_fill((forward[:, None] & reset.to(hx.device))[:, :, None], 0.0)
