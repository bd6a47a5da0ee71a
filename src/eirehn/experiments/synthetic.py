"""The report of trainings on the synthetic task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..data.synthetic import Synthetic, SyntheticData, bayes_floor
from ..report.content import Example, TrueDepth
from .trained import Trained, early_curve, histogram, largest_of_each, learning_curve, penalised_family, savings

TASK = "Trained on the synthetic task."
KEPT = ("early", "savings", "histograms", "true_depth")
"""The parts of a report that the results file keeps."""
EXAMPLES = 6


def about(runs: Sequence[Trained]) -> dict[str, Any]:
    """The noise and the floor, if all runs have the same."""
    noises = {_data(run).noise_std for run in runs}
    noise = noises.pop() if len(noises) == 1 else None
    return {"noise_std": noise, "bayes_floor": None if noise is None else bayes_floor(SyntheticData(noise))}


def about_row(run: Trained) -> dict[str, Any]:
    """Nothing beyond the metric."""
    return {}


def parts(runs: Sequence[Trained]) -> dict[str, Any]:
    """The parts of the report of these runs."""
    alive = [run for run in runs if run.models]
    elastic = [run for run in alive if run.elastic]
    family = penalised_family(alive)
    capped = [run for run in alive if run.deep and run.recipe.network.kind != "SRHN"]
    fixed = [run for run in alive if run.recipe.network.kind == "SRHN"]
    return {
        "curves": [learning_curve(run) for run in runs],
        "histograms": [histogram(run, _depths(run)) for run in family or elastic],
        "examples": examples(max(elastic, key=lambda run: _depths(run)[0].double().std().item()))
        if elastic
        else (),
        "savings": savings([*family, *fixed], errors_and_depths, rounds=7) if family and fixed else (),
        "early": [early_curve(run, errors_and_depths) for run in largest_of_each(capped, hidden_size)],
        "true_depth": [true_depth(run) for run in family or elastic],
    }


def hidden_size(run: Trained) -> int:
    return run.recipe.network.hidden_size


def errors_and_depths(run: Trained, max_depth: int | None = None) -> list[tuple[float, float]]:
    """The mean squared error and the mean depth of each of the run's models."""
    return [(error.mean().item(), depth.double().mean().item()) for error, depth in readings(run, max_depth)]


@torch.no_grad()
def readings(run: Trained, max_depth: int | None = None) -> list[tuple[Tensor, Tensor]]:
    """The squared error and the depth of each of the run's models at each time step of the test data, (N, T)."""
    if max_depth not in run.readings:
        test, found = run.test, []
        for model in run.models:
            outcome = model.run(test.x.to(model.head.weight.dtype), max_depth=max_depth)
            found.append(((outcome.prediction - test.target).double().square().mean(-1), outcome.depth[-1]))
        run.readings[max_depth] = found
    return run.readings[max_depth]


def _depths(run: Trained) -> list[Tensor]:
    return [depth for _, depth in readings(run)]


def examples(run: Trained) -> list[Example]:
    """The first test sequences, as the run's first model reads them."""
    (errors, depths), *_ = readings(run)
    points, taken = _generated(_data(run))
    return [
        Example(
            x=points[index, :-1].tolist(),
            spent=depths[index].tolist(),
            taken=taken[index].tolist(),
            error=errors[index].tolist(),
        )
        for index in range(min(EXAMPLES, len(points)))
    ]


def true_depth(run: Trained) -> TrueDepth:
    """The depth of a prediction against the generator's depth for the predicted point."""
    taken = _generated(_data(run))[1].flatten().repeat(len(run.models))
    spent = torch.cat([depth.flatten() for depth in _depths(run)]).double()
    depths = taken.unique().tolist()
    groups = [spent[taken == depth] for depth in depths]
    return TrueDepth(
        run.label,
        depths,
        [group.mean().item() for group in groups],
        [group.std(correction=0).item() for group in groups],
        [len(group) for group in groups],
    )


@lru_cache(2)
def _generated(data: SyntheticData) -> tuple[Tensor, Tensor]:
    """The test sequences, (N, T + 1, 2), and the generator's depth for each point but the first, (N, T)."""
    generated: Synthetic = data.generate()
    return torch.from_numpy(generated.x[-data.test :]), torch.from_numpy(generated.depth[-data.test :, 1:])


def _data(run: Trained) -> SyntheticData:
    assert isinstance(run.recipe.data, SyntheticData)
    return run.recipe.data
