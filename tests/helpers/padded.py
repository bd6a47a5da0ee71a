"""Sequence models and batches, of equal and of unequal lengths."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eirehn.models import SequenceModel, SequenceNetwork

LENGTHS = torch.tensor([3, 7, 1, 5])


def drawn(network: SequenceNetwork, *, last: bool) -> tuple[SequenceModel, Tensor]:
    torch.manual_seed(0)
    return SequenceModel(network, 3, 2, last=last).double(), torch.randn(4, 7, 3, dtype=torch.float64)


def padded() -> Tensor:
    """What must not be read is not a number."""
    x = torch.randn(4, 9, 2).double()  # longer than the longest, as a batch of a larger split is
    for row, length in enumerate(LENGTHS.tolist()):
        x[row, length:] = torch.nan
    return x


def two_layers(kind: str, *, last: bool = True, scaling: Any = None, **options: Any) -> SequenceModel:
    network = SequenceNetwork(kind, 4, num_layers=2, max_depth=3, **options)
    return SequenceModel(network, 2, 3, last=last, scaling=scaling).double()
