"""Every system in one model, for the tests of exported programs and files."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import eirehn
from helpers.systems import SYSTEMS

OF_TORCH = {"RNN": eirehn.RNN, "GRU": eirehn.GRU, "LSTM": eirehn.LSTM}
SIZES = [(1, 1), (1, 9), (4, 1), (5, 12)]
"""Of batches and time steps; none is the exported one."""


class All(nn.Module):
    """Two layers of each in both directions, with outputs, last states and depths; inputs (B, T, 2)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        options: dict[str, Any] = {"num_layers": 2, "bidirectional": True, "batch_first": True}
        makers: dict[str, Any] = {name: partial(kind, **own) for name, (kind, own) in SYSTEMS.items()} | OF_TORCH
        self.layers = nn.ModuleDict({name: make(2, 3, **options) for name, make in makers.items()})
        for name, parameter in self.named_parameters():  # gates that close at different depths
            with torch.no_grad():
                parameter.add_((1.5 if ".W_a" in name else 0.3) * torch.randn_like(parameter))

    def forward(self, x: Tensor) -> list[Any]:
        return [
            layer(x) if name in OF_TORCH else layer(x, return_depth=True) for name, layer in self.layers.items()
        ]

    def depths(self, x: Tensor) -> dict[str, set[int]]:
        """The depths of each system with an elastic gate."""
        found = zip(self.layers, self(x), strict=True)
        return {name: set(results[2].flatten().tolist()) for name, results in found if "REHN" in name}
