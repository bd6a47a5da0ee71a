"""Trainings small enough for tests."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch

from eirehn.data.dataset import Split, Splits
from eirehn.data.synthetic import SyntheticData
from eirehn.models import SequenceNetwork
from eirehn.training.config import PARTS, Hardware, Optimisation, Recipe

DATA = SyntheticData(train=60, validation=20, test=20)


def small(
    kind: str = "EIREHN", *, seeds: tuple[int, ...] = (0, 1), precision: str = "32-true", **options: Any
) -> Recipe:
    optimisation = {"epochs": 3, "batch_size": 16, **options}
    return Recipe(
        name=f"small-{kind.lower()}",
        network=SequenceNetwork(kind, 5, max_depth=3),
        data=DATA,
        optimisation=Optimisation(**optimisation),
        seeds=seeds,
        hardware=Hardware(accelerator="cpu", precision=precision),
    )


def exploding(**options: Any) -> Recipe:
    """The first training step takes the weights so far that the loss of all others is infinite."""
    return small("SREHN", **{"clip": 1.0, "epochs": 5, "learning_rate": 1e30, **options})


def with_data(recipe: Recipe, data: Any) -> Recipe:
    """On data of any task, otherwise trained alike."""
    kind = PARTS[data.task].optimisation
    return replace(recipe, data=data, optimisation=kind(**asdict(recipe.optimisation)))


def with_network(recipe: Recipe, **changes: Any) -> Recipe:
    return replace(recipe, network=replace(recipe.network, **changes))


@dataclass(frozen=True)
class Sums:
    """Whether a sequence sums to more than zero."""

    train: int = 64
    validation: int = 0

    kind: ClassVar[str] = "sums"
    task = "classification"
    input_size = 2
    output_size = 2
    augment = None

    def load(self) -> Splits:
        x = torch.randn(self.train + self.validation + 40, 6, 2, generator=torch.Generator().manual_seed(1))
        target = (x[..., 0].sum(1) > 0).long()
        sizes = [self.train, self.validation, 40]
        return Splits(*map(Split, x.split(sizes), target.split(sizes)))

    def smaller(self, train: int) -> Sums:
        return replace(self, train=train)
