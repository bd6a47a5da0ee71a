"""Steps recorded as CUDA graphs against the same steps launch by launch: the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.captured import (
    OPTIMIZERS,
    Watching,
    forbid_capture,
    read,
    read_with_a_stop,
    recipe,
    same,
    same_readers,
    trained,
)
from helpers.resume import StopAt, train_with_stops
from helpers.small import with_network

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
        trained(with_network(plan, **(network or {})), folder / str(capture))
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
    found = [trained(recipe(capture=each, **options), tmp_path / str(each))[0] for each in (True, False)]
    for key, value in found[1].items():
        torch.testing.assert_close(found[0][key], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("members", [1, 2])
def test_reading_on(members: int) -> None:
    same_readers(*(read(members, "gpu", capture=capture) for capture in (True, False)))


@pytest.mark.parametrize("step", [3, 10, 14])
def test_reading_stopped_and_gone_on(step: int, tmp_path: Path) -> None:
    straight = read(2, "gpu", capture=True)
    same_readers(read_with_a_stop(2, "gpu", step, tmp_path / "last.ckpt"), straight)


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
    trained(recipe(capture=False, accelerator="gpu", epochs=1), tmp_path)
