"""The real command line, in a folder of its own."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import torch
import yaml

import eirehn
from eirehn.files import read_json
from eirehn.loading import read_values
from eirehn.training.folder import RunFolder

TINY = ["--epochs", "2", "--seeds", "2", "--sequences", "40"]
ROWS = ["synthetic-rnn-20", "synthetic-ei-rehn-10", "synthetic-srhn-20-depth-2", "synthetic-ei-rehn-20-price-1e-03"]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-W", "error::DeprecationWarning:eirehn", "-m", "eirehn", *words]
    return subprocess.run(line, cwd=folder, env=environment(), capture_output=True, text=True, timeout=600)


def small_training(folder: str = "run", *, epochs: int = 3, train: int = 60) -> list[str]:
    sizes = ["--data.train", str(train), "--data.validation", "20", "--data.test", "20"]
    rest = ["--optimisation.epochs", str(epochs), "--seeds", "[0,1]", "--hardware.accelerator", "cpu"]
    return ["train", "--recipe", "synthetic-ei-rehn-10", "--out", folder, *sizes, *rest]


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("reproduced")
    return folder, command(folder, "reproduce", "synthetic", *TINY, "--rows", *ROWS, "--out", "runs")


@pytest.mark.slow
def test_reproduce(reproduced: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = reproduced
    assert done.returncode == 0, done.stderr
    results = read_json(folder / "runs" / "results.json")
    assert [row["recipe"] for row in results["rows"]] == ROWS
    assert results["quick"] is True
    assert results["command"].startswith("eirehn reproduce synthetic --epochs 2")
    assert results["bayes_floor"] == pytest.approx(0.427e-3, abs=0.004e-3)
    rows = {row["recipe"]: row for row in results["rows"]}
    assert rows["synthetic-rnn-20"]["parameters"] == 502
    assert rows["synthetic-ei-rehn-10"]["parameters"] == 807
    assert rows["synthetic-rnn-20"]["paper"] == pytest.approx(1.01e-3)
    assert rows["synthetic-srhn-20-depth-2"]["paper"] == pytest.approx(0.63e-3)
    assert rows["synthetic-ei-rehn-20-price-1e-03"]["paper"] is None
    for row in results["rows"]:
        assert len(row["values"]) == 2
        assert row["mean"] == pytest.approx(sum(row["values"]) / 2)
    page = (folder / "runs" / "report.html").read_text()
    assert "Changed: epochs" in page
    assert "EI-REHN-10" in page
    assert "runs/report.html" in done.stdout


@pytest.mark.slow
def test_output_to_a_pipe_has_no_escape_codes(reproduced: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = reproduced
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr
    assert "synthetic-ei-rehn-10" in done.stderr


@pytest.mark.slow
def test_reproduce_again_trains_nothing(reproduced: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, first = reproduced
    before = {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("*/best.safetensors")}
    again = command(folder, "reproduce", "synthetic", *TINY, "--rows", *ROWS, "--out", "runs")
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert again.stdout == first.stdout


@pytest.mark.slow
def test_a_report_of_chosen_runs(reproduced: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = reproduced
    done = command(folder, "report", *(f"runs/{name}" for name in ROWS[:2]), "--out", "mine.html")
    assert done.returncode == 0, done.stderr
    assert "RNN-20" in (folder / "mine.html").read_text()


@pytest.mark.slow
def test_train_evaluate_load(tmp_path: Path) -> None:
    done = command(tmp_path, *small_training())
    assert done.returncode == 0, done.stderr
    result = read_json(tmp_path / "run" / "result.json")
    evaluated = command(tmp_path, "evaluate", "run")
    assert evaluated.returncode == 0, evaluated.stderr
    assert f"seed 0: mse {result['values'][0]:.6g}" in evaluated.stdout
    capped = command(tmp_path, "evaluate", "run", "--max_depth", "1", "--split", "validation")
    assert "depth 1.000" in capped.stdout
    assert eirehn.load(tmp_path / "run")(torch.zeros(1, 4, 2)).shape == (1, 4, 2)


@pytest.mark.slow
def test_killed_and_gone_on_with(tmp_path: Path) -> None:
    """kill -9 at some moment, then the same command: the bits of a run that was left alone."""
    straight = command(tmp_path, *small_training("straight", epochs=60))
    assert straight.returncode == 0, straight.stderr
    line = [sys.executable, "-m", "eirehn", *small_training("killed", epochs=60)]
    for signal_number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 130), (signal.SIGINT, 130)):
        with subprocess.Popen(line, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            process.stderr.readline()  # the first tenth of this start's epochs is over
            process.send_signal(signal_number)
            told = process.stderr.read()
        assert process.returncode == code
        if code == 130:
            assert re.search(
                r"^eirehn: stopped; the same command goes on .*: eirehn train --recipe .*$", told, re.M
            )
            assert (tmp_path / "killed" / "last.ckpt").exists()
    done = command(tmp_path, *small_training("killed", epochs=60))
    assert done.returncode == 0, done.stderr
    for name in ("best", "last"):
        one, other = (read_values(tmp_path / run / f"{name}.safetensors") for run in ("straight", "killed"))
        assert all(torch.equal(one[key], other[key]) for key in one)
    assert (tmp_path / "straight" / "metrics.csv").read_text() == (tmp_path / "killed" / "metrics.csv").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopping_many_runs_at_once(number: signal.Signals, tmp_path: Path) -> None:
    words = ["reproduce", "synthetic", "--epochs", "2000", "--seeds", "1", "--sequences", "40", "--out", "runs"]
    line = [sys.executable, "-m", "eirehn", *words, "--jobs", "2", "--rows", *ROWS[1:3]]
    with subprocess.Popen(
        line,
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests themselves run in the background, Ctrl-C is ignored, and that would be inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.send_signal(number)
        told = process.stderr.read()  # until the last of its workers has closed it too
    assert process.returncode == (130 if number != signal.SIGKILL else -number)
    assert "Traceback" not in told
    if number != signal.SIGKILL:
        assert told.splitlines()[-1].startswith("eirehn: stopped; the same command goes on")
    assert any((tmp_path / "runs").glob("*/last.ckpt"))
    with RunFolder(tmp_path / "runs" / ROWS[1]):
        pass  # nobody holds it any more


@pytest.mark.slow
def test_a_terminal_gets_a_bar(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    line = [sys.executable, "-m", "eirehn", *small_training(epochs=80)]  # long enough to be shown
    process = subprocess.Popen(
        line, cwd=tmp_path, env={**environment(), "TERM": "xterm"}, stderr=slave, stdout=slave
    )
    os.close(slave)
    shown = b""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    assert process.wait() == 0
    text = shown.decode()
    assert "\x1b[" in text
    for word in ("synthetic-ei-rehn-10", "train loss", "mse", "depth", "left"):
        assert word in text


@pytest.mark.slow
def test_figure1(tmp_path: Path) -> None:
    done = command(tmp_path, "reproduce", "figure1", "--out", "pictures")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "pictures" / "figure1.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "pictures" / "figure1.svg").read_text()


@pytest.mark.slow
def test_recipes_are_yaml_that_train_takes(tmp_path: Path) -> None:
    listed = command(tmp_path, "recipes")
    assert listed.returncode == 0, listed.stderr
    assert "synthetic-best" in listed.stdout
    printed = command(tmp_path, "recipes", "synthetic-ei-rehn-15")
    content = yaml.safe_load(printed.stdout)
    assert content["network"]["hidden_size"] == 15
    content["data"] |= {"train": 10, "validation": 5, "test": 5}
    content["optimisation"]["epochs"] = 1
    content["seeds"] = [4]
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(content))
    done = command(tmp_path, "train", "--config", "my.yaml", "--out", "run", "--network.hidden_size", "3")
    assert done.returncode == 0, done.stderr
    recipe = json.loads((tmp_path / "run" / "recipe.json").read_text())
    assert recipe["network"]["hidden_size"] == 3
    assert recipe["seeds"] == [4]
    assert recipe["data"]["train"] == 10


MISTAKES = [
    (["frobnicate"], "there is no command 'frobnicate'"),
    (["trian"], "did you mean 'train'?"),
    (["train", "--recipe", "synthetic-ei-rhen-20"], "did you mean 'synthetic-ei-rehn-20'?"),
    (["train", "--network.hidden_size", "-3"], "hidden_size must be greater than zero, got -3"),
    (["train", "--network.hidden_size", "many"], "hidden_size"),
    (["train", "--network.hidden_size", "100000000"], "not enough memory"),
    (["train", "--network.kind", "TCN"], "kind must be one of RNN"),
    (["train", "--network.start", "{alpah: 0.1}"], "alpah"),
    (["train", "--optimisation.learning_rate", "nan"], "learning_rate"),
    (["train", "--optimisation.optimizer", "adagrad"], "optimizer must be one of adam"),
    (["train", "--seeds", "[1,1]"], "seeds must be different"),
    (["train", "--hardware.precision", "8-bit"], "precision must be one of"),
    (["train", "--hardware.strategy", "ddp_fork"], "strategy must be one of auto, ddp"),
    (["train", "--seeds", "[4294967296]"], "below 2**32"),
    (["train", "--name", ""], "name must be text"),
    (["train", "--recipe", ""], "there is no recipe ''"),
    (["train", "--no_such_flag", "1"], "no_such_flag"),
    (["train", "--config", "nowhere.yaml"], "nowhere.yaml"),
    (["reproduce", "table9"], "there is nothing to reproduce called 'table9'"),
    (["reproduce", "synthetic", "--jobs", "0"], "--jobs must be at least 1, got 0"),
    (["reproduce", "synthetic", "--rows", "synthetic-rnn-21"], "did you mean 'synthetic-rnn-20'?"),
    (["reproduce"], "name"),
    (["reproduce", "synthetic", "--results", "."], "--results must be a file, and . is a folder"),
    (["evaluate", "nowhere", "--results", "."], "--results must be a file, and . is a folder"),
    (["evaluate", "nowhere", "--results", os.devnull], f"must be a file, and {os.devnull} is none"),
    (["evaluate", "nowhere", "--results", f"{os.devnull}/x/y"], f"must lie in a folder, and {os.devnull} is none"),
    (["evaluate", "nowhere"], "nowhere is no run: it has no recipe.json"),
    (["report", "nowhere"], "nowhere is no run"),
    (["recipes", "synthetic-bets"], "did you mean 'synthetic-best'?"),
]


@pytest.mark.parametrize(
    ("words", "message"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_mistakes(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line, exit code 2, and nothing written."""
    from eirehn.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    told = capsys.readouterr().err
    assert message in told
    assert len(told.splitlines()) == 1
    assert told.startswith("eirehn: ")
    assert list(tmp_path.iterdir()) == []


def test_results_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told before the work is done, and not after; of the nearest folder that is there."""
    from eirehn.cli import main

    asked = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "access", lambda *given: asked.append(given))  # to root every folder is open
    assert main(["evaluate", "nowhere", "--results", "new/deep/results.json"]) == 2
    assert f"{tmp_path} is not to be written to" in capsys.readouterr().err
    assert asked == [(tmp_path, os.W_OK)]


def test_a_recipe_named_in_a_file_is_not_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from eirehn.cli import main

    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.yaml").write_text("recipe: synthetic-rnn-20\n")
    assert main(["train", "--config", "my.yaml"]) == 2
    assert "named once, by --recipe" in capsys.readouterr().err


@pytest.mark.parametrize(
    "hardware", [["accelerator", "gpu"], ["accelerator", "tpu"], ["devices", "0"], ["devices", "lots"]]
)
def test_hardware_that_is_not_there(
    hardware: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from eirehn.cli import main

    if torch.cuda.is_available():
        pytest.skip("it is there")
    monkeypatch.chdir(tmp_path)
    assert main([*small_training(), f"--hardware.{hardware[0]}", hardware[1]]) == 2
    assert capsys.readouterr().err.startswith("eirehn: hardware: ")


@pytest.mark.slow
def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    line = f"{sys.executable} -m eirehn recipes | true; exit ${{PIPESTATUS[0]}}"
    settings = {key: value for key, value in environment().items() if key != "PYTHONUNBUFFERED"}
    done = subprocess.run(["bash", "-c", line], env=settings, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode in (0, 141)
    assert done.stderr == ""


def test_letters_a_terminal_does_not_have(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "eirehn", "--help"]
    settings = {**environment(), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(line, env=settings, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "reproduce NAME" in done.stdout


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    from eirehn.cli import main

    assert main(["--help"]) == 0
    assert "reproduce NAME" in capsys.readouterr().out
    assert main([]) == 2
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == eirehn.__version__
    with pytest.raises(SystemExit) as ended:
        main(["train", "--help"])
    assert ended.value.code == 0
    assert "The largest learning rate of the schedule." in " ".join(capsys.readouterr().out.split())


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
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # also where tests run in the background
    )
    assert (done.returncode, done.stderr) == (130, "eirehn: stopped\n")


def test_another_network_by_the_recipe_of_an_elastic_one(tmp_path):
    """Without the initial values that it does not have."""
    words = ["train", "--recipe", "synthetic-ei-rehn-10", "--network.kind", "RHN", "--optimisation.epochs", "1"]
    done = command(tmp_path, *words, "--data.train", "20", "--seeds", "[0]", "--out", "run")
    assert done.returncode == 0, done.stderr
