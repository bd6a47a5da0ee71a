"""Rows trained at the same time are those trained one by one, and stop together."""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import joblib
import pytest
import torch
from helpers.language import small_language_recipe
from helpers.small import small

from eirehn._internal.checks import UnstableTraining
from eirehn._internal.files import RunError
from eirehn.data.text import TextData
from eirehn.experiments.parallel import Sweep, train_all
from eirehn.models.io import read_values
from eirehn.training.callbacks import Event, Stopped
from eirehn.training.config import Recipe
from eirehn.training.run import RunFolder
from eirehn.training.trainer import train

NOWHERE = TextData(8, None, "nowhere.txt", "or.txt", "else.txt")
ROWS = [replace(small(kind), name=kind) for kind in ("EIREHN", "SRHN", "LSTM")]
LONG = [replace(small("RNN", seeds=(seed,), epochs=100_000), name=f"long-{seed}") for seed in (0, 1)]


class Under:
    """Does something once so many of the runs that it is told of are under way."""

    def __init__(self, runs: int, act: Callable[[], None]) -> None:
        self.runs, self.act, self.seen = runs, act, set()

    def __call__(self, event: Event) -> None:
        if event.epoch > 0:
            self.seen.add(event.run)
        if len(self.seen) == self.runs:
            self.runs = 0
            self.act()


def interrupt() -> None:
    raise KeyboardInterrupt


def check_same(recipe: Recipe, folder: Path, other: Path) -> None:
    """That a run left what training by itself leaves, to the bit."""
    train(recipe, other / recipe.name)
    assert (folder / recipe.name / "metrics.csv").read_text() == (other / recipe.name / "metrics.csv").read_text()
    for name in ("best", "last"):
        ours, theirs = (read_values(each / recipe.name / f"{name}.safetensors") for each in (folder, other))
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def check_stopped(folder: Path) -> None:
    with RunFolder(folder) as run:  # nobody holds it any more
        assert run.checkpoint.exists()
        assert run.read_result() is None


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rows_at_once_are_those_one_by_one(jobs: int, tmp_path: Path) -> None:
    events: list[Event] = []
    ended: list[str] = []
    train(ROWS[1], tmp_path / ROWS[1].name)  # which is not repeated
    train_all(ROWS, tmp_path, jobs=jobs, tell=events.append, ended=lambda _, result: ended.append(result["recipe"]))
    assert sorted(ended) == ["EIREHN", "LSTM"]
    last = {event.run: event for event in events}
    assert {name: (event.epoch, event.epochs) for name, event in last.items()} == dict.fromkeys(ended, (3, 3))
    assert last["LSTM"].figures.keys() >= {"train_loss", "mse"}
    for recipe in ROWS:
        check_same(recipe, tmp_path, tmp_path / "alone")
    assert not list(tmp_path.glob(".sweep*"))


@pytest.mark.slow
def test_on_a_cluster(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    events: list[Event] = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        train_all(ROWS[:2], tmp_path, tell=events.append)
        with pytest.raises(Stopped):
            train_all(LONG, tmp_path, tell=Under(2, interrupt))
    assert {event.run for event in events} == {"EIREHN", "SRHN"}
    for recipe in ROWS[:2]:
        check_same(recipe, tmp_path, tmp_path / "alone")
    for recipe in LONG:
        check_stopped(tmp_path / recipe.name)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_interrupted_rows_save_their_state(jobs: int, tmp_path: Path) -> None:
    act = interrupt if jobs > 1 else lambda: signal.raise_signal(signal.SIGTERM)  # one job trains in this thread
    with pytest.raises(Stopped):
        train_all(LONG, tmp_path, jobs=jobs, tell=Under(jobs, act))
    for recipe in LONG[:jobs]:
        check_stopped(tmp_path / recipe.name)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_row_that_fails_stops_the_others(jobs: int, tmp_path: Path) -> None:
    rows = [replace(small_language_recipe(NOWHERE), name="failing"), *LONG]
    with pytest.raises(RunError, match=r"nowhere\.txt"):
        train_all(rows, tmp_path, jobs=jobs)
    for recipe in LONG:
        with RunFolder(tmp_path / recipe.name) as run:
            assert run.read_result() is None


@pytest.mark.slow
def test_a_killed_process(tmp_path: Path) -> None:
    def kill() -> None:
        os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)

    with pytest.raises(RunError, match="a training process was killed"):
        train_all(LONG, tmp_path, jobs=2, tell=Under(2, kill))


def test_warnings_are_passed_on(tmp_path: Path) -> None:
    """Each run's own, where Python shows equal ones once."""
    plain = small("SREHN", seeds=(5,), optimizer="sgd", learning_rate=1e38, epochs=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default", UnstableTraining)
        train_all([replace(plain, name=name) for name in ("a", "b")], tmp_path, jobs=1)
    assert {str(each.message).split(":")[0] for each in caught} == {"a, seed 5", "b, seed 5"}


def test_a_line_is_read_when_all_of_it_is_there(tmp_path: Path) -> None:
    with Sweep(tmp_path) as sweep, open(sweep.path / "row.jsonl", "a") as file:
        for text, found in (('{"a": 1}\n{"a"', [{"a": 1}]), (": 2", []), ("}\n", [{"a": 2}])):
            file.write(text)
            file.flush()
            assert list(sweep.messages()) == found
