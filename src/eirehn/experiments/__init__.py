"""The experiments of the paper: their rows, and reduced versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .. import recipes
from ..models import LanguageNetwork, SequenceNetwork
from ..training.config import Recipe


@dataclass(frozen=True)
class Cut:
    """A reduced experiment. Its results are not comparable with the paper's, and its report says so."""

    epochs: int | None = None
    seeds: int | None = None
    sequences: int | None = None
    """Training sequences, or tokens of a text."""
    units: int | None = None
    """Most units of a layer."""

    def __call__(self, recipe: Recipe) -> Recipe:
        epochs = self.epochs or recipe.optimisation.epochs
        return replace(
            recipe,
            network=self._network(recipe.network),
            optimisation=replace(recipe.optimisation, epochs=epochs),
            seeds=recipe.seeds[: self.seeds],
            data=recipe.data if self.sequences is None else recipe.data.smaller(self.sequences),
        )

    def _network(self, network: SequenceNetwork | LanguageNetwork) -> SequenceNetwork | LanguageNetwork:
        if self.units is None or network.hidden_size <= self.units:
            return network
        return replace(network, hidden_size=self.units, hyper_size=None)

    def notice(self, rows: Sequence[Recipe]) -> str | None:
        if self == Cut():
            return None
        epochs = sorted({recipe.optimisation.epochs for recipe in rows})
        shown = f"{epochs[0]} to {epochs[-1]}" if len(epochs) > 1 else f"{epochs[0]}"
        what = "training tokens" if rows[0].data.task == "language" else "training sequences"
        changes = [f"epochs {shown}", f"seeds {len(rows[0].seeds)}", f"{what} {self.sequences or 'all'}"]
        if self.units is not None:
            changes.append(f"at most {self.units} units")
        return f"Changed: {', '.join(changes)}. The results are not comparable with the paper's."


FULL = Cut()
QUICK = Cut(epochs=3, seeds=2)


@dataclass(frozen=True)
class Experiment:
    """Rows to train together, with a title and a summary."""

    name: str
    title: str
    summary: str
    rows: Sequence[Recipe]
    quick: Cut = QUICK


def experiments() -> dict[str, Experiment]:
    whole = Experiment(
        "synthetic",
        "Synthetic regression: Table 1 and the ablation of depth",
        "Each model reads points in the plane and predicts the next one. The generator repeats a noisy rotation as "
        "often as its hidden state determines, so the amount of computation differs between steps. No predictor "
        "that sees only the points can be better than the floor.",
        [
            *recipes.synthetic.table1(),
            *recipes.synthetic.ablation(),
            recipes.synthetic.adaptive_computation_time(),
            recipes.synthetic.best(),
            *recipes.synthetic.penalised(),
        ],
    )
    updates = Experiment(
        "weight-updates",
        "Weight updates of EI-REHN",
        "EI-REHN with 20 units on the synthetic task, for each weight update of its hypernetwork.",
        recipes.synthetic.weight_updates(),
    )
    activities = Experiment(
        "har",
        "Human activity recognition: Table 2",
        "Each model reads 2.56 seconds of the sensors of a phone at the waist, 9 signals of 128 steps, and "
        "predicts one of six activities. The test data are of other people than the training data.",
        recipes.har.recipes(),
    )
    language = Experiment(
        "ptb",
        "Penn Treebank: Tables 3 and 4",
        "Each model reads newspaper text and predicts the next word.",
        recipes.ptb.experiment(),
        Cut(epochs=1, seeds=1, sequences=20_000, units=64),
    )
    return {each.name: each for each in (whole, updates, activities, language)}
