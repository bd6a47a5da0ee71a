"""Carries out a recipe: from data to models and results in a run folder."""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.loggers import Logger

from .._internal.files import RunError, write_json
from ..data.dataset import Splits
from ..data.text import LanguageData
from ..data.vocabulary import Vocabulary
from ..models import LanguageModel, LanguageNetwork, SequenceModel
from ..models.io import best_member, read_about, read_values
from .callbacks import SIGNALS, Event, History, Reporting, Saving, Watch
from .checkpoint import WholeFiles, seeded
from .config import Recipe
from .ensemble import Model
from .loaders import Data, final_parts, training_batches
from .loggers import check_loggers, log_result, logging_to
from .provenance import provenance
from .run import RunFolder, export, first_process, has_one_target
from .task import Task
from .tasks import Classification, LanguageModelling, Regression

TASKS: dict[str, type[Task]] = {
    "regression": Regression,
    "classification": Classification,
    "language": LanguageModelling,
}
PATIENCE = 600.0  # seconds for the first process to change a recipe


def train(
    recipe: Recipe,
    folder: str | os.PathLike[str],
    *,
    tell: Callable[[Event], None] = lambda event: None,
    save_seconds: float = 30.0,
    callbacks: Sequence[pl.Callback] = (),
    loggers: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Trains the models of a recipe, one for each seed, in a run folder.

    A training that was stopped, by Ctrl-C or with its process, is resumed by the same call, with the same result;
    for one that has ended its result is returned. `eirehn.load` loads the models.

    Args:
        recipe: what to train.
        folder: the run folder, which is created; if it exists, it must hold a run of the same recipe.
        tell: called with an `Event` after each epoch, and now and then in between. Default: nothing is shown.
        save_seconds: seconds between saves of the training's state. Default: 30.
        callbacks: callbacks of Lightning, called before those of this library. Default: none.
        loggers: where metrics are logged: any of `"tensorboard"`, `"wandb"` and `"mlflow"`, or `"csv"` for
            `metrics.csv` alone, which is always written. Default: those that the run has had, or tensorboard.

    Returns:
        The result, as in `result.json` of the folder: the metric of each seed on test data (`values`), the mean
        `depth`, the `best_epoch`, `parameters`, `seconds` and more.

    Raises:
        RunError: if the folder is in use, or holds something else.
        ValueError: if the recipe does not fit its data or this machine.

    Examples:
        >>> from eirehn.data import SyntheticData
        >>> from eirehn.models import SequenceNetwork
        >>> from eirehn.training import Optimisation, Recipe, train
        >>> data = SyntheticData(train=40, validation=10, test=10)
        >>> recipe = Recipe("tiny", SequenceNetwork("EIREHN", 4), data, Optimisation(epochs=1), seeds=(0, 1))
        >>> result = train(recipe, "runs/tiny")
        >>> result["metric"], len(result["values"])
        ('mse', 2)
    """
    run = RunFolder(folder)
    check_loggers(loggers or ())
    check(recipe)  # before anything is written
    if recipe.init is not None and not run.checkpoint.exists() and not run.result.exists():
        _initial_values(recipe, {name: each.detach()[None] for name, each in make_model(recipe).named_parameters()})
    if not first_process():
        return run.read_result() or _train(recipe, run, tell, save_seconds, callbacks, loggers)
    with run:
        run.open(recipe)
        return run.read_result() or _train(recipe, run, tell, save_seconds, callbacks, loggers)


def _train(
    recipe: Recipe,
    run: RunFolder,
    tell: Callable[[Event], None],
    save_seconds: float,
    callbacks: Sequence[pl.Callback],
    names: Sequence[str] | None,
) -> dict[str, Any]:
    splits = recipe.data.load()
    if isinstance(recipe.data, LanguageData):
        recipe.data.check_trained_on(run.path)
        vocabulary = run.path / "vocabulary.json"
        if first_process() and not vocabulary.exists():  # now: the text may change during training
            recipe.data.vocabulary().save(vocabulary)
    task = make_task(recipe)
    if recipe.init is not None and not run.checkpoint.exists():
        start_from(task, recipe)
    if recipe.hardware.precision == "64-true":
        task.double()  # now: Lightning would do it after loading the state, which would be rounded
    history = History(run.metrics, recipe.seeds)
    saving = Saving(run.checkpoint, seconds=save_seconds, on_save=lambda task: export(task, recipe, run.path))
    # The loggers start first: they may draw random numbers.
    with quiet(), logging_to(run, recipe, names) as loggers:
        with seeded(recipe.seeds[0]):
            trainer = make_trainer(
                recipe, run.path, [*callbacks, history, Watch(recipe), saving, Reporting(recipe, tell)], loggers
            )
            checkpoint = run.checkpoint if run.checkpoint.exists() else None
            interruptible(trainer, task, Data(recipe, splits), checkpoint)
            # Also where an earlier process was killed after the last epoch.
            if trainer.is_global_zero:
                export(task, recipe, run.path)
                history.write()
        task.to(trainer.strategy.root_device)  # Lightning has moved it to the CPU
        with precision(recipe, trainer.strategy.root_device):
            result = summary(task, recipe, splits, saving.elapsed)
        result["gpu_hours"] = round(saving.gpu_seconds / 3600, 4)
        if trainer.is_global_zero:
            write_json(run.result, result)
            log_result(loggers, recipe, result)
    return result


def start_from(task: Task, recipe: Recipe) -> None:
    """Loads the weights of the run that `recipe.init` names."""
    own = task.ensemble.values()
    values = _initial_values(recipe, own)
    if fresh := sorted(set(own) - set(values)):
        warnings.warn(
            f"{', '.join(fresh)} do not fit those of {recipe.init} and are initialised afresh", stacklevel=2
        )
    task.start_from({**own, **values})


def _initial_values(recipe: Recipe, own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights of the run `recipe.init` that fit the stacked values `own`, (M, …) each. All of the
    recurrent layers must fit; a head of another size or for other classes is left out. Words are matched by name:
    those that the run does not have keep their initial values."""
    assert recipe.init is not None
    folder = Path(recipe.init)
    about, values = read_about(folder), read_values(folder / "best.safetensors")
    if any(len(value) != len(about["seeds"]) for value in values.values()):
        raise RunError(f"{folder / 'best.safetensors'} does not fit the model.json in the same folder")
    members = _members_of(about, recipe.seeds, folder)
    values = _by_words(recipe, folder, own, {name: value[members] for name, value in values.items()})
    fits = {name for name in own if name in values and own[name].shape[1:] == values[name].shape[1:]}
    if wrong := [name for name in sorted({*own, *values} - fits) if name.startswith("body.")]:
        few = ", ".join(wrong[:3]) + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else "")
        raise RunError(f"the recurrent layers of {folder} differ in kind, size or depth: {few} do not fit")
    classes = list(getattr(recipe.data, "classes", ()))
    if about.get("task") != recipe.data.task or about.get("classes", classes) != classes:
        fits = {name for name in fits if not name.startswith("head.")}
    return {name: values[name] for name in fits}


def _members_of(about: dict[str, Any], seeds: Sequence[int], folder: Path) -> list[int]:
    """For each seed its index in a run, or that of the best seed where it has no best epoch there."""
    known = [seed for seed, score in zip(about["seeds"], about["best_score"], strict=True) if score is not None]
    if not known:
        raise RunError(f"{folder} has no best epoch of any seed: it diverged, or its first epoch has not ended")
    return [best_member(about, seed if seed in known else None) for seed in seeds]


def _by_words(
    recipe: Recipe, folder: Path, own: Mapping[str, torch.Tensor], values: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The `values` of the run in `folder`, with the rows of its words in the order of the words of `recipe`."""
    path = folder / "vocabulary.json"
    if isinstance(recipe.data, LanguageData) != path.exists():
        kinds = ("a language model", "not a language model")
        raise RunError(f"{folder} is {kinds[not path.exists()]}, and {recipe.name} is {kinds[path.exists()]}")
    if not isinstance(recipe.data, LanguageData):
        return values
    theirs, ours = Vocabulary.load(path), recipe.data.vocabulary()
    if theirs.level != ours.level:
        raise RunError(f"{folder} is a model of {theirs.level}s, and {recipe.name} of {ours.level}s")
    place = {token: number for number, token in enumerate(theirs.tokens)}
    known = [number for number, token in enumerate(ours.tokens) if token in place]
    rows = [place[ours.tokens[number]] for number in known]
    for name in {"embedding.weight", "output", "bias"} & set(values) & set(own):
        found = own[name].to(values[name]).expand(len(values[name]), *own[name].shape[1:]).clone()
        if found.shape[2:] == values[name].shape[2:]:
            found[:, known] = values[name][:, rows]
            values[name] = found
    return values


def with_more_epochs(folder: str | os.PathLike[str], epochs: int) -> Recipe:
    """Changes the recipe of a run to more `epochs`: `train` then resumes it, and the result is bitwise that of a
    training of that length. Only where the learning rate does not depend on the number of epochs."""
    run = RunFolder(folder)
    recipe = run.recipe()
    own = recipe.optimisation
    if epochs == own.epochs:
        return recipe
    if epochs < own.epochs:
        raise RunError(f"{run.path} was trained for {own.epochs} epochs and cannot be made shorter, got {epochs}")
    if own.schedule == "cosine" or own.warmup:
        raise RunError(
            f"{run.path} cannot be resumed with more epochs: its learning rate (schedule {own.schedule}, warmup "
            f"{own.warmup}) depends on their number; start a new training from its weights with --init {run.path}"
        )
    changed = replace(recipe, optimisation=replace(own, epochs=epochs))
    if not first_process():
        return _once_written(run, changed)
    with run:
        if run.recipe() != recipe:
            raise RunError(f"{run.path} was just changed by another process; try again")
        if not run.checkpoint.exists() and (run.result.exists() or run.metrics.exists()):
            raise RunError(
                f"{run.path} cannot be resumed: its last.ckpt is missing; start a new training in another folder"
            )
        check(changed)
        with quiet():
            make_trainer(changed, None, [])
        run.change(changed)
    return changed


def _once_written(run: RunFolder, changed: Recipe) -> Recipe:
    """Waits for the first process, so that the result of the shorter training is not returned."""
    until = time.monotonic() + PATIENCE
    while run.recipe() != changed:
        if time.monotonic() > until:
            raise RunError(f"the first process has not changed {run.path} for {PATIENCE:.0f} seconds")
        time.sleep(0.2)
    return changed


def interruptible(trainer: pl.Trainer, task: Task, data: Data, checkpoint: Path | None = None) -> None:
    """Runs `fit`, but raises KeyboardInterrupt at Ctrl-C, where Lightning would end the process.

    The earlier signal handlers are restored at the end: Lightning's would keep its trainer and data in memory."""
    main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        trainer.fit(task, datamodule=data, ckpt_path=checkpoint)
    except SystemExit:
        raise KeyboardInterrupt from None
    finally:
        for number, handler in handlers.items():
            if main and handler is not None:  # None: it was not set by Python
                signal.signal(number, handler)


def check(recipe: Recipe) -> None:
    """Raises an error if the model cannot be built or a text is too short for its batches."""
    make_model(recipe)
    if isinstance(recipe.data, LanguageData):
        training_batches(recipe, recipe.data.load().train)


def make_task(recipe: Recipe) -> Task:
    members = []
    for seed in recipe.seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            members.append(make_model(recipe))
    weights = getattr(recipe.data, "weights", None)
    options: dict[str, Any] = {} if weights is None else {"class_weights": weights}
    task = TASKS[recipe.data.task](members, recipe.optimisation, **options)
    task.capture = recipe.hardware.capture
    return task


def make_model(recipe: Recipe) -> Model:
    data = recipe.data
    if isinstance(recipe.network, LanguageNetwork):
        return LanguageModel(recipe.network, data.output_size)
    return SequenceModel(recipe.network, data.input_size, data.output_size, last=has_one_target(data))


def make_trainer(
    recipe: Recipe, folder: Path | None, callbacks: Sequence[pl.Callback], loggers: Sequence[Logger] = ()
) -> pl.Trainer:
    hardware = recipe.hardware
    # Apple's GPU only on request: it lacks float64, which sums need.
    usual = "gpu" if torch.cuda.is_available() else "cpu"
    try:
        return pl.Trainer(
            accelerator=usual if hardware.accelerator == "auto" else hardware.accelerator,
            devices=hardware.devices,
            num_nodes=hardware.num_nodes,
            strategy=hardware.strategy,
            precision=hardware.precision,  # type: ignore[arg-type]  # one of PRECISIONS
            max_epochs=recipe.optimisation.epochs,
            callbacks=list(callbacks),
            plugins=[WholeFiles()],
            logger=list(loggers) or False,
            default_root_dir=folder,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
        )
    except (MisconfigurationException, ImportError, TypeError, RuntimeError, ValueError) as error:
        raise ValueError(f"hardware: {error}") from error


def precision(recipe: Recipe, device: torch.device) -> torch.autocast:
    """Autocast for metrics: as in training on a GPU, none elsewhere."""
    mixed = recipe.hardware.precision == "bf16-mixed" and device.type == "cuda"
    return torch.autocast(device.type, torch.bfloat16, enabled=mixed)


def summary(task: Task, recipe: Recipe, splits: Splits, seconds: float) -> dict[str, Any]:
    best, depth = task.measure(final_parts(recipe, splits.test), task.best.values)
    # A member that never had a finite validation metric has no best epoch and no result.
    best = [value if epoch >= 0 else math.nan for value, epoch in zip(best, task.best.epoch.tolist(), strict=True)]
    last = task.last_values()
    final = best
    if not all(torch.equal(value, task.best.values[name]) for name, value in last.items()):
        final, _ = task.measure(final_parts(recipe, splits.test), last)
    return {
        "recipe": recipe.name,
        "metric": task.metric,
        "values": best,
        "final_values": final,
        "best_epoch": (task.best.epoch + 1).tolist(),
        "stopped_epoch": [None if epoch < 0 else epoch + 1 for epoch in task.stopped.tolist()],
        "best_validation": (task.sign * task.best.score).tolist() if len(splits.validation.x) else None,
        "depth": depth,
        "parameters": sum(value[0].numel() for value in task.ensemble.stacked if value.requires_grad),
        "seconds": round(seconds, 1),
        **provenance(),
    }


@contextmanager
def quiet() -> Iterator[None]:
    """Silences Lightning's messages about hardware and data loaders."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for module in ("pytorch_lightning", "lightning_fabric"):
                warnings.filterwarnings("ignore", module=module)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
