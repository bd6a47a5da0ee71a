"""The synthetic experiment: Table 1, the ablation of depth, the weight updates, and our own best recipe."""

from __future__ import annotations

from dataclasses import replace

from ..data.synthetic import SyntheticData
from ..models import SequenceNetwork
from ..training.config import Optimisation, Recipe

PAPER = Optimisation(epochs=100, batch_size=20, optimizer="adam", learning_rate=0.01)
SIZES = {"RNN": (20, 30, 40), "LSTM": (10, 15, 20), "RHN": (10, 15, 20), "EIREHN": (10, 15, 20)}
DEPTHS = {"RHN": 5, "SREHN": 5, "EIREHN": 5, "ACT": 6}
"""5 for RHN follows from the published parameter counts; the others are maximum depths, chosen on validation
data."""
PENALTIES = (0.0, 0.01, 0.03, 0.1, 0.3)
WEIGHT_UPDATES = ("paper", "recursive", "additive", "scaling", "outer", "none")
NAMES = {"EIREHN": "ei-rehn"}

LOCAL = {"decay_bias": -4.0, "decay_scale": 0.1}  # hardly any local decay
# Chosen on validation data: the depth of the generator jumps at certain radii, and sharp units learn that sooner.
SHARP = {"alpha": 0.02, "gate_bias": -0.5, "input_scale": 30.0, "gate_scale": 6.0} | LOCAL
STARTS = {
    "RHN": {"gate_bias": 0.0},  # better and more stable than its authors' −2
    "SRHN": {"gate_bias": 0.0},  # as for RHN; −2 was equally good in the search
    "SREHN": SHARP,
    "EIREHN": {**SHARP, "update_bias": -1.0, "change_scale": 0.3, "update_scale": 3.0},
}


def table1() -> list[Recipe]:
    """The 12 rows of Table 1."""
    return [network(kind, size) for kind, sizes in SIZES.items() for size in sizes]


def ablation() -> list[Recipe]:
    """SRHN of depth 1 to 6 and SREHN, with 20 units, as in Section 4.1."""
    fixed = [_recipe("SRHN", 20, depth, f"-depth-{depth}") for depth in range(1, 7)]
    return [*fixed, network("SREHN", 20)]


def adaptive_computation_time() -> Recipe:
    """ACT, for comparison with the elastic gate."""
    return network("ACT", 20)


def penalised() -> list[Recipe]:
    """EI-REHN-20 from gates that fall slowly, which keeps more of its depth open, with a depth penalty from none to
    large."""
    start = {"alpha": 0.05, "gate_bias": 0.0} | LOCAL
    elastic = SequenceNetwork("EIREHN", 20, max_depth=6, weight_update="paper", start=start)
    return [
        Recipe(
            name=f"synthetic-ei-rehn-20-penalty-{penalty:g}",
            network=elastic,
            optimisation=replace(PAPER, depth_penalty=penalty),
        )
        for penalty in PENALTIES
    ]


def weight_updates() -> list[Recipe]:
    """EI-REHN-20 with each way of changing the weights."""
    plain = network("EIREHN", 20)
    return [
        replace(plain, name=f"{plain.name}-{update}", network=replace(plain.network, weight_update=update))
        for update in WEIGHT_UPDATES
    ]


def best() -> Recipe:
    """Our own recipe for a network of the paper's size; the lab notebook has its search. It takes minutes on a GPU,
    hours on a CPU."""
    optimisation = Optimisation(
        epochs=2500,
        batch_size=100,
        optimizer="soap",
        learning_rate=0.02,
        schedule="cosine",
        beta2=0.99,
        weight_decay=0.02,
        clip=0.1,
    )
    plain = network("EIREHN", 20)
    return replace(plain, name="synthetic-best", data=SyntheticData(turn=True), optimisation=optimisation)


def compared() -> Recipe:
    """For the comparison of layers: a minute for each seed on a CPU."""
    optimisation = Optimisation(
        epochs=200,
        batch_size=100,
        optimizer="adamw",
        learning_rate=0.01,
        schedule="cosine",
        warmup=0.02,
        clip=1.0,
    )
    network = SequenceNetwork("EIREHN", 20, max_depth=5)
    return Recipe("synthetic-compared", network, SyntheticData(turn=True), optimisation)


def recipes() -> list[Recipe]:
    return [*table1(), *ablation(), adaptive_computation_time(), best(), *penalised(), *weight_updates()]


def network(kind: str, size: int) -> Recipe:
    """A system of the paper with its recipe."""
    return _recipe(kind, size, DEPTHS.get(kind, 1))


def _recipe(kind: str, size: int, depth: int, suffix: str = "") -> Recipe:
    name = f"synthetic-{NAMES.get(kind, kind.lower())}-{size}{suffix}"
    return Recipe(
        name=name,
        network=SequenceNetwork(kind, size, max_depth=depth, weight_update="paper", start=STARTS.get(kind, {})),
        optimisation=PAPER,
    )
