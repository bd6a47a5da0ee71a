"""The experiments of the paper: their rows, and how they are made smaller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .. import recipes
from ..models import LanguageNetwork, SequenceNetwork
from ..training.config import Recipe


@dataclass(frozen=True)
class Cut:
    """An experiment made smaller. Its results do not compare with the paper's, and its report says so."""

    epochs: int | None = None
    seeds: int | None = None
    sequences: int | None = None
    """Training sequences, or of a text its tokens."""
    units: int | None = None
    """Units of a layer, at most."""

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
        return f"Changed: {', '.join(changes)}. The results do not compare with the paper's."


FULL = Cut()
QUICK = Cut(epochs=3, seeds=2)


@dataclass(frozen=True)
class Experiment:
    """Rows to train together, and what to say of them."""

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
        "often as its hidden state says, so how much there is to compute changes from step to step. No predictor "
        "that sees only the points can fall below the floor.",
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
        "Ways to change the weights with depth",
        "EI-REHN with 20 units on the synthetic task, for each way its hypernetwork may change the weights.",
        recipes.synthetic.weight_updates(),
    )
    activities = Experiment(
        "har",
        "Human activity recognition: Table 2",
        "Each model reads 2.56 seconds of what a phone at the waist feels, 9 signals of 128 steps, and says which "
        "of six activities it was. The people tested are not those trained on.",
        recipes.har.recipes(),
    )
    language = Experiment(
        "ptb",
        "Penn Treebank: Tables 3 and 4",
        "Each model reads newspaper text word by word and tells how likely every word is to come next.",
        recipes.ptb.experiment(),
        Cut(epochs=1, seeds=1, sequences=20_000, units=64),
    )
    return {each.name: each for each in (whole, updates, activities, language)}
