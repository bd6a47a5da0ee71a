"""`eirehn train`: by recipes, files and texts, resumed, and stopped by signals."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.command import ENVIRONMENT, command, done, refused, started
from helpers.language import small_language_recipe, written
from helpers.ragged import TRAIN, changed, ragged
from helpers.resume import same
from helpers.small import exploding

import eirehn
from eirehn._internal.files import read_json
from eirehn.cli import main
from eirehn.data import text
from eirehn.data.table import FileData
from eirehn.data.text import TextData
from eirehn.data.vocabulary import Vocabulary
from eirehn.training.evaluate import evaluate
from eirehn.training.run import RunFolder
from eirehn.training.trainer import train

SYNTHETIC = (
    "train --recipe synthetic-ei-rehn-10 --data.train 60 --data.validation 20 --data.test 20 --seeds [0,1] "
    "--hardware.accelerator cpu --optimisation.epochs"
)


def of_texts(data: TextData, more: str = "") -> str:
    return (
        f"train --text {data.train} {data.validation} {data.test} --network.hidden_size=4 --network.max_depth=1 "
        f"--data.steps=5 --optimisation.epochs=1 --hardware.accelerator=cpu {more}"
    )


@pytest.fixture
def texts(tmp_path: Path) -> TextData:
    return written(tmp_path, train=500, test=100)


def test_made_longer_and_started_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    done(f"{SYNTHETIC} 2 --out {run}")
    done(f"train --resume {run} --epochs 3")
    assert f"run: {run}" in capsys.readouterr().out
    assert RunFolder(run).recipe().optimisation.epochs == 3
    assert len((run / "metrics.csv").read_text().splitlines()) == 1 + 3 * 2
    wrong = {
        "cannot be made shorter": "--optimisation.epochs 0",
        "only --epochs can be given, got --optimisation.learning-rate": "--lr 0.1",
        "epochs must be a whole number, got 100.0 (": "--epochs 1e2",
    }
    for told, words in wrong.items():
        assert told in refused(f"train --resume {run} {words}", capsys)
    assert RunFolder(run).recipe().optimisation.epochs == 3
    done(f"{SYNTHETIC} 1 --out {tmp_path / 'second'} --init {run}")
    assert RunFolder(tmp_path / "second").recipe().init == str(run)


def test_loggers(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    assert "logger must be one of tensorboard, csv," in refused(f"{SYNTHETIC} 1 --out {run} --logger csv,x", capsys)
    monkeypatch.setitem(sys.modules, "wandb", None)
    hint = "eirehn: wandb is not installed: pip install 'eirehn[wandb]'\n"
    assert refused(f"{SYNTHETIC} 1 --out {run} --logger csv,wandb", capsys) == hint
    assert not run.exists()
    done(f"{SYNTHETIC} 1 --out {run} --logger csv")
    assert not (run / "tensorboard").exists()
    done(f"train --resume {run} --epochs 2")
    assert not (run / "tensorboard").exists()


@pytest.mark.slow
def test_an_unstable_training_has_an_exit_code_and_one_line_a_seed(tmp_path: Path) -> None:
    recipe, config = exploding(), tmp_path / "recipe.json"
    config.write_text(json.dumps({**asdict(recipe), "data": {"kind": "synthetic", **asdict(recipe.data)}}))
    ended = command(f"train --config {config} --out run", tmp_path)
    assert ended.returncode == 1
    said = [line for line in ended.stderr.splitlines() if "warning" in line]
    assert [line.split(":")[2] for line in said] == [" small-srehn, seed 0", " small-srehn, seed 1"] * 2
    assert all(line.startswith("eirehn: warning: small") and ".py" not in line for line in said)
    assert "training was unstable and stopped after epoch 2" in ended.stdout
    assert "Traceback" not in ended.stderr
    assert main(["train", "--resume", str(tmp_path / "run")]) == 1  # it had ended, and as before


@pytest.mark.parametrize("validation", [0.2, 0.0])
def test_classify(validation: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing is held out, the last epoch counts. `eirehn.load` gives a model of the file's own units."""
    path, run = ragged(tmp_path), tmp_path / "run"
    line = f"{TRAIN} --recipe classify --data {path} --data.class_weights balanced --data.validation {validation}"
    done(f"{line} --optimisation.epochs 4 --out {run}")
    result = read_json(run / "result.json")
    done(f"evaluate {run}")
    shown = capsys.readouterr().out
    assert all(f"seed {seed}: accuracy {value:.6g}" in shown for seed, value in enumerate(result["values"]))
    if not validation:
        assert result["best_epoch"] == [4, 4]
        assert result["values"] == result["final_values"]
        told = refused(f"evaluate {run} --split validation", capsys)
        assert "has no sequences for validation" in told
    data = RunFolder(run).recipe().data
    assert isinstance(data, FileData)
    assert Path(data.path) == path.resolve()
    with np.load(path) as file:
        x, y, lengths = file["X"], file["y"], file["lengths"]
    for seed, expected in enumerate(result["values"]):
        model, right = eirehn.load(run, seed=seed), []
        assert model.classes == ("above", "below")
        for row in data.division.test:
            with torch.no_grad():
                answer = model(torch.from_numpy(x[row : row + 1, : lengths[row]])).argmax(-1)
            right.append(model.classes[int(answer)] == y[row])
        assert np.mean(right) == pytest.approx(expected)


def test_regress(tmp_path: Path) -> None:
    """The error is in units of the target's deviation, the model's answers in the file's own."""
    path, run = ragged(tmp_path), tmp_path / "run"
    done(f"{TRAIN} --recipe=regress --data={path} --data.target level --optimisation.epochs=4 --out {run}")
    data = RunFolder(run).recipe().data
    assert isinstance(data, FileData)
    rows = data.division.test
    with np.load(path) as file:
        x, level, lengths = file["X"][rows], file["level"][rows], file["lengths"][rows]
    with torch.no_grad():
        found = eirehn.load(run, seed=1)(torch.from_numpy(x), lengths=torch.from_numpy(lengths))[:, 0].numpy()
    error = np.mean((found - level) ** 2) / data.scaling.target_scale[0] ** 2
    assert read_json(run / "result.json")["values"][1] == pytest.approx(error, rel=1e-4)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "RHN", "SREHN", "ACT"])
def test_other_networks_by_the_recipes_of_elastic_ones(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the options that only a highway network has; a depth_penalty is for those that choose their depth."""
    line = f"{TRAIN} --data {ragged(tmp_path)} --recipe classify --optimisation.epochs 1 --network.kind {kind}"
    line += " --network.max_depth 1" if kind in ("RNN", "LSTM") else ""
    done(f"{line} --out {tmp_path / 'run'}")
    if kind in ("SREHN", "ACT"):
        done(f"{line} --out {tmp_path / 'penalised'} --optimisation.depth_penalty 0.1")
    else:
        told = refused(f"{line} --out {tmp_path / 'penalised'} --optimisation.depth_penalty 0.1", capsys)
        assert "depth_penalty needs a network with adaptive depth" in told
    if kind in ("RNN", "LSTM", "ACT"):
        line = of_texts(written(tmp_path, train=500, test=100), f"--network.kind={kind} --out {tmp_path / 'text'}")
        done(line)
        network = RunFolder(tmp_path / "text").recipe().network
        assert (network.kind, dict(network.start), network.hidden_dropout) == (kind, {"weight_bound": 0.04}, 0.0)
        refused(f"{line} --network.hidden_dropout=0.1", capsys)


def test_a_file_that_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, run = ragged(tmp_path), tmp_path / "run"
    line = f"{TRAIN} --recipe classify --data {path} --optimisation.epochs 1 --out {run}"
    done(line)
    changed(path, path)
    assert f"the data file has changed since {run} was first trained" in refused(line, capsys)
    assert "has changed since it was first used for training" in refused(f"evaluate {run}", capsys)


def test_flags_change_what_a_yaml_file_says_wherever_it_stands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done("recipes classify")
    (tmp_path / "my.yaml").write_text(capsys.readouterr().out)
    path = ragged(tmp_path)
    flags = f"--data {path} --data.test 0.2 --optimisation.epochs 1"
    config = tmp_path / "my.yaml"
    for number, words in enumerate((f"--config {config} {flags}", f"{flags} --config={config}")):
        done(f"{TRAIN} {words} --out {tmp_path / str(number)}")
        recipe = RunFolder(tmp_path / str(number)).recipe()
        assert recipe.data == FileData(path=str(path), test=0.2).pinned()
        assert recipe.network.hidden_dropout == 0.2
    config.write_text("recipe: synthetic-rnn-20\n")
    assert "--recipe must be given on the command line" in refused(f"train --config {config}", capsys)


@pytest.mark.parametrize("hardware", ["accelerator gpu", "accelerator tpu", "devices 0", "devices lots"])
def test_hardware_that_is_not_there(
    hardware: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if torch.cuda.is_available():
        pytest.skip("it is there")
    monkeypatch.chdir(tmp_path)
    assert refused(f"{SYNTHETIC} 1 --hardware.{hardware}", capsys).startswith("eirehn: hardware: ")


def test_texts(texts: TextData, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Any three, by words and by characters, and by a recipe of their own."""
    for level in ("word", "char"):
        run = tmp_path / level
        done(of_texts(texts, f"--level {level} --out {run}"))
        assert "test perplexity" in capsys.readouterr().out
        assert Vocabulary.load(run / "vocabulary.json").level == level
        done(f"evaluate {run} --split test --batch 1")
        assert "mean: perplexity" in capsys.readouterr().out
        done(f"generate {run} --tokens 5")
        assert capsys.readouterr().out.strip()
        recipe = RunFolder(run).recipe()
        assert (recipe.name, recipe.optimisation.optimizer, recipe.seeds) == ("lm", "adamw", (0,))


def test_texts_that_have_changed(texts: TextData, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By no training or evaluation are other words taken for those a model has learned."""
    run = tmp_path / "run"
    done(of_texts(texts, f"--out {run}"))
    done(f"train --resume={run}")  # written so, too, it means this run
    assert capsys.readouterr().out.count(f"run: {run}") == 2
    Path(texts.train).write_text(Path(texts.train).read_text("utf-8").replace("w1 ", "zebra "), "utf-8")
    for line in (f"evaluate {run}", f"train --resume {run}"):
        assert "a text has changed since the training began" in refused(line, capsys)
    done(f"generate {run} --tokens 3")  # has a vocabulary of its own


def test_texts_without_a_checksum_that_have_changed(
    texts: TextData, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same words by other numbers: as many, so that the model fits, and would be read wrongly."""
    run, recipe = tmp_path / "run", small_language_recipe(texts, epochs=1)  # which has none
    train(recipe, run)
    before, content = evaluate(run), Path(texts.train).read_text("utf-8")
    Path(texts.train).write_text(content + "\n", "utf-8")
    assert evaluate(run) == before
    rarest = recipe.data.vocabulary().tokens[-2]  # but for <unk>, which does not stand there
    Path(texts.train).write_text(content + f"{rarest} " * 1000 + "\n", "utf-8")
    assert len(recipe.data.vocabulary()) == len(Vocabulary.load(run / "vocabulary.json"))
    (run / "result.json").unlink()
    for line in (f"evaluate {run}", f"evaluate {run} --together", f"train --resume {run}"):
        told = f"eirehn: the training text of {run} has changed since: its vocabulary is different\n"
        assert refused(line, capsys) == told
    assert not (run / "result.json").exists()


def test_texts_that_cannot_be_read(texts: TextData, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Too short ones, and a pipe, which could be read only once, and waited for without end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "few").write_text("a b c\n")
    (tmp_path / "one").write_text("a")
    rest = f"{texts.validation} {texts.test}"
    wrong = {
        f"pipe {rest}": "pipe is a pipe; it must be a file, as it is read more than once\n",
        f"few {rest}": "it has 4 tokens, and 701 are needed",
        f"few one {texts.test} --level char": "must have at least two characters",
    }
    for given, told in wrong.items():
        words = " ".join(str(tmp_path / word) if (tmp_path / word).exists() else word for word in given.split())
        assert told in refused(f"train --recipe lm --text {words} --out {tmp_path / 'run'}", capsys)
        assert not (tmp_path / "run").exists()


def test_a_text_that_takes_long_is_reported_once(
    texts: TextData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EIREHN_CACHE_DIR", str(tmp_path / "cache"))
    for large, run, expected in ((1 << 20, "a", 0), (100, "b", 1), (100, "c", 0)):
        monkeypatch.setattr(text, "LARGE", large)
        text._read_texts.cache_clear()  # as in a new process
        done(of_texts(texts, f"--out {tmp_path / run}"))
        assert capsys.readouterr().err.count(f"reading {texts.train}, once") == expected


@pytest.mark.slow
def test_killed_and_gone_on_with(tmp_path: Path) -> None:
    """kill -9 at some moment, then the same command: the bits of a run that was left alone."""
    straight = command(f"{SYNTHETIC} 60 --out straight", tmp_path)
    assert straight.returncode == 0, straight.stderr
    line = f"{SYNTHETIC} 60 --out killed"
    for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 130), (signal.SIGINT, 130)):
        with started(line, tmp_path) as process:
            assert process.stderr is not None
            process.stderr.readline()  # the first tenth of this start's epochs is over
            process.send_signal(number)
            told = process.stderr.read()
        assert process.returncode == code
        if code == 130:
            stopped = r"^eirehn: stopped; the same command resumes .*: eirehn train --recipe .*$"
            assert re.search(stopped, told, re.M)
            assert (tmp_path / "killed" / "last.ckpt").exists()
    assert command(line, tmp_path).returncode == 0
    same(tmp_path / "killed", tmp_path / "straight")


@pytest.mark.slow
def test_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    line = [sys.executable, "-m", "eirehn", *f"{SYNTHETIC} 80".split()]  # long enough to be shown
    process = subprocess.Popen(line, cwd=tmp_path, env={**ENVIRONMENT, "TERM": "xterm"}, stderr=slave, stdout=slave)
    os.close(slave)
    shown, deadline = b"", time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    assert process.wait() == 0
    for word in ("\x1b[", "synthetic-ei-rehn-10", "train loss", "mse", "depth", "left"):
        assert word in shown.decode()
