"""No training fails in silence, and one that is asked to stops."""

from __future__ import annotations

import os
import shutil
import signal
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from helpers.resume import same
from helpers.small import DATA, exploding, small

from eirehn import cli
from eirehn._internal.checks import UnstableTraining
from eirehn._internal.files import read_json
from eirehn.models.io import read_values
from eirehn.training.callbacks import Event, Saving, Stopped
from eirehn.training.ensemble import Ensemble
from eirehn.training.trainer import make_task, train

STEPS = 4  # an epoch of `small`
BECAUSE = "because their gradients were not finite"


def spoil(monkeypatch: pytest.MonkeyPatch, which: dict[int, set[int]]) -> None:
    """Makes the gradients of member m NaN at the training steps `which[m]`, counted from 0."""
    clip, step = Ensemble.clip_gradients, [0]

    def spoiled(self: Ensemble, norm: float) -> torch.Tensor:
        for member, steps in which.items():
            if step[0] in steps:
                self.stacked[0].grad[member] = torch.nan
        step[0] += 1
        return clip(self, norm)

    monkeypatch.setattr(Ensemble, "clip_gradients", spoiled)


def test_a_training_whose_every_step_is_skipped_stops_and_says_so(tmp_path: Path) -> None:
    with pytest.warns(UnstableTraining) as caught:
        result = train(exploding(), tmp_path / "run")
    texts = [str(warning.message) for warning in caught]
    assert all("The network is unstable: lower the learning rate" in text for text in texts)
    assert [text.split(".")[0] for text in texts] == [
        *(f"small-srehn, seed {seed}: 3 of the 4 steps of epoch 1 were skipped {BECAUSE}" for seed in (0, 1)),
        *(
            f"small-srehn, seed {seed}: training stopped after epoch 2: none of its steps had a finite gradient"
            for seed in (0, 1)
        ),
    ]
    assert result["stopped_epoch"] == read_json(tmp_path / "run" / "result.json")["stopped_epoch"] == [2, 2]
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 5  # two epochs, and not five
    # One that was killed before it wrote its result ends as it was, without a warning: there is no further epoch.
    shutil.copytree(tmp_path / "run", tmp_path / "killed")
    (tmp_path / "killed" / "result.json").unlink()
    train(exploding(), tmp_path / "killed")
    same(tmp_path / "killed", tmp_path / "run")


@pytest.mark.parametrize("average", [{}, {"average": 0.9}], ids=str)
def test_other_seeds_go_on_and_a_stopped_one_keeps_its_values(
    average: dict[str, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "epochs": 4,
        "clip": 1.0,
        "optimizer": "adamw",
        "weight_decay": 0.5,
        "precision": "64-true",
        **average,
    }
    alone = train(small(seeds=(0,), **options), tmp_path / "alone")
    spoil(monkeypatch, {1: set(range(STEPS, 2 * STEPS))})  # the second epoch
    events: list[Event] = []
    with pytest.warns(UnstableTraining, match="seed 1: training stopped after epoch 2: none of its steps"):
        result = train(small(seeds=(0, 1), **options), tmp_path / "both", tell=events.append)
    assert result["stopped_epoch"] == [None, 2]
    assert result["values"][0] == pytest.approx(alone["values"][0], rel=1e-9)
    assert result["best_epoch"][1] <= 2
    assert events[-1].stopped == (1,)
    history = [line.split(",") for line in (tmp_path / "both" / "metrics.csv").read_text().splitlines()]
    metric = [float(row[3]) for row in history[1:] if row[1] == "1"]
    assert np.isfinite(metric).tolist() == [True, True, False, False]
    values = read_values(tmp_path / "both" / "last.safetensors")
    model = make_task(small(seeds=(0, 1), **options)).double()
    ours = model.measure([DATA.load().validation], values)[0]
    assert ours[1] == pytest.approx(metric[1])  # weight decay would change it
    assert history[0][-1] == "skipped_steps"
    assert [float(row[-1]) for row in history[1:] if row[1] == "1"][1] == STEPS
    then = [event for event in events if event.epoch == 2][-1]
    of_seed_0 = dict(zip(history[0][2:], map(float, history[3][2:]), strict=True))
    assert then.figures == pytest.approx(of_seed_0)  # what has stopped is not averaged


def test_some_skipped_steps_are_a_warning_once_and_few_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, {1: {1, 5, 6}})  # 1 step of the first epoch, 2 of the second
    with pytest.warns(UnstableTraining) as caught:
        result = train(small(seeds=(0, 7), clip=1.0), tmp_path / "run")
    (warning,) = caught
    assert str(warning.message).startswith("small-eirehn, seed 7: 1 of the 4 steps of epoch 1 were skipped")
    assert result["stopped_epoch"] == [None, None]
    monkeypatch.undo()
    spoil(monkeypatch, {0: {3}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        many = replace(small(seeds=(0,), clip=1.0, batch_size=2, epochs=1), name="many")  # 30 steps
        train(many, tmp_path / "many")


class AskTwice(pl.Callback):
    """Asks a training to stop in the middle of a step, and again before that step has ended."""

    ended = False

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step == 5:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)
            self.ended = True


def test_asked_before_it_begins(tmp_path: Path) -> None:
    """While the training is being set up, and does not listen yet."""
    ask = pl.callbacks.LambdaCallback(on_fit_start=lambda *_: os.kill(os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # also where tests run in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            train(small(), tmp_path / "run", callbacks=[ask])
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert cli.main(["train", "--resume", str(tmp_path / "run")]) == 0


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
