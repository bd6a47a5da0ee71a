"""A training that was stopped, wherever it was, ends with the bits of one that was not."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from helpers.quick import quick
from helpers.resume import StopAt, same, stopped, train_with_stops
from helpers.small import small, with_network

from eirehn import cli
from eirehn._internal.files import RunError, read_json
from eirehn.training.callbacks import Saving, Stopped
from eirehn.training.checkpoint import generator_states, set_generator_states
from eirehn.training.trainer import train

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "all options": {
        "schedule": "cosine",
        "clip": 0.1,
        "price": 1e-3,
        "average": 0.9,
        "optimizer": "adamw",
        "warmup": 0.2,
        "early": 0.5,
    },
}


@pytest.mark.parametrize("options", quick("all options", of=OPTIONS))
@pytest.mark.parametrize("every", quick(0.0, of=[0.0, 1e9]), ids=["saved every step", "saved on request"])
@pytest.mark.parametrize(
    "stops",
    [
        [(1, False)],
        [(3, False)],
        [(4, False)],
        [(5, True)],
        [(2, False), (6, True), (7, False), (11, False)],
        [(12, True)],
    ],
    ids=str,
)
def test_the_same_bits(
    options: str, every: float, stops: list[tuple[int, bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 4 batches an epoch, 3 epochs; dropout draws from torch's generator at every step.
    recipe = with_network(small(**OPTIONS[options]), input_dropout=0.2, hidden_dropout=0.2)
    train(recipe, tmp_path / "straight")
    train_with_stops(recipe, tmp_path / "stopped", [StopAt(at, killed=k) for at, k in stops], every)
    same(tmp_path / "stopped", tmp_path / "straight")


def test_the_same_bits_in_double_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small(precision="64-true", average=0.9)
    train(recipe, tmp_path / "straight")
    train_with_stops(recipe, tmp_path / "stopped", [StopAt(6, killed=False)], 1e9)
    same(tmp_path / "stopped", tmp_path / "straight")


def test_an_ended_run_is_not_trained_again(tmp_path: Path) -> None:
    first = train(small(), tmp_path)
    again = train(small(), tmp_path, callbacks=[StopAt(1, killed=True)])  # which would end a training
    assert again == read_json(tmp_path / "result.json")
    assert first["values"] == again["values"]


def test_a_damaged_checkpoint_is_told_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = small()
    stopped(recipe, tmp_path, 6)
    content = (tmp_path / "last.ckpt").read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"nonsense", _flipped(content)):
        (tmp_path / "last.ckpt").write_bytes(damaged)
        with pytest.raises(RunError, match=r"last.ckpt is damaged"):
            train(recipe, tmp_path)
        assert (tmp_path / "last.ckpt").read_bytes() == damaged


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :]


class AskTwice(pl.Callback):
    """Asks a training to stop in the middle of a step, and again before that step has ended."""

    ended = False

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == 5:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
            self.ended = True


class AskFirst(pl.Callback):
    """Asks a training to stop while it is being set up, before it listens."""

    def on_fit_start(self, *_: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_asked_before_it_begins(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # also where tests run in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            train(small(), tmp_path / "run", callbacks=[AskFirst()])
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert cli.main(["train", "--resume", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize("there", [0, 1, 3])
def test_another_number_of_gpus(there: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state saved with two of them."""
    states = generator_states() | {"cuda": [torch.tensor([index], dtype=torch.uint8) for index in range(2)]}
    found: dict[int, int] = {}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: found.update({device: int(state)}))
    set_generator_states(states)
    assert found == {index: index for index in range(min(there, 2))}


@pytest.mark.parametrize("meant", [True, False])
def test_asked_twice(meant: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops at once, without saving, unless that was one wish sent twice; and goes on later."""
    ask = AskTwice()
    if meant:
        monkeypatch.setattr(Saving, "IMPATIENT", 0.0)
    with pytest.raises(Stopped):
        train(small(), tmp_path / "asked", save_seconds=1000.0, callbacks=[ask])
    assert ask.ended != meant
    assert (tmp_path / "asked" / "last.ckpt").exists() != meant
    train(small(), tmp_path / "asked")
    train(small(), tmp_path / "straight")
    same(tmp_path / "asked", tmp_path / "straight")
