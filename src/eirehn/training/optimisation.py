"""How a model is trained: optimiser, schedule, and the price of depth."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..checks import boolean, finite, positive_int
from .soap import FullSOAP

OPTIMIZERS = ("adam", "adamw", "sgd", "soap")
SCHEDULES = ("constant", "cosine", "decay")


@dataclass(frozen=True)
class Optimisation:
    """How the model is trained."""

    epochs: int = 100
    """Passes over the training data."""
    batch_size: int = 20
    """Sequences of a training step, over all devices."""
    optimizer: str = "adam"
    """adam, adamw, sgd, or soap: Adam in the eigenbasis of the gradient's second moment, for small models."""
    learning_rate: float = 0.01
    """The largest learning rate of the schedule."""
    recurrent_rate: float = 1.0
    """Factor on the learning rate of the recurrent layers, beside embedding and head: weights that all inner steps
    share learn from each, and move all of them."""
    schedule: str = "constant"
    """constant; cosine: down to zero over the whole training; or decay: divided once an epoch."""
    decay: float = 1.02
    """What the schedule decay divides by every epoch."""
    decay_from: int = 20
    """The first epoch, counted from 0, whose learning rate has been divided."""
    warmup: float = 0.0
    """Share of all steps over which the learning rate rises to its largest."""
    beta1: float = 0.9
    """The first decay of adam, adamw and soap; at 0 adam is RMSprop, with its bias corrected."""
    beta2: float = 0.999
    """Adam's second decay."""
    weight_decay: float = 0.0
    """L2 penalty with adam and sgd, decoupled with adamw and soap."""
    penalty: float = 0.0
    """Half of this times the squared length of all values is added to the loss, and clipped with it."""
    sum_steps: bool = False
    """Language models: the loss of a sequence is the sum over its steps, not their mean."""
    clip: float | None = None
    """Each member's gradient is scaled down to this norm."""
    price: float = 0.0
    """Price of depth: this much times the mean cost of depth is added to the loss."""
    early: float = 0.0
    """Share of the training steps that stop the network after fewer inner steps than max_depth: after r of them r
    times as often as after one. So it is of use whenever it is stopped."""
    shift: bool = False
    """Language models: each epoch begins at another place of the text, so that other words stand side by side."""
    smoothing: float = 0.0
    """Of a classification: this share of a target's weight is dealt to all classes alike."""
    average: float = 0.0
    """Decay per step of the running average of the weights that is validated and kept, n / (n + 9) at step n where
    that is less; 0 keeps the weights."""

    def __post_init__(self) -> None:
        positive_int("epochs", self.epochs)
        positive_int("batch_size", self.batch_size)
        _one_of("optimizer", self.optimizer, OPTIMIZERS)
        _one_of("schedule", self.schedule, SCHEDULES)
        finite("learning_rate", self.learning_rate, above=0.0)
        finite("recurrent_rate", self.recurrent_rate, above=0.0)
        if self.recurrent_rate != 1 and self.optimizer == "soap":
            raise ValueError("recurrent_rate does not go with the optimizer soap, which turns all values together")
        finite("weight_decay", self.weight_decay, least=0.0)
        finite("price", self.price, least=0.0)
        finite("penalty", self.penalty, least=0.0)
        finite("decay", self.decay, above=0.0)
        boolean("sum_steps", self.sum_steps)
        boolean("shift", self.shift)
        _count("decay_from", self.decay_from)
        if self.schedule == "decay" and max(0, self.epochs - self.decay_from) * -math.log10(self.decay) > 300:
            raise ValueError(f"decay {self.decay} makes the rate grow beyond all numbers in {self.epochs} epochs")
        if self.clip is not None:
            finite("clip", self.clip, above=0.0)
        for name in ("warmup", "beta1", "beta2", "average", "smoothing", "early"):
            if not finite(name, getattr(self, name)) >= 0 or getattr(self, name) >= 1:
                raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")

    def stop(self, step: int, max_depth: int) -> int | None:
        """After how many inner steps training step `step`, counted from 0, stops the network; None: it goes on to
        its end. The same for a training that goes on as for one that was not stopped, and for all processes."""
        draw = random.Random(f"early {step}")
        if draw.random() >= self.early:
            return None
        fewer = range(1, max_depth)
        return draw.choices(fewer, fewer)[0]

    def make(
        self, parameters: Iterable[nn.Parameter], recurrent: Iterable[nn.Parameter] = ()
    ) -> torch.optim.Optimizer:
        """For `parameters`, of which the `recurrent` ones have a rate of their own."""
        apart = set(map(id, recurrent)) if self.recurrent_rate != 1 else set()
        found = [parameter for parameter in parameters if parameter.requires_grad]
        trained: list[Any] = [parameter for parameter in found if id(parameter) not in apart]
        if apart:
            rate = self.learning_rate * self.recurrent_rate
            own = [parameter for parameter in found if id(parameter) in apart]
            trained = [{"params": trained}, {"params": own, "lr": rate}]
        if self.optimizer == "sgd":
            return torch.optim.SGD(trained, self.learning_rate, weight_decay=self.weight_decay, fused=True)
        if self.optimizer == "soap":
            return FullSOAP(trained, self.learning_rate, (self.beta1, self.beta2), weight_decay=self.weight_decay)
        kind = torch.optim.Adam if self.optimizer == "adam" else torch.optim.AdamW
        betas = (self.beta1, self.beta2)
        return kind(trained, self.learning_rate, betas, weight_decay=self.weight_decay, fused=True)

    def rate(self, steps: int) -> Callable[[int], float]:
        """The factor on the learning rate at each of `steps` steps."""
        warm = int(self.warmup * steps)
        an_epoch = max(1, steps // self.epochs)

        def factor(step: int) -> float:
            if step < warm:
                return (step + 1) / (warm + 1)
            if self.schedule == "constant":
                return 1.0
            if self.schedule == "decay":
                return float(self.decay ** -max(0, step // an_epoch - self.decay_from + 1))
            return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, steps - warm))))

        return factor


def _one_of(name: str, value: str, accepted: tuple[str, ...]) -> None:
    if value not in accepted:
        raise ValueError(f"{name} must be one of {', '.join(accepted)}, got {value!r}")


def _count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{name} must be an integer of at least 0, got {value!r}")
