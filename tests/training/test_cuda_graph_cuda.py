"""Steps recorded as CUDA graphs against the same steps launch by launch: the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.captured import OPTIMIZERS, Watching, forbid_capture, reading, recipe
from helpers.resume import StopAt, same, train_with_stops
from helpers.small import with_network

from eirehn.models.io import read_values
from eirehn.training.cuda_graph import Captured
from eirehn.training.trainer import train

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


KINDS = {
    "RNN": {},
    "LSTM": {"num_layers": 2, "dropout": 0.5},
    "RHN": {},
    "SREHN": {},
    "ACT": {},
    "EIREHN": {"weight_update": "outer"},  # has no kernel of its own
}


def compare(folder: Path, *, network: dict[str, Any] | None = None, **options: Any) -> None:
    for capture in (True, False):
        plan = recipe(capture=capture, accelerator="gpu", **options)
        train(with_network(plan, **(network or {})), folder / str(capture))
    same(folder / "True", folder / "False")


@pytest.mark.parametrize("members", [1, 5])
@pytest.mark.parametrize("options", OPTIMIZERS)
def test_optimisers(options: str, members: int, tmp_path: Path) -> None:
    compare(tmp_path, seeds=tuple(range(members)), dropout=0.2, **OPTIMIZERS[options])


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_precisions(precision: str, tmp_path: Path) -> None:
    compare(tmp_path, precision=precision, dropout=0.2)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_networks(kind: str, members: int, tmp_path: Path) -> None:
    compare(tmp_path, network={"kind": kind, **KINDS[kind]}, seeds=tuple(range(members)), epochs=2)


def test_a_schedule(tmp_path: Path) -> None:
    """A recorded step reads its rate in float32."""
    options: dict[str, Any] = {"accelerator": "gpu", "schedule": "cosine", "warmup": 0.3}
    for capture in (True, False):
        train(recipe(capture=capture, **options), tmp_path / str(capture))
    ours, theirs = (read_values(tmp_path / each / "last.safetensors") for each in ("True", "False"))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("members", [1, 2])
def test_reading_on(members: int, tmp_path: Path) -> None:
    for capture in (True, False):
        train(reading(tmp_path, members, capture=capture, accelerator="gpu"), tmp_path / str(capture))
    same(tmp_path / "True", tmp_path / "False")


def test_reading_stopped_and_resumed(tmp_path: Path) -> None:
    plan = reading(tmp_path, 2, capture=True, accelerator="gpu")
    train(plan, tmp_path / "straight")
    train_with_stops(plan, tmp_path / "stopped", [StopAt(step, killed=False) for step in (3, 10, 12)], every=1e9)
    same(tmp_path / "stopped", tmp_path / "straight")


@pytest.mark.parametrize(
    ("options", "stops"),
    [
        ("adamw and all options", [(1, False), (2, True), (6, True), (7, False), (12, True)]),
        ("soap", [(3, False), (99, False), (101, True), (105, False)]),
    ],
    ids=["adamw", "soap"],
)
def test_stopped_and_gone_on(options: str, stops: list[tuple[int, bool]], tmp_path: Path) -> None:
    plan = recipe(capture=True, accelerator="gpu", dropout=0.2, schedule="cosine", **OPTIMIZERS[options])
    train(plan, tmp_path / "straight")
    stopping = [StopAt(at, killed=killed) for at, killed in stops]
    train_with_stops(plan, tmp_path / "stopped", stopping, every=0.0)
    same(tmp_path / "stopped", tmp_path / "straight")


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("optimizer", ["adam", "sgd", "soap"])
def test_no_step_waits(optimizer: str, tmp_path: Path) -> None:
    watching = Watching(1)
    plan = recipe(capture=True, accelerator="gpu", optimizer=optimizer, schedule="cosine")
    try:
        train(replace(plan, data=replace(plan.data, turn=True)), tmp_path, callbacks=[watching])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert watching.graphs == 2  # of whole batches and of the last, smaller one


def test_beyond_the_limit_steps_run_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Captured, "LIMIT", 1)
    compare(tmp_path, dropout=0.2)


def test_it_can_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_capture(monkeypatch)
    train(recipe(capture=False, accelerator="gpu", epochs=1), tmp_path)
