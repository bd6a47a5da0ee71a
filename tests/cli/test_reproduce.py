"""`eirehn reproduce`, as a person starts it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from helpers.command import command, done, started

from eirehn._internal.files import read_json
from eirehn.cli import main
from eirehn.training.run import RunFolder

ROWS = ["synthetic-rnn-20", "synthetic-ei-rehn-10", "synthetic-srhn-20-depth-2", "synthetic-ei-rehn-20-penalty-0.1"]
LINE = f"reproduce synthetic --epochs 2 --seeds 2 --sequences 40 --rows {' '.join(ROWS)} --out runs"
Reproduced = tuple[Path, subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Reproduced:
    folder = tmp_path_factory.mktemp("reproduced")
    return folder, command(LINE, folder)


@pytest.mark.slow
def test_results_and_report(reproduced: Reproduced) -> None:
    folder, ended = reproduced
    assert ended.returncode == 0, ended.stderr
    results = read_json(folder / "runs" / "results.json")
    assert [row["recipe"] for row in results["rows"]] == ROWS
    assert results["quick"] is True
    assert results["command"].startswith("eirehn reproduce synthetic --epochs 2")
    assert results["bayes_floor"] == pytest.approx(0.427e-3, abs=0.004e-3)
    assert [row["parameters"] for row in results["rows"][:2]] == [502, 807]
    paper = [row["paper"] for row in results["rows"]]
    assert (paper[0], paper[2], paper[3]) == (pytest.approx(1.01e-3), pytest.approx(0.63e-3), None)
    for row in results["rows"]:
        assert len(row["values"]) == 2
        assert row["mean"] == pytest.approx(sum(row["values"]) / 2)
    page = (folder / "runs" / "report.html").read_text()
    assert "Changed: epochs" in page
    assert "EI-REHN-10" in page
    assert "runs/report.html" in ended.stdout
    said = ended.stdout + ended.stderr  # to a pipe, without escape codes
    assert "\x1b" not in said
    assert "\r" not in said
    assert "synthetic-ei-rehn-10" in ended.stderr


@pytest.mark.slow
def test_again_it_trains_nothing(reproduced: Reproduced) -> None:
    folder, first = reproduced
    before = {path: path.stat().st_mtime_ns for path in (folder / "runs").glob("*/best.safetensors")}
    again = command(LINE, folder)
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert again.stdout == first.stdout


@pytest.mark.slow
def test_a_report_of_chosen_runs(reproduced: Reproduced) -> None:
    folder, _ = reproduced
    done(f"report {folder / 'runs' / ROWS[0]} {folder / 'runs' / ROWS[1]} --out {folder / 'mine.html'}")
    assert "RNN-20" in (folder / "mine.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopping_many_runs_at_once(number: signal.Signals, tmp_path: Path) -> None:
    line = (
        f"reproduce synthetic --epochs 2000 --seeds 1 --sequences 40 --out runs --jobs 2 --rows {ROWS[1]} {ROWS[2]}"
    )
    with started(line, tmp_path) as process:
        assert process.stderr is not None
        while "epoch" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        told = process.stderr.read()  # until the last of its workers has closed it too
    assert process.returncode == (130 if number != signal.SIGKILL else -number)
    assert "Traceback" not in told
    if number != signal.SIGKILL:
        assert told.splitlines()[-1].startswith("eirehn: stopped; the same command resumes")
    assert any((tmp_path / "runs").glob("*/last.ckpt"))
    with RunFolder(tmp_path / "runs" / ROWS[1]):
        pass  # nobody holds it any more


def test_figure1(tmp_path: Path) -> None:
    done(f"reproduce figure1 --out {tmp_path}")
    assert (tmp_path / "figure1.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "figure1.svg").read_text()


def test_an_unstable_run_has_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the results of a run that had ended."""
    line = f"reproduce synthetic --rows rnn-20 --epochs 1 --seeds 1 --sequences 20 --out {tmp_path} --jobs 1"
    done(line)
    run = RunFolder(tmp_path / "synthetic-rnn-20")
    run.result.write_text(json.dumps({**json.loads(run.result.read_text()), "stopped_epoch": [1]}))
    assert main(line.split()) == 1
    assert "1, 1 unstable" in capsys.readouterr().out
