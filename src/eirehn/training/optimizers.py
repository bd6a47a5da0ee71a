"""The optimiser, the learning rate and the early stops that an `Optimisation` describes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from .config import LanguageOptimisation, Optimisation
from .soap import FullSOAP


def make_optimizer(
    own: Optimisation, parameters: Iterable[nn.Parameter], recurrent: Iterable[nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """For `parameters`, of which the `recurrent` ones may have a rate of their own."""
    factor = own.recurrent_rate if isinstance(own, LanguageOptimisation) else 1.0
    apart = set(map(id, recurrent)) if factor != 1 else set()
    found = [parameter for parameter in parameters if parameter.requires_grad]
    trained: list[Any] = [parameter for parameter in found if id(parameter) not in apart]
    if apart:
        slower = [parameter for parameter in found if id(parameter) in apart]
        trained = [{"params": trained}, {"params": slower, "lr": own.learning_rate * factor}]
    if own.optimizer == "sgd":
        return torch.optim.SGD(trained, own.learning_rate, weight_decay=own.weight_decay, fused=True)
    betas = (own.beta1, own.beta2)
    if own.optimizer == "soap":
        return FullSOAP(trained, own.learning_rate, betas, weight_decay=own.weight_decay)
    kind = torch.optim.Adam if own.optimizer == "adam" else torch.optim.AdamW
    return kind(trained, own.learning_rate, betas, weight_decay=own.weight_decay, fused=True)


def schedule(own: Optimisation, steps: int) -> Callable[[int], float]:
    """The factor on the learning rate at each of `steps` steps."""
    warm = int(own.warmup * steps)
    an_epoch = max(1, steps // own.epochs)

    def factor(step: int) -> float:
        if step < warm:
            return (step + 1) / (warm + 1)
        if own.schedule == "constant":
            return 1.0
        if own.schedule == "decay":
            return float(own.decay ** -max(0, step // an_epoch - own.decay_from + 1))
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - warm) / max(1, steps - warm))))

    return factor


def early_stop(own: Optimisation, step: int, max_depth: int) -> int | None:
    """After how many inner steps training step `step`, counted from 0, stops the network; None: at its end. The
    same for a training that was resumed, and for all processes."""
    draw = random.Random(f"early {step}")
    if draw.random() >= own.early:
        return None
    fewer = range(1, max_depth)
    return draw.choices(fewer, fewer)[0]
