"""Rows trained at the same time are those trained one by one, and stop together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import joblib
import pytest
import torch
from helpers.small import small

import eirehn
from eirehn.experiments.parallel import train_all
from eirehn.files import RunError
from eirehn.loading import read_values
from eirehn.training.callbacks import Stopped
from eirehn.training.fit import train
from eirehn.training.folder import RunFolder
from eirehn.training.progress import Event
from eirehn.training.recipe import Recipe


def named(name: str, recipe: Recipe) -> Recipe:
    return replace(recipe, name=name)


ROWS = [named(kind, small(kind)) for kind in ("EIREHN", "SRHN", "LSTM")]
LONG = [named(f"long-{number}", small("RNN", seeds=(number,), epochs=100_000)) for number in (0, 1)]


def silent(event: Event) -> None:
    pass


def check_same(recipe: Recipe, folder: Path, other: Path) -> None:
    """That a run left what training by itself leaves, to the bit."""
    with eirehn.use_backend("auto"):  # as in processes of their own
        train(recipe, other / recipe.name)
    assert (folder / recipe.name / "metrics.csv").read_text() == (other / recipe.name / "metrics.csv").read_text()
    for name in ("best", "last"):
        ours, theirs = (read_values(each / recipe.name / f"{name}.safetensors") for each in (folder, other))
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_rows_at_once_are_those_one_by_one(jobs: int, tmp_path: Path) -> None:
    events: list[Event] = []
    ended: list[str] = []
    check_same(ROWS[1], tmp_path, tmp_path)  # which is not repeated
    with eirehn.use_backend("auto"):
        results = train_all(
            ROWS, tmp_path, jobs=jobs, tell=events.append, ended=lambda recipe, result: ended.append(recipe.name)
        )
    assert [result["recipe"] for result in results] == [recipe.name for recipe in ROWS]
    assert sorted(ended) == ["EIREHN", "LSTM"]
    last = {event.run: event for event in events}
    assert {name: (event.epoch, event.epochs) for name, event in last.items()} == dict.fromkeys(ended, (3, 3))
    assert last["LSTM"].figures.keys() >= {"train_loss", "mse"}
    for recipe in ROWS:
        check_same(recipe, tmp_path, tmp_path / "alone")
    assert not list(tmp_path.glob(".sweep*"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
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
            train_all(LONG, tmp_path, tell=interrupting)
    assert {event.run for event in events} == {"EIREHN", "SRHN"}
    for recipe in ROWS[:2]:
        check_same(recipe, tmp_path, tmp_path / "alone")
    check_stopped(tmp_path)


def interrupting(event: Event) -> None:
    """Ctrl-C, once all are under way."""
    if event.run == "long-1" and event.epoch > 2:
        raise KeyboardInterrupt


def check_stopped(folder: Path) -> None:
    for recipe in LONG:
        with RunFolder(folder / recipe.name) as run:  # nobody holds it any more
            assert run.checkpoint.exists()
            assert run.read_result() is None


@pytest.mark.slow
def test_a_row_that_fails_stops_the_others_with_their_state_saved(tmp_path: Path) -> None:
    (tmp_path / "long-1").mkdir()

    def damage(event: Event) -> None:
        (tmp_path / "failing" / "recipe.json").write_text("{")

    broken = [*LONG, named("failing", small())]
    with pytest.raises(RunError, match=r"failing/recipe.json is damaged"):
        train_all(broken, tmp_path, jobs=2, tell=damage)
