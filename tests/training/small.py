"""Trainings small enough for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from eirehn.data.synthetic import SyntheticData
from eirehn.models import Network
from eirehn.training.optimisation import Optimisation
from eirehn.training.recipe import Hardware, Recipe

DATA = SyntheticData(train=60, validation=20, test=20)


def small(
    kind: str = "EIREHN", *, seeds: tuple[int, ...] = (0, 1), precision: str = "32-true", **options: Any
) -> Recipe:
    optimisation = {"epochs": 3, "batch_size": 16, **options}
    return Recipe(
        name=f"small-{kind.lower()}",
        network=Network(kind, 5, max_depth=3),
        data=DATA,
        optimisation=Optimisation(**optimisation),
        seeds=seeds,
        hardware=Hardware(accelerator="cpu", precision=precision),
    )


def with_network(recipe: Recipe, **changes: Any) -> Recipe:
    return replace(recipe, network=replace(recipe.network, **changes))
