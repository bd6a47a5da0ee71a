"""The synthetic experiment: Table 1, the ablation of depth, the weight updates, and our own best recipe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..data.synthetic import SyntheticData
from ..models import FIXED, Network
from ..training.optimisation import Optimisation
from ..training.recipe import Recipe

PAPER = Optimisation(epochs=100, batch_size=20, optimizer="adam", learning_rate=0.01)
SIZES = {"RNN": (20, 30, 40), "LSTM": (10, 15, 20), "RHN": (10, 15, 20), "EIREHN": (10, 15, 20)}
RHN_DEPTH = 5  # the published parameter counts say so
PRICES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
WEIGHT_UPDATES = ("printed", "recursive", "additive", "scaling", "outer", "none")
NAMES = {"EIREHN": "ei-rehn"}


def table1() -> list[Recipe]:
    """The 12 rows of Table 1."""
    return [network(kind, size) for kind, sizes in SIZES.items() for size in sizes]


def ablation() -> list[Recipe]:
    """SRHN of depth 1 to 6 and SREHN, with 20 units, as in Section 4.1."""
    fixed = [_recipe("SRHN", 20, suffix=f"-depth-{depth}", max_depth=depth) for depth in range(1, 7)]
    return [*fixed, network("SREHN", 20)]


def adaptive_computation_time() -> Recipe:
    """ACT, which the elastic gate answers."""
    return _recipe("ACT", 20, max_depth=6)


def priced() -> list[Recipe]:
    """EI-REHN-20 with a price on depth, from cheap to dear."""
    plain = network("EIREHN", 20)
    return [
        replace(
            plain, name=f"{plain.name}-price-{price:.0e}", optimisation=replace(plain.optimisation, price=price)
        )
        for price in PRICES
    ]


def weight_updates() -> list[Recipe]:
    """EI-REHN-20 with each way of changing the weights."""
    plain = network("EIREHN", 20)
    return [
        replace(plain, name=f"{plain.name}-{update}", network=replace(plain.network, weight_update=update))
        for update in WEIGHT_UPDATES
    ]


def best() -> Recipe:
    """Our own recipe for a network of the paper's size; the lab notebook has its search. Hours on a CPU."""
    start = {
        "alpha": 0.02,
        "gate_bias": -0.5,
        "update_bias": -1.0,
        "input_scale": 30.0,
        "gate_scale": 6.0,
        "change_scale": 0.3,
        "update_scale": 3.0,
    }
    optimisation = Optimisation(
        epochs=600,
        batch_size=100,
        optimizer="soap",
        learning_rate=0.02,
        schedule="cosine",
        beta2=0.99,
        weight_decay=0.02,
        clip=0.1,
    )
    return Recipe(
        name="synthetic-best",
        network=Network("EIREHN", 20, max_depth=5, start=start),
        data=SyntheticData(turn=True),
        optimisation=optimisation,
    )


def recipes() -> list[Recipe]:
    return [*table1(), *ablation(), adaptive_computation_time(), best(), *priced(), *weight_updates()]


def network(kind: str, size: int) -> Recipe:
    if kind == "RHN":
        return _recipe(kind, size, max_depth=RHN_DEPTH)
    return _recipe(kind, size)


def _recipe(kind: str, size: int, *, suffix: str = "", **options: Any) -> Recipe:
    name = f"synthetic-{NAMES.get(kind, kind.lower())}-{size}{suffix}"
    if kind in FIXED:
        options["start"] = {"gate_bias": 0.0}  # on validation data better than their authors' −2, and stabler
    return Recipe(name=name, network=Network(kind, size, **options), optimisation=PAPER)
