"""A search for the settings of a recipe that are best on validation data, by any number of processes.

They share the folder of the search and the storage of its study. Whoever works on a trial holds the lock of its
file, so a trial that is running in the storage and not locked was stopped, and is resumed.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

import optuna
import pytorch_lightning as pl
import yaml  # type: ignore[import-untyped,unused-ignore]  # it has no types, unless stubs are installed
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, TrialState

from .._internal.files import RunError, lock, read_json, write_json, write_text
from .._internal.memory import out_of_memory
from ..report.content import Report, Searched, Tried
from ..report.page import write_report
from ..report.tables import METRICS
from ..training.callbacks import Event
from ..training.config import Recipe
from ..training.provenance import provenance, without_password
from ..training.run import first_process
from ..training.task import Task
from ..training.trainer import TASKS, train
from .parallel import Say, Tell, is_local, number_of_jobs, run_all
from .search_space import Space, check, contains, in_words, suggest, value_of, with_settings

STARTUP = 5
"""Trials that are not pruned, for others to be compared with."""
WARMUP = 0.25
"""Share of the epochs of a trial before it can be pruned."""
PATIENCE = 300.0  # seconds to wait for other processes that choose a trial

STATES = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}


@dataclass(frozen=True)
class Search:
    """The trials of `recipe`, each a training of it with other values of the fields in `space`."""

    folder: Path
    recipe: Recipe
    space: Space
    trials: int
    storage: str | None = None
    """The URL of an Optuna storage; default an SQLite file in the folder."""

    @property
    def runs(self) -> Path:
        return self.folder / "trials"

    @property
    def sign(self) -> int:
        return TASKS[self.recipe.data.task].sign

    def absolute(self) -> Search:
        """With absolute paths: workers may have another working directory."""
        place = (self.storage or "").partition("sqlite:///")[2]
        storage = f"sqlite:///{Path(place).resolve()}" if place else self.storage
        return replace(self, folder=self.folder.resolve(), storage=storage)

    def open(self) -> None:
        """Creates the folder and the study, or checks that they are of this search."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        _check(self.recipe)
        path = self.folder / "search.json"
        if not path.exists() and self.folder.exists() and any(self.folder.iterdir()) and not self.runs.exists():
            raise RunError(f"{self.folder} is not empty and is not the folder of a search; choose another folder")
        try:
            self.runs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot write to {self.folder}: {error.strerror}") from error
        url = None if self.storage is None else without_password(self.storage)
        about = {
            "recipe": self.recipe.to_dict(),
            "search": {name: in_words(each) for name, each in self.space.items()},
            "storage": url,
        }
        with self._alone():
            stored = _stored(path) if path.exists() else {"id": None, **about}
            self._check_same(stored, about)
            study = self._create()
            if study.user_attrs.get("id", stored["id"]) != stored["id"]:
                raise RunError(
                    f"the storage has a study {study.study_name!r} of another folder; choose another name for "
                    f"{self.folder}"
                )
            if stored["id"] is None:
                stored["id"] = os.urandom(8).hex()
                write_json(path, stored)
            study.set_user_attr("id", stored["id"])

    def _check_same(self, stored: dict[str, Any], about: dict[str, Any]) -> None:
        differing = self.recipe.differences(Recipe.from_dict(stored["recipe"]))
        differing += [name for name in ("search", "storage") if stored[name] != about[name]]
        if differing:
            raise RunError(
                f"{self.folder} holds another search (it differs in {', '.join(differing)}); choose another "
                "folder, or delete this one"
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time."""
        with open(self.folder / ".lock", "ab") as file:
            if not lock(file, PATIENCE):
                raise RunError(f"{self.folder} is in use by another process")
            yield

    @cached_property
    def _storage(self) -> optuna.storages.RDBStorage:
        url = self.storage or f"sqlite:///{self.folder / 'study.db'}"
        patient = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
        try:
            return optuna.storages.RDBStorage(url, engine_kwargs=patient)
        except Exception as error:  # of any database's library
            said = without_password(" ".join(str(error).split()))
            raise RunError(f"the storage {without_password(url)} cannot be used: {said}") from error

    def _create(self) -> optuna.Study:
        return optuna.create_study(
            study_name=self.folder.resolve().name,
            storage=self._storage,
            direction="minimize" if self.sign > 0 else "maximize",
            load_if_exists=True,
        )

    @cached_property
    def study(self) -> optuna.Study:
        warmup = int(WARMUP * self.recipe.optimisation.epochs)
        return optuna.load_study(
            study_name=self.folder.resolve().name,
            storage=self._storage,
            sampler=Sampler({name: value_of(self.recipe, name) for name in self.space}),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=warmup),
        )

    @contextmanager
    def claimed(self) -> Iterator[optuna.Trial | None]:
        """A trial that no other process works on: one that was stopped, or a new one; None if there are enough."""
        file: IO[bytes] | None = None
        trial = None
        try:
            with self._alone():
                known = self.study.get_trials(deepcopy=False)
                for each in known:
                    if each.state == TrialState.RUNNING and (file := self._claim(each.number)) is not None:
                        trial = self._again(each)
                        break
                else:
                    if sum(each.state != TrialState.WAITING for each in known) < self.trials:
                        trial = self.study.ask()
                        file = self._claim(trial.number)
            yield trial
        finally:
            if file is not None:
                file.close()  # which releases the lock, as does the end of the process

    def _claim(self, number: int) -> IO[bytes] | None:
        file = open(self.runs / f".{number:03}.lock", "ab")  # noqa: SIM115  # held while the trial runs
        if lock(file):
            return file
        file.close()
        return None

    def _again(self, trial: FrozenTrial) -> optuna.Trial:
        study_id = self._storage.get_study_id_from_name(self.study.study_name)
        return optuna.Trial(
            self.study, self._storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
        )

    def run(self, trial: optuna.Trial, tell: Tell, say: Say, *callbacks: pl.Callback) -> None:
        """Trains a trial and writes its result to the storage."""
        name = f"{self.recipe.name}-{trial.number:03}"
        pruning = Pruning(trial, self.sign)
        last: list[Event] = []

        def told(event: Event) -> None:
            last[:] = [event]
            tell(event)

        def end() -> None:
            for event in last:
                tell(replace(event, epoch=pruning.epochs, ended=True))  # which removes its bar

        try:
            recipe = replace(with_settings(self.recipe, suggest(trial, self.space)), name=name)
            check(recipe)
            result = train(recipe, self.runs / name, tell=told, callbacks=[pruning, *callbacks])
        except optuna.TrialPruned:
            end()
            self.study.tell(trial, state=TrialState.PRUNED)
            say(f"{name}: pruned after {pruning.epochs} epochs")
        except (TypeError, ValueError, MemoryError, RuntimeError) as error:
            # Settings that do not fit each other or this machine; another trial's may.
            if isinstance(error, RuntimeError) and not out_of_memory(error):
                raise
            end()
            trial.set_user_attr("error", " ".join(str(error).split()))
            self.study.tell(trial, state=TrialState.FAIL)
            say(f"{name}: failed: {' '.join(str(error).split())}")
        else:
            # JSON has None for infinity and NaN.
            value = statistics.fmean(math.nan if each is None else each for each in result["best_validation"])
            if math.isfinite(value):
                self.study.tell(trial, value)
                say(f"{name}: validation {result['metric']} {value:.4g} in {result['seconds']:.0f} s")
            else:  # pruned, so that the sampler learns from it
                trial.set_user_attr("error", "diverged")
                self.study.tell(trial, state=TrialState.PRUNED)
                say(f"{name}: diverged")


class Sampler(optuna.samplers.BaseSampler):
    """TPE, with random numbers that depend only on the number of the trial: processes with generators of their own
    would suggest the same settings, and a resumed search others. The first trial has the recipe's own values."""

    def __init__(self, own: dict[str, Any]) -> None:
        self.own = own

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        self.sampler = optuna.samplers.TPESampler(seed=trial.number, constant_liar=True)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> Space:
        return self.sampler.infer_relative_search_space(study, trial)

    def sample_relative(self, study: optuna.Study, trial: FrozenTrial, search_space: Space) -> dict[str, Any]:
        return self.sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        if trial.number == 0 and contains(param_distribution, self.own[param_name]):
            return self.own[param_name]
        return self.sampler.sample_independent(study, trial, param_name, param_distribution)


class Pruning(pl.Callback):
    """Reports the best validation metric so far, the mean over the seeds, after each epoch, and stops a trial that
    is worse than the median of the others, or diverged."""

    def __init__(self, trial: optuna.Trial, sign: int) -> None:
        self.trial, self.sign, self.epochs = trial, sign, 0
        frozen = trial.study.get_trials(deepcopy=False)[trial.number]
        self.reported = max(frozen.intermediate_values, default=0)  # before it was stopped

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        assert isinstance(task, Task)
        self.epochs = trainer.current_epoch + 1
        value = self.sign * task.best.score.mean().item()
        if self.epochs > self.reported:
            self.trial.report(value if math.isfinite(value) else math.nan, self.epochs)
        if self.epochs >= self.reported and self.trial.should_prune():
            raise optuna.TrialPruned


def _stored(path: Path) -> dict[str, Any]:
    """The search that a search.json describes."""
    stored = read_json(path)
    try:
        Recipe.from_dict(stored["recipe"])
        return {name: stored[name] for name in ("id", "recipe", "search", "storage")}
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{path} is damaged: {error!r}") from error


def _check(recipe: Recipe) -> None:
    """Raises an error if the recipe has no validation data, or is trained by several processes."""
    hardware = recipe.hardware
    if not first_process() or hardware.devices not in (1, "1") or hardware.num_nodes != 1:
        raise ValueError(
            "a trial is trained by one process: start `eirehn tune` several times, not by srun or torchrun, and "
            "leave out --hardware.devices and --hardware.num-nodes"
        )
    if not len(recipe.data.load().validation.x):
        flag = "--data.validation 0.2 (or --data.split)" if recipe.data.kind == "files" else "--data.held-out 6"
        raise ValueError(f"a search needs validation data, to compare trials on: hold some out, as by {flag}")


def work(search: Search, name: str, tell: Tell, say: Say, *callbacks: pl.Callback) -> None:
    """Runs trials until there are enough."""
    while True:
        with search.claimed() as trial:
            if trial is None:
                return
            search.run(trial, tell, say, *callbacks)


def tune(
    search: Search,
    *,
    command: str,
    jobs: int | None = None,
    tell: Tell = lambda event: None,
    say: Say = lambda line: None,
) -> Searched:
    """Carries out a search and writes the best recipe, the results and a report to its folder."""
    search = search.absolute()
    search.open()
    number = number_of_jobs(jobs, [search.recipe] * search.trials)
    if number == 1 and is_local():
        work(search, "worker", tell, say)
    else:
        closed = replace(search)  # without the open storage, for other processes
        names = [f"worker-{each}" for each in range(number)]
        run_all(names, partial(work, closed), search.folder, number, tell=tell, say=say)
    return _written(search, command)


def _written(search: Search, command: str) -> Searched:
    trials = [_tried(each) for each in search.study.get_trials(deepcopy=False) if each.state != TrialState.WAITING]
    if not any(each.state == "complete" for each in trials):
        if any(each.state == "running" for each in trials):
            raise RunError("no trial is complete yet: other processes train all of them, and will write the report")
        why = next((f": {each.error}" for each in trials if each.state == "failed"), "; try lower learning rates")
        raise ValueError(f"no trial gave a finite result{why}")
    best, metric = search.study.best_trial, TASKS[search.recipe.data.task].metric
    fields = {name: in_words(each) for name, each in search.space.items()}
    found = Searched(METRICS[metric], fields, trials, best.number)
    results = {
        "experiment": "tune",
        "command": without_password(command),
        **provenance(),
        "metric": metric,
        "epochs": search.recipe.optimisation.epochs,
        "seeds": list(search.recipe.seeds),
        "search": fields,
        "best": best.number,
        "trials": [asdict(each) for each in trials],
    }
    write_json(search.folder / "results.json", results)
    recipe = replace(with_settings(search.recipe, best.params), name=f"{search.recipe.name}-tuned")
    text = yaml.safe_dump(recipe.to_dict(), sort_keys=False, allow_unicode=True)
    write_text(search.folder / "best.yaml", text)
    report = Report(f"Search: {search.recipe.name}", f"{found}.", results, own=True, search=found)
    write_report(search.folder / "report.html", report)
    return found


def _tried(trial: FrozenTrial) -> Tried:
    value = trial.value if trial.state in STATES else None
    return Tried(
        number=trial.number,
        state=STATES.get(trial.state, "running"),
        value=value if value is not None and math.isfinite(value) else None,
        epochs=max(trial.intermediate_values, default=0),
        settings=dict(trial.params),
        error=trial.user_attrs.get("error"),
    )
