"""Texts of a report about a user's own data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..data.table import FileData
from ..data.text import TextData
from ..report.tables import count
from .sequences import names, signals
from .trained import Trained

SHOWN = 12
"""Names listed in a sentence."""


def title(run: Trained) -> str:
    data = run.recipe.data
    if isinstance(data, FileData):
        return f"{data.target} in {Path(data.path).name}"
    assert isinstance(data, TextData)
    return f"Language model of {Path(data.train).name}"


def summary(runs: Sequence[Trained]) -> str:
    """The task, the models and the amount of data, in words."""
    data = runs[0].recipe.data
    splits = data.load()
    if isinstance(data, TextData):
        unit = "words" if data.level == "word" else "characters"
        task = f"the next {unit[:-1]} of a text, out of a vocabulary of {count(data.output_size)} {unit}"
        sizes = [(name, f"{count(part.x.size(1) + 1)} {unit}") for name, part in splits._asdict().items()]
    else:
        assert isinstance(data, FileData)
        given = signals(runs[0])
        task = f"{data.target} of each sequence from {_listed(given, 'signal')}"
        if data.task == "classification":
            task += f": {_listed(names(data, 'classes', data.output_size, 'class'), 'class', 'or')}"
        sizes = [
            (name, f"{count(len(part.x))} sequences") for name, part in splits._asdict().items() if len(part.x)
        ]
    models = ", ".join(f"{run.label} ({_seeds(run)})" for run in runs)
    amounts = ", ".join(f"{size} for {name.replace('train', 'training')}" for name, size in sizes)
    return f"{models} predict{'s' if len(runs) == 1 else ''} {task}. Data: {amounts}."


def _listed(found: Sequence[str], kind: str, last: str = "and") -> str:
    if len(found) > SHOWN:
        return f"{len(found)} {kind}{'es' if kind == 'class' else 's'}"
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} {last} {found[-1]}"


def _seeds(run: Trained) -> str:
    seeds = run.recipe.seeds
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def commands(run: Trained) -> list[str]:
    """The commands that trained it, or if they are not known one that trains it again."""
    return run.commands or [f"eirehn train --config {run.folder / 'recipe.json'} --out {run.folder}-again"]


def data(run: Trained) -> str:
    """The files and their checksum."""
    used = run.recipe.data
    assert isinstance(used, FileData | TextData)
    files = [used.path] if isinstance(used, FileData) else [used.train, used.validation, used.test]
    return f"{', '.join(Path(file).name for file in files)} (SHA-256 {used.pinned().sha256})"
