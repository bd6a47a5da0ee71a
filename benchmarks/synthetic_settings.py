"""What one member of a search on the synthetic task is: its settings, and the network they start."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import eirehn

# group: the parameters in it, and which half of their rows, the residual's (0) or the gate's (1)
GROUPS: dict[str, tuple[tuple[str, ...], int | None]] = {
    "residual": (("W_h",), 0), "gate": (("W_h",), 1), "input": (("W_x",), None), "change": (("P",), None),
    "update": (("P_bar",), None), "bias": (("b",), 0),
    "hyper": (("W_zh", "W_zg", "W_z"), None), "start": (("s_0", "g_0", "z_0"), None),
}  # fmt: skip


@dataclass
class Settings:
    """One member. `initial` goes to `reset_parameters`; `scale` then multiplies groups of initial values."""

    name: str = ""
    seed: int = 0
    system: str = "EIREHN"
    hidden: int = 20
    depth: int = 10
    weight_update: str = "paper"
    initial: dict[str, float] = field(default_factory=dict)
    scale: dict[str, float] = field(default_factory=dict)
    """Factors by group: those of GROUPS, and `head`."""
    orthogonal: float | None = None
    """Residual rows of `W_h` start as an orthogonal matrix times this."""
    batch: int = 20
    epochs: int = 100
    optimizer: str = "adam"
    """`adam`, or `full`: Adam in the eigenbasis of the whole second moment of the gradient."""
    every: int = 300
    """Steps between two eigenbases of `full`; there is a first one after 100."""
    memory: float = 0.9
    """What is left of that second moment after 100 steps."""
    rate: float = 0.01
    schedule: str = "constant"
    """`constant`, `cosine` to zero, or `tail:f`: constant, then linear to zero over the last share f."""
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    decay: float = 0.0
    """Decoupled weight decay."""
    clip: float | None = None
    price: float = 0.0
    """Of depth: this times its mean cost is added to the loss."""
    turned: bool = False
    """Each sequence is turned by a random multiple of 90 degrees whenever it is drawn: a symmetry of the task."""

    def shape(self) -> tuple[Any, ...]:
        same = (self.system, self.hidden, self.depth, self.weight_update, self.batch, self.epochs)
        return (*same, self.optimizer, self.every, self.memory)

    def rate_at(self, progress: float) -> float:
        kind, _, share = self.schedule.partition(":")
        if kind == "cosine":
            return self.rate * 0.5 * (1 + math.cos(math.pi * progress))
        if kind == "tail":
            return self.rate * min(1.0, (1 - progress) / float(share))
        if kind != "constant":
            raise ValueError(f"schedule must be 'constant', 'cosine' or 'tail:share', got {self.schedule!r}")
        return self.rate


class Regression(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        elastic = settings.system in ("SREHN", "EIREHN")
        options: dict[str, Any] = {"max_depth" if elastic else "depth": settings.depth}
        if settings.system == "EIREHN":
            options["weight_update"] = settings.weight_update
        self.layer = getattr(eirehn, settings.system)(2, settings.hidden, batch_first=True, **options)
        self.head = nn.Linear(settings.hidden, 2)
        self.layer.reset_parameters(**settings.initial)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out, _, depth, cost = self.layer(x, return_depth=True, return_cost=True)
        return self.head(out), depth[0], cost.mean()


@torch.no_grad()
def initial(settings: Settings) -> Regression:
    torch.manual_seed(settings.seed)
    model = Regression(settings)
    cell, H = model.layer.cells[0], settings.hidden
    if settings.orthogonal is not None:
        nn.init.orthogonal_(cell.W_h[:H], settings.orthogonal)
    for group, factor in settings.scale.items():
        if group == "head":
            model.head.weight.mul_(factor)
            continue
        names, half = GROUPS[group]
        for name in names:
            whole = getattr(cell, name)
            rows = whole if half is None else whole.narrow(-1 if name == "b" else -2, half * H, H)
            rows.mul_(factor)
    return model
