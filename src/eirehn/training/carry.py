"""A training in few and small files, to go on elsewhere: its state with the weights in 16 bits each, or in fewer.

What a training by SGD depends on is its weights and where it stands, one by Adam also on what that remembers of the
gradients, which is kept in rough (`moments`). Every row of a weight matrix is kept as integers of 16 bits and one
scale, which moves no weight by more than 1/65534 of the largest in its row; short vectors are kept as they are.
Where weights are averaged, the averages are kept so, and the weights below them as their differences from them,
which are small and whose exact value the noise of the next steps forgets. If that does not fit, fewer bits are
taken, as many as do.

The values of the best epoch would take as much room again, so they stay behind: from here on the values that were
carried are the best so far, with the figure measured for them when they arrived.
"""

from __future__ import annotations

import hashlib
import io
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ..checks import usable_device
from ..data.text import LanguageData
from ..files import RunError, read_json, replacing, write_json
from ..loading import KEPT
from . import moments
from .callbacks import History
from .checkpoints import WholeFiles, read_checkpoint
from .columns import Windows
from .fit import export, final_parts, make_task, precision
from .folder import RunFolder
from .modules import Task
from .packing import packed, shape_of, unpacked
from .recipe import Recipe

MOST = 56 << 20
"""Bytes of all files together."""
VERSION = 1
"""Counts up with what a pack is made of."""
PART = (16 << 20) - 4096
"""Bytes of one of them."""
FORMS = ((16, 16), (16, 8), (14, 8), (13, 8), (12, 8), (11, 8), (10, 8), (9, 8), (8, 8))
"""Bits of a value that is kept, and of a difference from it, where there are any: the first that fit are taken."""
DAMAGED = (AttributeError, EOFError, KeyError, TypeError, ValueError, RuntimeError)


class Carried(NamedTuple):
    """What was carried, and what validation says of it."""

    metric: str
    size: int
    before: list[float]
    """Each member's figure on validation data with its values as they were."""
    after: list[float]
    """With its values as they are carried."""
    best: list[float]
    """That of its best epoch, whose values stay behind."""
    bits: list[int]
    """Of a value, and of what a weight differs from its average, where there are averages."""
    back: tuple[int, ...] = ()
    """Seeds that had got lost, and go on from their best epoch."""
    held_out: bool = True
    """Whether there are data to validate with; without, there are no figures."""


def pack(run: Path, out: Path, *, which: str = "last", device: str | None = None) -> Carried:
    """Writes the training of a run folder, with its last values or those of its best epoch, to the folder `out`."""
    if which not in KEPT:
        raise ValueError(f"which must be one of {', '.join(KEPT)}, got {which!r}")
    folder = RunFolder(run)
    recipe = folder.recipe()
    if not folder.checkpoint.exists():
        raise RunError(f"{run} has no last.ckpt: nothing of it has been trained yet")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} is not empty; choose another folder")
    if recipe.optimisation.optimizer not in moments.SMALL:
        raise RunError(
            f"{recipe.optimisation.optimizer} remembers more than fits: "
            f"only trainings by {', '.join(moments.SMALL)} can be carried"
        )
    if isinstance(recipe.data, LanguageData):
        recipe.data.check_trained_on(run)
    state = read_checkpoint(folder.checkpoint)
    for optimizer in state["optimizer_states"]:
        # Of the best epoch only the values are kept: what was remembered later may be of a way that was lost.
        optimizer["state"] = {} if which == "best" else moments.small(optimizer)["state"]
    task = make_task(recipe)
    trained, averaged = _taken(state, task)
    score = state["task"]["best"]["score"]
    held_out = bool(recipe.data.load().validation.x.numel())
    best = (task.sign * score).tolist() if held_out else [math.nan] * len(score)
    if which == "best" and not score.isfinite().any():
        raise RunError(f"{run} has no best epoch yet: none has ended, or all members have diverged")
    # Who has no best epoch has its initial values there, and goes on with its last ones.
    values, back = averaged or trained, score.isfinite() & (which == "best")
    before = validation(task, recipe, values, device) if which == "last" else best
    if task.retreats and which == "last":  # the best epoch's values stay behind, and could not be gone back to
        task.retreats.load_state_dict(state["task"]["retreats"])
        back = task.retreats.lost(torch.tensor(before, dtype=score.dtype), score)
        task.retreats.slow(back)
    if back.any():
        kept = state["task"]["best"]["values"]
        values, trained = (_with(own, kept, back) for own in (values, trained))
        _forget(state["task"], back)
        before = validation(task, recipe, values, device)
    state["task"]["best"]["values"] = {}
    whole, carried, bits = _finest(state, values, trained if averaged else {})
    if len(whole) > MOST:
        raise RunError(f"{run} takes {len(whole) / 2**20:.1f} MiB to carry, more than {MOST >> 20}")
    after = validation(task, recipe, carried, device)
    about = {
        "recipe": recipe.to_dict(),
        "which": which,
        "metric": task.metric,
        "before": before,
        "after": after,
        "best": best,
        "held_out": held_out,
        "version": VERSION,
        "bits": bits,
        "parts": _write_parts(whole, out),
    }
    write_json(out / "carry.json", about)  # last: without it there is nothing to unpack
    lost = back.tolist() if which == "last" else [False] * len(best)
    seeds = tuple(seed for seed, gone in zip(recipe.seeds, lost, strict=True) if gone)
    return Carried(task.metric, len(whole), before, after, best, bits, seeds, held_out)


def _forget(task: dict[str, Any], back: Tensor) -> None:
    """What the values of members that go back, (M,), have left in the state of a task since their best epoch."""

    def emptied(part: Tensor) -> Tensor:
        part[back] = 0 if part.is_floating_point() else -1  # the latter are words that a pointer has not seen
        return part

    task["carried"] = tree_map_only(Tensor, emptied, task["carried"])
    task["sums"][:, back] = 0
    task["averages"]["count"][back] = 0
    if "skipped" in task:  # which states of older versions do not have
        task["skipped"][back] = 0
        task["stopped"][back] = -1
    least = task.get("retreats", {}).get("least", torch.empty(0))
    if len(least):
        task["retreats"]["least"] = least.masked_fill(back, torch.inf)


def _with(own: Mapping[str, Tensor], others: Mapping[str, Tensor], which: Tensor) -> dict[str, Tensor]:
    """Values of members, those of `which`, (M,), from the others."""
    return {
        name: torch.where(which.view(-1, *[1] * (value.dim() - 1)), others[name].to(value), value)
        for name, value in own.items()
    }


def unpack(carry: Path, run: Path, *, device: str | None = None, measure: bool = True) -> Carried:
    """Makes a run folder of what `pack` wrote, whose training goes on where it was left. Without `measure` the
    figures of what was carried are those that `pack` found, and nothing is validated here."""
    if not (carry / "carry.json").exists():
        raise RunError(f"{carry} holds no training: it has no carry.json")
    about = read_json(carry / "carry.json")
    if isinstance(about, dict) and about.get("version", VERSION) != VERSION:
        raise RunError(f"{carry} was packed by another version of eirehn; unpack it with that")
    whole = _read_parts(carry, about)
    recipe = _read_recipe(carry, about)
    task, folder = make_task(recipe), RunFolder(run)
    state, values, trained = _read_content(carry, whole, task.ensemble.values())
    after = validation(task, recipe, values, device) if measure else _numbers(about["after"])
    with _telling(carry):
        _go_on_from(state, task, values, trained, after if about.get("held_out", True) else None)
        history = History(folder.metrics, recipe.seeds)
        history.load_state_dict(_history(state))
    with folder:
        folder.open(recipe)
        if folder.checkpoint.exists() or folder.result.exists() or folder.metrics.exists():
            raise RunError(f"{run} holds a training already; choose another folder")
        export(task, recipe, run)
        WholeFiles().save_checkpoint(state, folder.checkpoint)
        history.write()
    figures = (_numbers(about["before"]), after, _numbers(about["best"]))
    bits, held_out = about.get("bits", [16]), about.get("held_out", True)
    return Carried(about["metric"], len(whole), *figures, bits, held_out=held_out)


def _numbers(figures: Sequence[float | None]) -> list[float]:
    """As they were before they were written: JSON has no number for what has diverged."""
    return [math.nan if figure is None else figure for figure in figures]


def _go_on_from(
    state: dict[str, Any],
    task: Task,
    values: Mapping[str, Tensor],
    trained: Mapping[str, Tensor],
    after: Sequence[float] | None,
) -> None:
    """Puts the values into a state that was carried without them, with the figures that they have now, if there are
    any, and all of it into the task."""
    state["state_dict"] = {key: (trained or values)[name] for key, name in _keys(task).items()}
    state["task"]["averages"]["values"] = [values[name] for name in task.ensemble.names] if trained else []
    epochs = len(_history(state)["epochs"])
    if epochs and after is not None:
        score = task.sign * torch.tensor(after, dtype=torch.float64)
        score = score.nan_to_num(nan=torch.inf)  # anything will be better than what has diverged
        epoch = torch.full(score.shape, epochs - 1).masked_fill(~score.isfinite(), -1)
        state["task"]["best"] |= {"score": score, "epoch": epoch}
    state["task"]["best"]["values"] = {name: value.clone() for name, value in values.items()}
    state["optimizer_states"] = [moments.whole(each, _optimised(task)) for each in state["optimizer_states"]]
    task.on_load_checkpoint(state)
    task.ensemble.load(trained or values)


def _optimised(task: Task) -> list[Tensor]:
    """The values of a task in the order in which its optimiser numbers them."""
    optimizer = task.optimisation.make(task.parameters(), task.ensemble.recurrent())
    return [value for group in optimizer.param_groups for value in group["params"]]


def _finest(
    state: dict[str, Any], values: Mapping[str, Tensor], trained: Mapping[str, Tensor]
) -> tuple[bytes, dict[str, Tensor], list[int]]:
    """A training in the finest form that fits, or in the coarsest; its values as they come back; and their bits."""
    numbers = sum(value.numel() for value in values.values())
    tried = None  # bits for each number, and the bytes of all
    for bits, below in FORMS:
        taken = bits + below if trained else bits
        # All but the first eight bits take room as they are, so that other forms need no trial.
        if tried and tried[1] - (tried[0] - taken) * numbers / 8 > 1.01 * MOST and (bits, below) != FORMS[-1]:
            continue
        kept = {name: packed(value, bits) for name, value in values.items()}
        carried = {name: unpacked(each) for name, each in kept.items()}
        differences = {name: packed(value, below, carried[name]) for name, value in trained.items()}
        content = io.BytesIO()
        torch.save({"state": state, "values": kept, "differences": differences}, content)
        tried = taken, content.tell()
        if content.tell() <= MOST:
            break
    return content.getvalue(), carried, [bits, below] if trained else [bits]


@torch.no_grad()
def validation(task: Task, recipe: Recipe, values: Mapping[str, Tensor], device: str | None) -> list[float]:
    """Each member's figure with these values, as validation during the training has it, to rounding; NaN where
    nothing is held out for it."""
    place = usable_device(device)
    split = recipe.data.load().validation
    if not split.x.numel():
        return [math.nan] * len(recipe.seeds)
    task.to(place, next(iter(values.values())).dtype)
    language = recipe.data.task == "language"
    parts = Windows(split, recipe.optimisation.batch_size) if language else final_parts(recipe, split)
    with precision(recipe, place):
        found, _ = task.measure(parts, values)
    task.cpu()
    return found


def _keys(task: Task) -> dict[str, str]:
    """What a member calls each value, by what a checkpoint calls it."""
    return {f"ensemble.stacked.{index}": name for index, name in enumerate(task.ensemble.names)}


def _taken(state: dict[str, Any], task: Task) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The trained values and, where there are any, their averages, out of a state that is left without them."""
    trained = {name: state["state_dict"][key] for key, name in _keys(task).items()}
    averaged = dict(zip(task.ensemble.names, state["task"]["averages"]["values"], strict=False))
    state["state_dict"], state["task"]["averages"]["values"] = {}, []
    return trained, averaged


def _history(state: Mapping[str, Any]) -> dict[str, Any]:
    """What `History` has kept of the epochs that have ended."""
    for own in state["callbacks"].values():
        if "epochs" in own:
            return dict(own)
    raise ValueError("it has no history")


def _write_parts(whole: bytes, out: Path) -> list[dict[str, Any]]:
    parts = []
    for number, at in enumerate(range(0, len(whole), PART)):
        content = whole[at : at + PART]
        name = f"carry.{number:02}"
        with replacing(out / name) as file:
            file.write(content)
        parts.append({"name": name, "sha256": hashlib.sha256(content).hexdigest()})
    return parts


def _read_recipe(carry: Path, about: Mapping[str, Any]) -> Recipe:
    """Where the figures told of it are there too, one for each member."""
    with _telling(carry):
        recipe = Recipe.from_dict(about["recipe"])
        for figures in (about["before"], about["after"], about["best"]):
            if len([figure is None or float(figure) for figure in figures]) != len(recipe.seeds):
                raise ValueError("figures for each seed are wanted")
        if not isinstance(about["metric"], str):
            raise TypeError("its metric has no name")
        return recipe


def _read_content(
    carry: Path, whole: bytes, own: Mapping[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor]]:
    """The state without its values, the values that were carried, and those below their averages; both in the
    shapes of the model's `own`."""
    with _telling(carry):
        content = torch.load(io.BytesIO(whole), map_location="cpu", weights_only=True)
        # Versions that knew no differences wrote the weights below their averages as they were.
        below, beside = ("trained", False) if "trained" in content else ("differences", True)
        shapes = {name: tuple(each.shape) for name, each in own.items()}
        for kept in (content["values"], content[below] or content["values"]):
            if {name: shape_of(each) for name, each in kept.items()} != shapes:
                raise ValueError("its values do not fit the model of its recipe")
        values = {name: unpacked(each) for name, each in content["values"].items()}
        trained = {name: unpacked(each, values[name] if beside else None) for name, each in content[below].items()}
        if not all(value.is_floating_point() for value in (*values.values(), *trained.values())):
            raise TypeError("its values are no numbers of a model")
        return content["state"], values, trained


@contextmanager
def _telling(carry: Path) -> Iterator[None]:
    try:
        yield
    except (*DAMAGED, UnpicklingError, zlib.error) as error:
        said = str(error).partition("\n")[0]
        raise RunError(f"{carry} holds no training that can be read: {type(error).__name__} {said}") from error


def _read_parts(carry: Path, about: Mapping[str, Any]) -> bytes:
    try:
        parts: Sequence[Mapping[str, str]] = about["parts"]
        contents = [(carry / Path(part["name"]).name).read_bytes() for part in parts]
        wrong = [
            part["name"]
            for part, content in zip(parts, contents, strict=True)
            if hashlib.sha256(content).hexdigest() != part["sha256"]
        ]
    except OSError as error:
        raise RunError(f"cannot read {error.filename}: {error.strerror}") from error
    except (KeyError, TypeError) as error:
        raise RunError(f"{carry / 'carry.json'} is damaged: {error!r}") from error
    if wrong:
        raise RunError(f"{carry / wrong[0]} is damaged")
    return b"".join(contents)
