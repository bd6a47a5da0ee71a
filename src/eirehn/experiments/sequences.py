"""Predictions and depth of trained models on test sequences, for classification and regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..data.dataset import Split
from ..models import FIXED, Network, SequenceModel, SequenceNetwork
from ..report.content import Window
from ..training.loaders import Parts
from .results import is_own
from .trained import (
    Measure,
    Trained,
    early_curve,
    histogram,
    largest_of_each,
    learning_curve,
    penalised_family,
    savings,
)


class Reading(NamedTuple):
    """The predictions of one model for the test data."""

    output: Tensor  # (N, O)
    depth: Tensor  # (layers · directions, N, T): 0 where a sequence has ended
    lengths: Tensor  # (N,)

    @property
    def predicted(self) -> Tensor:
        """The class of each sequence, (N,)."""
        return self.output.argmax(-1)

    @property
    def probability(self) -> Tensor:
        """Of each class, (N, C)."""
        return self.output.softmax(-1)

    @property
    def spent(self) -> Tensor:
        """The mean depth of each sequence, (N,)."""
        return self.depth.double().sum((0, 2)) / (len(self.depth) * self.lengths)

    @property
    def mean_depth(self) -> float:
        return self.depth.double().sum().item() / (len(self.depth) * int(self.lengths.sum()))

    def variety(self, index: int) -> float:
        """How much the depth of one sequence varies."""
        return self.depth[:, index, : self.lengths[index]].double().mean(0).std(correction=0).item()

    @property
    def steps(self) -> Tensor:
        """The depth of every time step, (layers · directions, steps)."""
        return self.depth[:, torch.arange(self.depth.size(2)) < self.lengths[:, None]]


def readings(run: Trained, max_depth: int | None = None) -> list[Reading]:
    """The predictions of each of the run's models; those without a cap on depth are kept."""
    if max_depth is not None:
        return [read(model, run.test, max_depth) for model in run.models]
    if None not in run.readings:
        run.tell(f"reading the test sequences with the models of {run.folder}")
        run.readings[None] = [read(model, run.test) for model in run.models]
    return run.readings[None]


@torch.no_grad()
def read(model: SequenceModel, split: Split, max_depth: int | None = None) -> Reading:
    """In batches, to limit memory."""
    outputs, depths = [], []
    for part in Parts(split):
        outcome = model.run(part.x.to(model.head.weight), lengths=part.lengths, max_depth=max_depth)
        outputs.append(outcome.prediction.double().cpu())
        depths.append(outcome.depth.to("cpu", torch.int16))  # kept for every model of a table
    count, steps = split.x.shape[:2]
    lengths = torch.full((count,), steps) if split.lengths is None else split.lengths
    return Reading(torch.cat(outputs), torch.cat(depths, 1), lengths)


def depths(run: Trained) -> list[Tensor]:
    return [reading.steps for reading in readings(run)]


def variety(run: Trained) -> float:
    """How much depth differs between time steps: the run with the most is shown."""
    return depths(run)[0].double().mean(0).std(correction=0).item()


def parameters(run: Trained) -> int:
    return sum(parameter.numel() for parameter in run.models[0].parameters())


def shared_parts(
    runs: Sequence[Trained], measure: Measure, windows: Callable[[Trained], Sequence[Window]]
) -> tuple[dict[str, Any], list[Trained], list[Trained]]:
    """The parts of a report that do not depend on what is predicted; the largest run of each kind of network, or
    all runs on a user's own data; and those whose depth is reported."""
    alive = [run for run in runs if run.models]
    elastic = [run for run in alive if run.elastic]
    family = penalised_family(alive)
    like = family[0].recipe.network if family else None
    fixed = [run for run in alive if like and _comparable(run.recipe.network, like)]
    largest = alive if is_own(runs[0].recipe) else largest_of_each(alive, parameters)
    deep = [run for run in elastic if run in family or run in largest]
    shared = {
        "curves": [learning_curve(run) for run in runs],
        "histograms": [histogram(run, depths(run)) for run in deep],
        "windows": windows(max(elastic, key=variety)) if elastic else (),
        "savings": savings([*family, *fixed], measure, rounds=3) if len(family) + len(fixed) > 1 else (),
        "early": [early_curve(run, measure) for run in largest if run.deep],
    }
    return shared, largest, deep


def _comparable(network: Network, elastic: Network) -> bool:
    """Whether it differs from the elastic one in its fixed depth alone."""
    if not isinstance(network, SequenceNetwork) or not isinstance(elastic, SequenceNetwork):
        return False
    return network.kind in FIXED and (network.shortcut, network.pooling) == (elastic.shortcut, elastic.pooling)


def signals(run: Trained) -> list[str]:
    return names(run.recipe.data, "signals", run.recipe.data.input_size, "signal")


def names(data: object, attribute: str, number: int, otherwise: str) -> list[str]:
    """The names that the data has, or numbers from 1."""
    found = getattr(data, attribute, None)
    return [f"{otherwise} {index}" for index in range(1, number + 1)] if found is None else list(map(str, found))


def window(
    run: Trained, reading: Reading, index: int, true: str, predicted: str, probability: float | None
) -> Window:
    """One test sequence, in the units of the user's own data."""
    channels, end = signals(run), int(reading.lengths[index])
    x, scaling = run.test.x[index, :end], getattr(run.recipe.data, "scaling", None)
    x = x if scaling is None else scaling.signals(x)
    frame = x.size(-1) // len(channels)  # time steps that the network reads as one
    return Window(
        label=run.label,
        names=channels,
        signals=x.unflatten(-1, (frame, len(channels))).flatten(0, 1).tolist(),
        depth=reading.depth[:, index, :end].double().mean(0).repeat_interleave(frame).tolist(),
        true=true,
        predicted=predicted,
        probability=probability,
        layers=run.recipe.network.num_layers,
        frame=frame,
    )
