"""What holds for all commands: one line and exit code 2 for what cannot be meant, and nothing overwritten."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from helpers.command import ENVIRONMENT, done, hear_ctrl_c, refused
from helpers.ragged import TRAIN, ragged

import eirehn
from eirehn._internal.files import RunError, write_json
from eirehn.cli import COMMANDS, main

MISTAKES = {
    "frobnicate": "unknown command 'frobnicate'",
    "trian": "did you mean 'train'?",
    "train --recipe synthetic-ei-rhen-20": "did you mean 'synthetic-ei-rehn-20'?",
    "train --recipe=": "unknown recipe ''",
    "train --name=": "name must be text",
    "train --config nowhere.yaml": "nowhere.yaml",
    "train --no_such_flag 1": "unknown flag --no-such-flag",
    "train --network.hidden_size -3": "hidden_size must be greater than zero, got -3",
    "train --network.hidden_size many": "--network.hidden-size must be a whole number, got many",
    "train --network.hidden_size 100000000": "not enough memory",
    "train --network.kind QRNN": "kind must be one of RNN",
    "train --network.start {alpah:0.1}": "start",
    "train --network.calibrated true": "--network.calibrated is for language",
    "train --lr nan": "--optimisation.learning-rate must be a number, got nan",
    "train --optimisation.optimizer adagrad": "optimizer must be one of adam",
    "train --seeds [1,1]": "seeds must be different",
    "train --seeds [4294967296]": "below 2**32",
    "train --hardware.precision 8-bit": "precision must be one of",
    "train --hardware.strategy ddp_fork": "strategy must be one of auto, ddp",
    "train --resume nowhere --epochs 5": "nowhere is not a run folder: it has no recipe.json",
    "train --init nothing": "nothing holds no trained model",
    "train --recipe lm": "--text TRAIN VALIDATION TEST",
    "train --recipe lm --text a.txt b.txt": "three files",
    "train --recipe lm --text a.txt b.txt c.txt": "a.txt",
    "train --recipe lm --text a b c --level line": "level must be one of",
    "train --level char": "--level is for data of kind text",
    "train --recipe classify": "data.path must name an npz, CSV or Parquet file",
    "train --recipe classify --data none.csv": "there is no file",
    "train --recipe classify --data my.pickle": "path must end in .npz",
    "train --recipe classify --data=my.pickle": "path must end in .npz",
    "train --recipe classify --data .": "path must end in .npz",
    "train --recipe classify --data.validation 2": "must be less than 1 together, got 2.0 and 0.15",
    "reproduce": "NAME is missing: synthetic",
    "reproduce table9": "unknown experiment 'table9'",
    "reproduce synthetic --jobs 0": "--jobs must be at least 1, got 0",
    "reproduce synthetic --rows synthetic-rnn-21": "did you mean 'synthetic-rnn-20'?",
    "reproduce synthetic --results .": "--results must be a file, and . is a folder",
    "evaluate nowhere": "nowhere is not a run folder: it has no recipe.json",
    "evaluate nowhere --results .": "--results must be a file, and . is a folder",
    f"evaluate nowhere --results {os.devnull}": f"must be a file, and {os.devnull} is not one",
    f"evaluate nowhere --results {os.devnull}/x/y": f"must lie in a folder, and {os.devnull} is not one",
    "evaluate a --batch x": "eirehn: --batch must be a whole number, got x",
    "generate a --tokens 1.5": "eirehn: --tokens must be a whole number, got 1.5",
    "generate a --temperature nan": "eirehn: --temperature must be a number, got nan",
    "report nowhere": "nowhere is not a run folder",
    "recipes synthetic-bets": "did you mean 'synthetic-best'?",
    "compare": "NAME is missing",
    "compare hra": "unknown task 'hra'",
    "compare nothing.csv": "there is no file",
    "compare synthetic --layers LSTN": "did you mean 'LSTM'",
    "compare synthetic --layers LSTM,lstm": "each layer once",
    "compare synthetic --trials 0": "--trials must be at least 1",
    "compare synthetic --tuning-epochs 0": "--tuning-epochs must be at least 1",
    "compare synthetic --parameters 2 --layers LSTM": "parameters must be at least",
    "compare synthetic --data.target y": "unknown flag --data.target",
    "data": "NAME is missing",
    "data mnist": "unknown data set 'mnist'; give har or ptb",
    "data har --from missing.zip": "cannot read missing.zip",
    "data har --form x": "unknown flag --form; did you mean --from? (eirehn data --help)",
    "data ptb --from missing": "cannot read missing",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2, and nothing written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EIREHN_DATA_DIR", "data")
    assert MISTAKES[line] in refused(line, capsys)
    assert list(tmp_path.iterdir()) == []


def test_results_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reported before the work is done, and not after; of the nearest folder that is there."""
    asked = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda *given: asked.append(given))  # to root every folder is open
    told = refused("evaluate nowhere --results new/deep/results.json", capsys)
    assert f"{tmp_path} is not writable" in told
    assert asked == [(tmp_path, os.W_OK)]


def test_what_is_written_takes_the_place_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    done(f"{TRAIN} --recipe classify --data {ragged(tmp_path)} --optimisation.epochs 1 --out {run}")
    (log,) = (run / "tensorboard").glob("events*")
    (run / "last.ckpt").unlink()  # nor of what is not there
    (run / "last.safetensors").rename(tmp_path / "store")
    (run / "last.safetensors").symlink_to(tmp_path / "store")
    os.mkfifo(tmp_path / "pipe")
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    parts = [run / name for name in ("best.safetensors", "../run/recipe.json", "last.ckpt", "last.safetensors")]
    for command in (f"report {run} --out", f"evaluate {run} --results"):
        for own in (*parts, log, tmp_path / "store"):
            assert "is part of the run" in refused(f"{command} {own}", capsys)
        assert "must be a file" in refused(f"{command} {tmp_path / 'pipe'}", capsys)
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    for _ in range(2):  # beside what is the run's own there is room
        done(f"evaluate {run} --results {run / 'found'}")
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(RunError, match="it is a folder or a device, not a file"):
        write_json(tmp_path / "pipe", {})


@pytest.mark.parametrize("device", ["cuda", "foo", "meta", "mps"])
def test_devices_that_are_not_there(device: str, language_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if (device == "cuda" and torch.cuda.is_available()) or (device == "mps" and torch.mps.is_available()):
        pytest.skip("there is one")
    for command in ("generate", "evaluate"):
        told = refused(f"{command} {language_run} --device {device}", capsys)
        assert "device must be one that torch can use" in told
        assert len(told) < 300


def test_a_run_without_a_model(language_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(language_run / "recipe.json", tmp_path)
    for line in (f"evaluate {tmp_path}", f"generate {tmp_path}", f"score {tmp_path} {tmp_path / 'recipe.json'}"):
        assert "no trained model" in refused(line, capsys)


MISSING = {
    "recipes": ("jsonargparse", "train"),
    "train --name a": ("pytorch_lightning", "train"),
    "reproduce figure1": ("matplotlib", "report"),
    "reproduce synthetic": ("jinja2", "report"),  # before anything is trained
    "tune --recipe synthetic-best": ("optuna", "compare"),
    "reproduce synthetic --dask nowhere": ("distributed", "dask"),
}


def test_libraries_that_are_not_installed(tmp_path: Path) -> None:
    """One line that says how to install them, and nothing written."""
    code = f"""
        import sys
        from eirehn.cli import main

        for line, (module, _) in {MISSING}.items():
            sys.modules[module] = None
            print(main(line.split()))
            del sys.modules[module]
    """
    line = [sys.executable, "-c", textwrap.dedent(code)]
    ended = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert ended.stdout.split() == ["2"] * len(MISSING), ended.stderr
    assert ended.stderr.splitlines() == [
        f"eirehn: {module} is not installed: pip install 'eirehn[{extra}]'" for module, extra in MISSING.values()
    ]
    assert list(tmp_path.iterdir()) == []


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "reproduce NAME" in capsys.readouterr().out
    assert main([]) == 2
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == eirehn.__version__
    for command in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            raise SystemExit(main([command, "--help"]))
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: eirehn {command}")


def test_letters_a_terminal_does_not_have(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "eirehn", "--help"]
    ended = subprocess.run(
        line, env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True, cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    assert "reproduce NAME" in ended.stdout


@pytest.mark.slow
def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    line = f"{sys.executable} -m eirehn recipes | true; exit ${{PIPESTATUS[0]}}"
    settings = {key: value for key, value in ENVIRONMENT.items() if key != "PYTHONUNBUFFERED"}
    ended = subprocess.run(["bash", "-c", line], env=settings, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode in (0, 141)
    assert ended.stderr == ""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_that_comes_again_while_python_ends() -> None:
    code = """
        import atexit, os, signal, sys
        from eirehn import cli

        def send(*_):
            os.kill(os.getpid(), signal.SIGINT)

        atexit.register(send)
        cli.run = send
        sys.argv = ["eirehn", "report", "a"]
        cli.entry()
    """
    line = [sys.executable, "-c", textwrap.dedent(code)]
    ended = subprocess.run(line, capture_output=True, text=True, preexec_fn=hear_ctrl_c)
    assert (ended.returncode, ended.stderr) == (130, "eirehn: stopped\n")
