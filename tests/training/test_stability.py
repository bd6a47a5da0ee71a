"""No training fails in silence: skipped steps are reported, and a seed that learns nothing stops."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.small import DATA, Sums, small, with_data
from rich.console import Console

from eirehn._internal.checks import UnstableTraining
from eirehn._internal.files import read_json
from eirehn.cli import main
from eirehn.models.io import read_values
from eirehn.recipes import har
from eirehn.training.callbacks import Event
from eirehn.training.config import Recipe
from eirehn.training.display import Display
from eirehn.training.ensemble import Ensemble
from eirehn.training.run import RunFolder
from eirehn.training.trainer import Tensors, make_task, train, train_in_memory

STEPS = 4  # an epoch of `small`
BECAUSE = "because their gradients were not finite"


def exploding(**options: Any) -> Recipe:
    """The first training step takes the weights so far that the loss of all others is infinite."""
    return small("SREHN", **{"clip": 1.0, "epochs": 5, "learning_rate": 1e30, **options})


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
            f"small-srehn, seed {seed}: training stopped after epoch 2: no step of it had a finite gradient"
            for seed in (0, 1)
        ),
    ]
    assert result["stopped_epoch"] == [2, 2]
    assert read_json(tmp_path / "run" / "result.json")["stopped_epoch"] == [2, 2]
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 5  # two epochs, and not five


def test_other_seeds_go_on_and_a_stopped_one_keeps_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"epochs": 4, "clip": 1.0, "optimizer": "adamw", "weight_decay": 0.5, "precision": "64-true"}
    alone = train(small(seeds=(0,), **options), tmp_path / "alone")
    spoil(monkeypatch, {1: set(range(STEPS, 2 * STEPS))})  # the second epoch
    events: list[Event] = []
    with pytest.warns(UnstableTraining, match="seed 1: training stopped after epoch 2: no step of it"):
        result = train(small(seeds=(0, 1), **options), tmp_path / "both", tell=events.append)
    assert result["stopped_epoch"] == [None, 2]
    assert result["values"][0] == pytest.approx(alone["values"][0], rel=1e-9)
    assert [event.stopped for event in events if event.step == 3 * STEPS][-1] == (1,)
    history = [line.split(",") for line in (tmp_path / "both" / "metrics.csv").read_text().splitlines()]
    metric = [float(row[3]) for row in history[1:] if row[1] == "1"]
    assert np.isfinite(metric).tolist() == [True, True, False, False]
    values = read_values(tmp_path / "both" / "last.safetensors")
    model = make_task(small(seeds=(0, 1), **options)).double()
    ours = model.measure([DATA.load().validation], values)[0]
    assert ours[1] == pytest.approx(metric[1])  # weight decay would change it
    assert history[0][-1] == "skipped_steps"
    assert [float(row[-1]) for row in history[1:] if row[1] == "1"][1] == STEPS


def test_the_progress_of_stopped_seeds_is_not_averaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, {1: set(range(STEPS))})
    events: list[Event] = []
    with pytest.warns(UnstableTraining):
        train(small(seeds=(0, 1), epochs=2, clip=1.0), tmp_path / "run", tell=events.append)
    rows = [line.split(",") for line in (tmp_path / "run" / "metrics.csv").read_text().splitlines()[1:]]
    assert events[-1].figures["train_loss"] == pytest.approx(float(rows[-2][2]))  # seed 0 alone
    assert "stopped: seed 1" in shown(events[-1])
    assert "stopped: seeds 1, 3" in shown(replace(events[-1], stopped=(1, 3)))
    assert "stopped" not in shown(replace(events[-1], stopped=()))


def shown(event: Event) -> str:
    text = io.StringIO()
    with Display(Console(file=text, width=300)) as display:
        display(replace(event, epoch=0))
        display(event)
    return text.getvalue()


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


def test_weights_that_are_not_finite_stop_a_training_without_clipping(tmp_path: Path) -> None:
    with pytest.warns(
        UnstableTraining, match=r"seed 0: training stopped after epoch 1: its weights are not finite"
    ):
        result = train(exploding(clip=None, seeds=(0,)), tmp_path / "run")
    assert result["stopped_epoch"] == [1]


def test_a_killed_training_that_had_stopped_ends_as_it_was(tmp_path: Path) -> None:
    with pytest.warns(UnstableTraining):
        result = train(exploding(), tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    history, last = (tmp_path / "run" / "metrics.csv").read_text(), values(tmp_path / "run")
    again = train(exploding(), tmp_path / "run")  # without a warning: there is no further epoch
    assert again["stopped_epoch"] == result["stopped_epoch"]
    assert again["values"] == result["values"]
    assert (tmp_path / "run" / "metrics.csv").read_text() == history
    for name, value in values(tmp_path / "run").items():
        assert torch.equal(value, last[name])


def values(run: Path) -> dict[str, torch.Tensor]:
    return read_values(run / "last.safetensors")


def test_in_memory_too() -> None:
    data = Tensors(DATA.load(), "regression", 2, last=False)
    with pytest.warns(UnstableTraining) as caught:
        train_in_memory(replace(exploding(seeds=(0,)), data=data))
    assert str(caught[-1].message).startswith("small-srehn, seed 0: training stopped after epoch 2")


def test_an_estimator_is_not_fitted_where_predictions_are_not_finite() -> None:
    """Its weights are finite here, if large."""
    pytest.importorskip("sklearn")
    from eirehn.sklearn import ElasticClassifier

    x = np.random.default_rng(0).normal(size=(48, 30, 2))
    model = ElasticClassifier(epochs=4, random_state=1, learning_rate=1e5)
    diverged = pytest.raises(ValueError, match="diverged, predictions are not finite")
    with pytest.warns(UnstableTraining), diverged:
        model.fit(x, x[:, :, 0].mean(1) > 0)


def test_an_estimator_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    from eirehn.sklearn import ElasticClassifier

    X = np.random.default_rng(0).normal(size=(32, 20, 2))
    spoil(monkeypatch, {0: {2, 3}})  # both steps of the second epoch
    with pytest.warns(UnstableTraining, match="training stopped after epoch 2"):
        ElasticClassifier(hidden_size=4, epochs=3, random_state=0).fit(X, X[:, 0, 1] > 0)


def run_command(recipe: Recipe, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    config = folder.parent / "recipe.json"
    content = asdict(recipe)
    content["data"] = {"kind": "synthetic", **content["data"]}
    config.write_text(json.dumps(content))
    command = [sys.executable, "-m", "eirehn", "train", "--config", str(config), "--out", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_ends_with_an_exit_code_and_one_line_a_seed(tmp_path: Path) -> None:
    done = run_command(exploding(), tmp_path / "run")
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if "warning" in line]
    assert [line.split(":")[2] for line in said] == [
        " small-srehn, seed 0",
        " small-srehn, seed 1",
    ] * 2  # some steps, then all of them
    assert all(line.startswith("eirehn: warning: small") and ".py" not in line for line in said)
    assert "training was unstable and stopped after epoch 2" in done.stdout
    assert "Traceback" not in done.stderr
    assert run_command(exploding(), tmp_path / "run").returncode == 1  # it had ended, and as before
    assert run_command(small(), tmp_path / "fine").returncode == 0


@pytest.mark.parametrize("validation", [20, 0], ids=["validated", "not validated"])
def test_a_stopped_seed_keeps_its_average_and_its_best_epoch(
    validation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = with_data(small(seeds=(0, 1), epochs=5, clip=1.0, average=0.9), Sums(train=64, validation=validation))
    spoil(monkeypatch, {1: set(range(STEPS, 2 * STEPS))})
    with pytest.warns(UnstableTraining):
        result = train(recipe, tmp_path / "run")
    assert result["stopped_epoch"] == [None, 2]
    assert result["best_epoch"][1] <= 2
    rows = [line.split(",") for line in (tmp_path / "run" / "metrics.csv").read_text().splitlines()[1:]]
    assert [row[3] for row in rows if row[1] == "1"][2:] == ["nan"] * 3
    monkeypatch.undo()
    spoil(monkeypatch, {1: set(range(STEPS, 2 * STEPS))})
    with pytest.warns(UnstableTraining):
        train(replace(recipe, optimisation=replace(recipe.optimisation, epochs=2)), tmp_path / "short")
    for name, value in values(tmp_path / "short").items():
        assert torch.equal(value[1], values(tmp_path / "run")[name][1])


def test_a_run_of_version_01(tmp_path: Path) -> None:
    """Its recipe, whose weight update had another name and whose initial values were not written out, is ours."""
    recipe = next(each for each in har.table2() if each.network.kind == "EIREHN")
    content = recipe.to_dict()
    content["network"] |= {"weight_update": "printed", "start": {"gate_bias": -2.0}}
    assert Recipe.from_dict(content).differences(recipe) == []
    shallow = next(each for each in har.table2() if each.network.kind == "LSTM")
    content = shallow.to_dict()
    content["network"]["weight_update"] = "printed"
    assert Recipe.from_dict(content).differences(shallow) == []
    assert shallow.differences(Recipe.from_dict(content)) == []


def test_reproduce_has_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the results of a run that had ended."""
    words = ["reproduce", "synthetic", "--rows", "rnn-20", "--epochs", "1", "--seeds", "1", "--sequences", "20"]
    words += ["--out", str(tmp_path), "--jobs", "1"]
    assert main(words) == 0
    run = RunFolder(tmp_path / "synthetic-rnn-20")
    run.result.write_text(json.dumps({**json.loads(run.result.read_text()), "stopped_epoch": [1]}))
    assert main(words) == 1
    assert "1, 1 unstable" in capsys.readouterr().out
