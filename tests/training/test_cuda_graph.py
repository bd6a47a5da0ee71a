"""The step as one whole, without the graph that only a GPU can record, against Lightning's loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.captured import OPTIMIZERS, forbid_capture, reading, recipe
from helpers.quick import quick
from helpers.resume import StopAt, same, train_with_stops

from eirehn.training.config import Hardware, Recipe
from eirehn.training.cuda_graph import Captured
from eirehn.training.task import Task
from eirehn.training.trainer import make_task, train


def check_both_ways(make: Callable[..., Recipe], folder: Path) -> None:
    for capture in (False, True):
        train(make(capture=capture, accelerator="cpu"), folder / str(capture))
    same(folder / "True", folder / "False")


@pytest.fixture
def _whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, but launch by launch."""
    monkeypatch.setattr(Task, "_can_capture", lambda self: self.capture)
    monkeypatch.setattr(Captured, "_step", Captured._compute)


@pytest.mark.usefixtures("_whole")
@pytest.mark.parametrize("options", quick(*OPTIMIZERS.keys() - {"soap"}, of=OPTIMIZERS))
def test_the_whole_step_is_lightnings(options: str, tmp_path: Path) -> None:
    check_both_ways(partial(recipe, dropout=0.2, **OPTIMIZERS[options]), tmp_path)


class Replayed:
    """Does again what was recorded: the same number of inner steps, of what lies where it was read."""

    def __init__(self, captured: Captured, batch: Any) -> None:
        self.captured, self.batch, self.stop = captured, batch, captured.task.stop

    def replay(self) -> None:
        task = self.captured.task
        asked, task.stop = task.stop, self.stop
        self.captured._compute(self.batch)
        task.stop = asked


def test_there_is_a_graph_for_each_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, with graphs that are none."""
    monkeypatch.setattr(Task, "_can_capture", lambda self: self.capture)
    monkeypatch.setattr(Captured, "_warm_up", lambda self, batch: None)
    monkeypatch.setattr(Captured, "_capture", lambda self, batch: Replayed(self, batch))
    check_both_ways(partial(recipe, early=0.6), tmp_path)


@pytest.mark.parametrize("recorded", [0, 1])
def test_a_failed_capture_is_a_warning(recorded: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training goes on with the same numbers, also after another graph has been recorded."""
    tried = []

    def capture(self: Captured, batch: Any) -> Replayed:
        tried.append(batch)
        if len(tried) > recorded:
            raise RuntimeError("operation not permitted when stream is capturing")
        return Replayed(self, batch)

    monkeypatch.setattr(Task, "_can_capture", lambda self: self.capture)
    monkeypatch.setattr(Captured, "_warm_up", lambda self, batch: None)
    monkeypatch.setattr(Captured, "_beside", nullcontext)
    monkeypatch.setattr(Captured, "_capture", capture)
    with pytest.warns(RuntimeWarning, match="cannot be recorded as a CUDA graph .* operation not permitted"):
        check_both_ways(recipe, tmp_path)
    assert len(tried) == recorded + 1


@pytest.mark.usefixtures("_whole")
@pytest.mark.parametrize("members", [1, 2])
def test_reading_on(members: int, tmp_path: Path) -> None:
    check_both_ways(partial(reading, tmp_path, members), tmp_path)


@pytest.mark.usefixtures("_whole")
def test_reading_stopped_and_resumed(tmp_path: Path) -> None:
    plan = reading(tmp_path, 2, capture=True, accelerator="cpu")
    train(plan, tmp_path / "straight")
    train_with_stops(plan, tmp_path / "stopped", [StopAt(step, killed=False) for step in (3, 10, 12)], every=1e9)
    same(tmp_path / "stopped", tmp_path / "straight")


def test_nothing_is_recorded_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_capture(monkeypatch)
    train(recipe(capture=True, accelerator="cpu", epochs=1), tmp_path)


def test_the_option_reaches_the_task() -> None:
    for capture in (True, False):
        described = Recipe(hardware=Hardware(capture=capture)).to_dict()
        assert make_task(Recipe.from_dict(described)).capture is capture
