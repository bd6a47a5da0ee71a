"""The tasks: their losses and metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map

from ..ops import cross_entropies
from .config import ClassifierOptimisation, LanguageOptimisation
from .ensemble import Model
from .task import Task

TEMPERATURE_BOUNDS = (0.1, 10.0)
"""Limits of the temperature of a calibrated model."""


class Regression(Task):
    """Mean squared error at every time step and output."""

    metric = "mse"

    def errors(self, prediction: Tensor, target: Tensor) -> Tensor:
        return (prediction - target).square().flatten(1).mean(1)

    def totals(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, int]:
        squares = (prediction - target).double().square().flatten(1)
        return squares.sum(1), squares.size(1)


class Classification(Task):
    """Cross-entropy of the class of each sequence; its metric is the accuracy.

    Args:
        class_weights: the weight of each class in the loss; their mean over the training data should be 1.
    """

    metric = "accuracy"
    sign = -1
    optimisation: ClassifierOptimisation
    class_weights: Tensor | None

    def __init__(
        self,
        members: Sequence[Model],
        optimisation: ClassifierOptimisation,
        *,
        class_weights: Sequence[float] | None = None,
    ) -> None:
        super().__init__(members, optimisation)
        weights = None if class_weights is None else torch.tensor(class_weights)
        self.register_buffer("class_weights", weights, persistent=False)

    def errors(self, prediction: Tensor, target: Tensor) -> Tensor:
        smoothing = self.optimisation.smoothing
        entropy = F.cross_entropy(
            prediction.flatten(0, 1), target.flatten(), reduction="none", label_smoothing=smoothing
        ).view(target.shape)
        if self.class_weights is not None:
            # Not divided by the sum of weights in the batch: parts of a batch would not add up to the whole.
            entropy = entropy * self.class_weights[target]
        return entropy.mean(1)

    def totals(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, int]:
        return (prediction.argmax(-1) == target).double().sum(1), target.size(1)


class LanguageModelling(Task):
    """Cross-entropy of the next token; its metric is the perplexity. The state is carried from batch to batch."""

    metric = "perplexity"
    optimisation: LanguageOptimisation

    def __init__(self, members: Sequence[Model], optimisation: LanguageOptimisation) -> None:
        super().__init__(members, optimisation)
        self.by_target = getattr(members[0], "pointer", None) is not None
        names = self.ensemble.names
        self.temperature_at = names.index("temperature") if "temperature" in names else None

    def keep_state(self, state: Any) -> None:
        self.carried = tree_map(Tensor.detach, state)

    def metric_of(self, mean: Tensor) -> Tensor:
        return mean.exp()

    def scale(self, target: Tensor) -> int:
        return target.size(-1) if self.optimisation.sum_steps else 1

    def errors(self, prediction: Tensor, target: Tensor) -> Tensor:
        return self._entropies(prediction, target).mean(1)

    def totals(self, prediction: Tensor, target: Tensor) -> tuple[Tensor, int]:
        entropies = self._entropies(prediction, target).double()
        return entropies.sum(1), entropies.size(1)

    def configure_gradient_clipping(self, *_: Any, **__: Any) -> None:
        if self.optimisation.penalty:
            self.ensemble.add_penalty(self.optimisation.penalty)
        super().configure_gradient_clipping()

    def calibration_sums(self, prediction: Tensor, target: Tensor) -> list[Tensor]:
        """The first and second derivative of each member's loss by a factor on its logits, at factor 1."""
        if self.temperature_at is None:
            return []
        chances = prediction.softmax(-1)  # (M, B, T, V)
        expected = (chances * prediction).sum(-1)  # (M, B, T)
        spread = (chances * (prediction - expected.unsqueeze(-1)).square()).sum(-1)
        wanted = prediction.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return [each.double().flatten(1).sum(1) for each in (expected - wanted, spread)]

    def calibrate(self, sums: Tensor) -> None:
        """The temperatures of the next epoch, by a step of Newton's method from those of this one: the loss is
        convex in a factor on the logits. Each epoch is validated with the temperatures from the one before."""
        assert self.temperature_at is not None
        slope, bend = sums
        factor = 1 - slope / bend
        sound = factor.isfinite() & (bend > 0)  # else the step is undefined
        factor = torch.where(sound, factor.clamp(0.8, 1.25), 1.0)  # Newton's step is inaccurate far away
        found = (self.ensemble.stacked[self.temperature_at] / factor).clamp(*TEMPERATURE_BOUNDS)
        # Not averaged: an average would lag behind.
        for values in (self.ensemble.stacked, self.averages.values):
            if len(values):
                values[self.temperature_at].copy_(found)

    def _set_metrics(self, loss: Tensor, metric: Tensor, depth: Tensor) -> None:
        super()._set_metrics(loss, metric, depth)
        if self.temperature_at is not None:
            self.epoch_metrics["temperature"] = self.ensemble.stacked[self.temperature_at].detach().clone()

    def _entropies(self, prediction: Tensor, target: Tensor) -> Tensor:
        if prediction.shape == target.shape:  # log-probabilities of the targets only
            return -prediction.flatten(1)
        entropies = cross_entropies(prediction.flatten(0, -2), target.flatten())
        return entropies.view(target.size(0), -1)  # (M, B · T)
