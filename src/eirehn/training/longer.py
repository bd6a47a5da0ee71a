"""More epochs for a run, or another end of it: such that every step it has taken is one of the changed training."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from ..files import RunError
from .checkpoints import read_checkpoint
from .fit import first_process, training_batches
from .folder import RunFolder
from .recipe import Recipe


def lengthen(folder: str | os.PathLike[str], *, epochs: int | None = None, cooldown: float | None = None) -> Recipe:
    """The recipe of the run in `folder` with other `epochs` or another `cooldown`, and from here on the run's own;
    also of a run that has ended, whose result the longer training replaces. What `train` then ends with has the
    bits of a training by this recipe from the start; where it could not, the run stays as it is."""
    run = RunFolder(folder)
    asked: dict[str, Any] = {"epochs": epochs, "cooldown": cooldown}
    changes = {name: value for name, value in asked.items() if value is not None}
    recipe = run.recipe()
    changed = _changed(recipe, changes)
    if changed != recipe and first_process():  # which checks and writes for all
        with run:
            _check(run, recipe, changed, ", ".join(f"{name} {value}" for name, value in changes.items()))
            run.change(changed)
    return changed


def _changed(recipe: Recipe, changes: dict[str, Any]) -> Recipe:
    return replace(recipe, optimisation=replace(recipe.optimisation, **changes))


def _check(run: RunFolder, recipe: Recipe, changed: Recipe, named: str) -> None:
    if not run.checkpoint.exists():
        return  # no step was taken
    taken: int = read_checkpoint(run.checkpoint)["global_step"]
    an_epoch = len(training_batches(recipe, recipe.data.load().train))
    before, after = recipe.optimisation, changed.optimisation
    if taken > after.epochs * an_epoch:
        raise RunError(f"{run.path} has been trained for {taken / an_epoch:.4g} epochs, more than {after.epochs}")
    was, will_be = before.rate(before.epochs * an_epoch), after.rate(after.epochs * an_epoch)
    other = next((step for step in range(taken) if was(step) != will_be(step)), None)
    if other is not None:
        raise RunError(
            f"{run.path} cannot go on with {named}: from its epoch {other // an_epoch + 1} on, of "
            f"{-(-taken // an_epoch)} so far, its learning rate would have been another; train anew for that"
        )
