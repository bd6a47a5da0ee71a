"""The run folder: its files, and a lock so that one process at a time writes to it."""

from __future__ import annotations

import os
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .._internal.files import RunError, lock, read_json, write_json, write_text
from ..models.io import write_values
from .config import Recipe
from .provenance import command

if TYPE_CHECKING:  # keeps Lightning out of what only reads runs
    from .task import Task

OWN = (
    "recipe.json",
    "command.txt",
    "last.ckpt",
    "loggers.json",
    "metrics.csv",
    "model.json",
    "vocabulary.json",
    "result.json",
    "best.safetensors",
    "last.safetensors",
)
LOCK, LOGS = ".lock", "tensorboard"
WRITTEN_BY_LOGGERS = (LOGS, "wandb")
RESULT = {"recipe", "metric", "values", "final_values", "best_epoch", "depth", "parameters", "seconds"}
PATIENCE = 10.0  # seconds to wait for a process that is about to end


class RunFolder:
    """A run on disk:

    recipe.json        what is trained
    command.txt        the commands that trained it, a line each
    last.ckpt          the state of the training, to resume from
    metrics.csv        metrics of every epoch and seed
    model.json, best.safetensors, last.safetensors    the models, for `eirehn.load`
    vocabulary.json    the tokens of a language model, by their numbers
    result.json        the metrics on test data, once the training has ended
    tensorboard/       the metrics of every epoch for TensorBoard
    loggers.json       the loggers, and the ids of the run at W&B and MLflow, if they are not the default
    wandb/             what W&B writes
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.checkpoint = self.path / "last.ckpt"
        self.metrics = self.path / "metrics.csv"
        self.result = self.path / "result.json"
        self.loggers = self.path / "loggers.json"
        self._lock: IO[bytes] | None = None

    def exists(self) -> bool:
        return (self.path / "recipe.json").exists()

    def consists_of(self, path: Path) -> bool:
        """Whether `path` is one of the files of the run."""
        folder = self.path.resolve()
        files = [folder / name for name in (*OWN, LOCK)]
        known = {*files, *(file.resolve() for file in files)}  # also where it is a link
        asked = {path.resolve(), path.parent.resolve() / path.name}
        return bool(known & asked) or any(
            folder / name in each.parents for name in WRITTEN_BY_LOGGERS for each in asked
        )

    def recipe(self) -> Recipe:
        path = self.path / "recipe.json"
        if not path.exists():
            alone = (self.path / "model.json").exists()
            hint = "; it holds a model without its data: eirehn.load reads it" if alone else ""
            raise RunError(f"{self.path} is not a run folder: it has no recipe.json{hint}")
        try:
            return Recipe.from_dict(read_json(path))
        except (TypeError, ValueError) as error:
            raise RunError(f"{path} is damaged: {error}") from error

    def open(self, recipe: Recipe) -> None:
        """Creates the run, or checks that it has this recipe."""
        for left in filter(_is_left, self.path.glob(".*.tmp")):
            left.unlink(missing_ok=True)
        if self.exists():
            differing = self.recipe().differences(recipe)
            if differing == ["data.sha256"]:
                raise RunError(
                    f"the data file has changed since {self.path} was first trained; "
                    "choose another folder for a new run"
                )
            if differing:
                raise RunError(
                    f"{self.path} holds a run of another recipe (it differs in {', '.join(differing)}); "
                    "choose another folder, or delete this one"
                )
        else:
            write_json(self.path / "recipe.json", recipe.to_dict())
            self._note_command()

    def _check_free(self) -> None:
        """Raises an error if it holds anything but a run."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is a file, not a run folder")
        found = self.path.iterdir() if self.path.is_dir() else ()
        others = [each for each in found if each.name != LOCK and not _is_left(each)]
        if others and not self.exists():  # checked last: another process may be creating the run
            raise RunError(f"{self.path} is not empty and is not a run folder; choose another folder")

    def change(self, recipe: Recipe) -> None:
        """Changes the recipe; the result is deleted first, so that it never belongs to another recipe."""
        self.result.unlink(missing_ok=True)
        write_json(self.path / "recipe.json", recipe.to_dict())
        self._note_command()

    def _note_command(self) -> None:
        if (given := command()) is not None:
            write_text(self.path / "command.txt", "".join(f"{each}\n" for each in (*self.commands(), given)))

    def commands(self) -> list[str]:
        """The commands that trained the run, in order; empty where Python code did."""
        path = self.path / "command.txt"
        return path.read_text("utf-8").splitlines() if path.exists() else []

    def read_result(self) -> dict[str, Any] | None:
        if not self.result.exists():
            return None
        result = read_json(self.result)
        if not isinstance(result, dict) or not set(result) >= RESULT:
            raise RunError(f"{self.result} is damaged: it is not the result of a training")
        return result

    def __enter__(self) -> RunFolder:
        """Locks the folder for this process."""
        try:
            self._check_free()  # before anything is written to it
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open(self.path / LOCK, "ab")
        except OSError as error:
            raise RunError(f"cannot write to {self.path}: {error.strerror}") from error
        if not lock(self._lock, PATIENCE):
            self.__exit__()
            raise RunError(f"{self.path} is in use by another process")
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()  # which releases the lock, as does the end of the process
            self._lock = None


def _is_left(path: Path) -> bool:
    """Whether it is a temporary file of a process that is writing or was killed."""
    return any(fnmatch(path.name, f".{name}.*.tmp") for name in OWN)


def has_one_target(data: Any) -> bool:
    """Whether there is one target for each sequence, not for each time step."""
    return bool(getattr(data, "last", data.task == "classification"))


def export(task: Task, recipe: Recipe, folder: Path) -> None:
    """Writes the models as `eirehn.load` reads them."""
    for name, values in (("best", task.best.values), ("last", task.last_values())):
        write_values(folder / f"{name}.safetensors", values)
    data = recipe.data
    # A language model's own size: its texts may have changed during training.
    known = len(task.ensemble.values()["bias"][0]) if data.task == "language" else None
    description = {
        "network": asdict(recipe.network),
        "input_size": known or data.input_size,
        "output_size": known or data.output_size,
        "last": has_one_target(data),
        "task": data.task,
        "seeds": list(recipe.seeds),
        "best_score": task.best.score.tolist(),  # lower is better
    }
    scaling = getattr(data, "scaling", None)
    if scaling is not None:
        description["scaling"] = asdict(scaling)
    for name in ("classes", "columns"):
        if hasattr(data, name):
            description[name] = list(getattr(data, name))
    write_json(folder / "model.json", description)


def first_process() -> bool:
    """Whether this process writes; known before Lightning has started the others."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "NODE_RANK"))
