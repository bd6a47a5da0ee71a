"""More epochs for a run, or another end of it: such that every step it has taken is one of the changed training."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

from ..files import RunError
from .checkpoints import read_checkpoint
from .fit import check, first_process, make_trainer, quiet, training_batches
from .folder import RunFolder
from .recipe import Recipe

PATIENCE = 600.0  # seconds for the first process to check and write


def lengthen(folder: str | os.PathLike[str], *, epochs: int | None = None, cooldown: float | None = None) -> Recipe:
    """The recipe of the run in `folder` with other `epochs` or another `cooldown`, and from here on the run's own;
    also of a run that has ended, whose result the longer training replaces. What `train` then ends with has the
    bits of a training by this recipe from the start (but for what a run that was carried here lost on the way);
    where it could not, the run stays as it is."""
    run = RunFolder(folder)
    asked: dict[str, Any] = {"epochs": epochs, "cooldown": cooldown}
    changes = {name: value for name, value in asked.items() if value is not None}
    changed = _changed(run.recipe(), changes)
    if not changes:
        return changed
    if not first_process():
        return _once_written(run, changed)
    with run:
        recipe = run.recipe()  # once more: another process may have changed it until now
        changed = _changed(recipe, changes)
        if changed != recipe:
            _check(run, recipe, changed, ", ".join(f"{name} {value}" for name, value in changes.items()))
            run.change(changed)
    return changed


def _changed(recipe: Recipe, changes: dict[str, Any]) -> Recipe:
    return replace(recipe, optimisation=replace(recipe.optimisation, **changes))


def _once_written(run: RunFolder, changed: Recipe) -> Recipe:
    """Not before: until then the run may have the result of a training that is too short."""
    until = time.monotonic() + PATIENCE
    while run.recipe() != changed:
        if time.monotonic() > until:
            raise RunError(f"the first process has not changed {run.path} for {PATIENCE:.0f} seconds")
        time.sleep(0.2)
    return changed


def _check(run: RunFolder, recipe: Recipe, changed: Recipe, named: str) -> None:
    """That it can be trained, here, and that each step it has taken would have been the same."""
    check(changed)
    with quiet():
        make_trainer(changed, None, [])
    if not run.checkpoint.exists():
        if run.result.exists() or run.metrics.exists():
            raise RunError(f"{run.path} cannot go on: its last.ckpt is not there; train anew in another folder")
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
