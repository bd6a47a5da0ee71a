"""The fused update of a training step against torch's optimisers and our own clipping and averages: on a GPU with
the step recorded, without one by kernels that are emulated, launch by launch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from helpers.captured import went_back
from helpers.cuda_on_cpu import COMPILER, Emulated
from helpers.language import small_language_recipe, written
from helpers.quick import quick
from helpers.resume import StopAt, train_with_stops
from torch import Tensor

import eirehn.training.fit as fit
from eirehn.loading import read_values
from eirehn.ops.backend import use_backend
from eirehn.ops.cuda import nvrtc
from eirehn.ops.cuda.machine import MACHINES, machine_of
from eirehn.training import update
from eirehn.training.callbacks import Stopped
from eirehn.training.capture import Captured
from eirehn.training.modules import Task
from eirehn.training.recipe import Hardware, Recipe
from eirehn.training.retreats import Retreats
from eirehn.training.tasks import LanguageModelling
from eirehn.training.update import FusedUpdate

GPU = torch.cuda.is_available()
ALIKE = 2e-2 if GPU else 2**-8
"""What our values may differ from torch's by, beside the way that they went: products of rows in place of sequences
may round to bfloat16 otherwise. On a GPU gradients of what the hypernetwork reads add up in it, too, and Adam's
first steps go by their signs."""
SGD: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.25, "sum_steps": True, "penalty": 0.05, "clip": 1.0}
RMS = {**SGD, "optimizer": "adam", "beta1": 0.0, "learning_rate": 2**-9, "recurrent_rate": 0.25, "average": 0.9}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sgd that goes back": ({**SGD, "average": 0.5, "retreat": 1.5}, {}),
    "sgd, averaged evenly": ({**SGD, "average_from": 1}, {"tied": False}),
    "rms, calibrated": (RMS, {"calibrated": True}),
    "adamw": ({**RMS, "optimizer": "adamw", "beta1": 0.9, "weight_decay": 0.1, "clip": None}, {}),
    "adam that stops early": ({**RMS, "beta1": 0.5, "early": 0.5}, {"kind": "RHN", "start": {}}),
}
GONE_ON = ["sgd that goes back", "rms, calibrated", "adamw"]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Emulated | None:
    if GPU:
        if machine_of(torch.device("cuda", 0)) is None:
            pytest.skip("this GPU is not one that the kernels are for")
        return None
    if COMPILER is None:
        pytest.skip("g++ is not installed")
    return Emulated(tmp_path_factory.mktemp("emulated"), processors=1, threads=64)


@pytest.fixture
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies are looked at when they are about to be read: behind a step the kernels have just written them. Not
    while a step is recorded, in which nothing may be waited for."""
    refresh = FusedUpdate.refresh

    def looked_at(self: FusedUpdate) -> None:
        refresh(self)
        values = self.task.ensemble.values()
        assert all(torch.equal(low, values[name].bfloat16()) for name, low in self.lows.items())

    monkeypatch.setattr(FusedUpdate, "refresh", looked_at)


@pytest.fixture
def _small_too(_machine: None, _fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "LARGE", 0)


@pytest.fixture
def _machine(emulated: Emulated | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if emulated is not None:
        monkeypatch.setitem(MACHINES, "cpu", lambda index: emulated)
        monkeypatch.setattr(Task, "_can_capture", lambda self: self.capture)
        monkeypatch.setattr(Captured, "_step", _launched)


@pytest.fixture
def _lost_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may go back does so after the second epoch; rates that make it do so lose our bits and torch's, too."""

    def lost(self: Retreats, *_: Any) -> Tensor:
        second = self.least.isfinite() & (self.share == 1)
        self.least = torch.zeros_like(self.least)  # a part of the training's state: an epoch was seen
        return second

    monkeypatch.setattr(Retreats, "lost", lost)


def _launched(self: Captured, batch: Any) -> None:
    self._refresh()
    self._compute(batch)


class Copies(pl.Callback):
    """Counts the steps by the kernels, and tells what they keep copies of."""

    def __init__(self) -> None:
        self.steps, self.names = 0, set[str]()

    def on_train_batch_end(self, trainer: pl.Trainer, task: Task, *_: Any) -> None:
        if task.captured is None or task.captured.update is None:
            return
        self.steps += 1
        self.names = set(task.captured.update.lows)
        assert not task.ensemble.lows  # validation reads the values


def plan(folder: Path, options: dict[str, Any], network: dict[str, Any], *, capture: bool = True) -> Recipe:
    """Without dropout, which recorded steps draw otherwise, and in mixed precision."""
    recipe = small_language_recipe(written(folder, train=500, test=200), **options)
    plain = dict.fromkeys(("word_dropout", "input_dropout", "hidden_dropout", "output_dropout"), 0.0)
    changes = {"hidden_size": 256 if GPU else 24, **plain, **network}
    hardware = Hardware(accelerator="gpu" if GPU else "cpu", precision="bf16-mixed", capture=capture)
    return replace(recipe, network=replace(recipe.network, **changes), hardware=hardware)


def trained(recipe: Recipe, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Copies:
    made, copies = fit.make_trainer, Copies()
    with monkeypatch.context() as patch:
        patch.setattr(fit, "make_trainer", lambda plan, path, calls: made(plan, path, [copies, *calls]))
        fit.train(recipe, folder)
    return copies


def alike(one: Path, other: Path, recipe: Recipe) -> None:
    start = fit.make_task(recipe).ensemble.values()
    for name in ("last", "best"):
        ours, theirs = (read_values(folder / f"{name}.safetensors") for folder in (one, other))
        for key, value in theirs.items():
            apart, moved = (ours[key] - value).norm(), (value - start[key]).norm()
            assert apart <= ALIKE * moved, (name, key, apart, moved)


@pytest.mark.usefixtures("_small_too", "_lost_in_time")
@pytest.mark.parametrize("case", quick("sgd that goes back", "rms, calibrated", of=CASES))
def test_it_does_what_torch_does(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, network = CASES[case]
    for capture in (True, False):
        copies = trained(plan(tmp_path, options, network, capture=capture), tmp_path / str(capture), monkeypatch)
        assert (copies.steps > 0) == capture
        if capture:
            assert ("output" if network.get("tied") is False else "embedding.weight") in copies.names
            assert not GPU or "body.cells.0.W_h" in copies.names
    assert went_back(tmp_path / "True") == (case == "sgd that goes back")
    alike(tmp_path / "True", tmp_path / "False", plan(tmp_path, options, network))


@pytest.mark.usefixtures("_small_too", "_lost_in_time")
@pytest.mark.parametrize("case", quick("sgd that goes back", of=GONE_ON))
def test_stopped_and_gone_on(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = plan(tmp_path, *CASES[case])
    fit.train(recipe, tmp_path / "straight")
    stops = [StopAt(1, killed=False), StopAt(4, killed=True), StopAt(9, killed=False)]
    train_with_stops(recipe, tmp_path / "stopped", stops, every=0.0)
    ours, theirs = (read_values(tmp_path / name / "last.safetensors") for name in ("stopped", "straight"))
    for key, value in theirs.items():
        assert torch.equal(ours[key], value), key


@pytest.mark.usefixtures("_small_too", "_lost_in_time")
@pytest.mark.parametrize("case", quick("rms, calibrated", of=GONE_ON))
@pytest.mark.parametrize("first", quick(False, of=[True, False]), ids=["kernels first", "torch first"])
def test_the_plain_path_goes_on_with_it(
    first: bool, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it with what the plain path left."""
    fit.train(plan(tmp_path, *CASES[case], capture=False), tmp_path / "straight")
    recipe = plan(tmp_path, *CASES[case], capture=first)
    made = fit.make_trainer
    with monkeypatch.context() as patch:
        patch.setattr(fit, "make_trainer", lambda *given: made(*given[:2], [StopAt(6, killed=False), *given[2]]))
        with pytest.raises(Stopped):
            fit.train(recipe, tmp_path / "changed")
    fit.train(plan(tmp_path, *CASES[case], capture=not first), tmp_path / "changed")
    alike(tmp_path / "changed", tmp_path / "straight", recipe)


@pytest.mark.slow
@pytest.mark.usefixtures("_small_too")
def test_a_value_that_nothing_reads_keeps_its_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is remembered of the others counts their steps, if it is the first of them, too."""

    def with_one_more(members: Any, optimisation: Any) -> LanguageModelling:
        for member in members:
            spare = torch.nn.Parameter(torch.ones(3, 2))
            member._parameters = {"spare": spare, **member._parameters}
        return LanguageModelling(members, optimisation)

    monkeypatch.setitem(fit.TASKS, "language", with_one_more)  # type: ignore[arg-type]  # makes one
    found = []
    for capture in (True, False):
        recipe = plan(tmp_path, {**RMS, "beta1": 0.5}, {}, capture=capture)
        trained(recipe, tmp_path / str(capture), monkeypatch)
        found.append(read_values(tmp_path / str(capture) / "last.safetensors"))
    assert torch.equal(found[0]["spare"], torch.ones(1, 3, 2))
    alike(tmp_path / "True", tmp_path / "False", recipe)


@pytest.mark.usefixtures("_small_too")
@pytest.mark.parametrize(
    "changes",
    [{"seeds": (0, 1)}, {"hardware": Hardware(accelerator="gpu" if GPU else "cpu", precision="32-true")}],
    ids=["members", "float32"],
)
def test_others_are_left_to_torch(changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = replace(plan(tmp_path, {**RMS, "epochs": 1}, {}), **changes)
    assert trained(recipe, tmp_path / "run", monkeypatch).steps == 0


@pytest.mark.usefixtures("_small_too")
def test_who_asks_for_the_plain_path_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with use_backend("reference"):
        copies = trained(plan(tmp_path, {**RMS, "epochs": 1}, {}), tmp_path / "run", monkeypatch)
    assert copies.steps == 0


@pytest.mark.usefixtures("_small_too")
@pytest.mark.parametrize("error", [nvrtc.CompileError, nvrtc.DriverError])
def test_kernels_that_cannot_be_built(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise error("too old")

    monkeypatch.setattr("eirehn.ops.cuda.update._kernel", fail)
    with pytest.warns(UserWarning, match=r"not built; torch's are used: too old"):
        copies = trained(plan(tmp_path, {**RMS, "epochs": 1}, {}), tmp_path / "run", monkeypatch)
    assert copies.steps == 0


@pytest.mark.usefixtures("_machine")
def test_small_networks_are_left_to_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = plan(tmp_path, {**RMS, "epochs": 1}, {})
    assert trained(recipe, tmp_path / "run", monkeypatch).steps == 0
    monkeypatch.setattr(update, "LARGE", 1000)
    assert trained(recipe, tmp_path / "again", monkeypatch).steps > 0
