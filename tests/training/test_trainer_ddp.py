"""Two processes that share each batch train what one process trains."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from helpers.language import written

from eirehn._internal.files import read_json
from eirehn.models.io import read_values

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this torch has no gloo"),
]
# 21 validation sequences, batches of 13 and a last one of 8: most do not split evenly.
SYNTHETIC = (
    "train --recipe synthetic-ei-rehn-10 --data.train 60 --data.validation 21 --data.test 20 --seeds [0,1] "
    "--optimisation.epochs 3 --optimisation.batch_size 13 --optimisation.clip 0.05 --optimisation.early 0.5 "
    "--optimisation.depth_penalty 0.001 --hardware.accelerator cpu --hardware.precision 64-true"
)
# Seven streams, of which one process reads four and the other three.
LANGUAGE = (
    "train --recipe lm --data.steps 8 --network.hidden_size 6 --network.max_depth 2 --network.word_dropout 0 "
    "--network.input_dropout 0 --network.hidden_dropout 0 --network.output_dropout 0 --optimisation.epochs 2 "
    "--optimisation.batch_size 7 --optimisation.optimizer sgd --optimisation.penalty 0.001 --optimisation.clip 0.5 "
    "--optimisation.sum_steps true --hardware.accelerator cpu --hardware.precision 64-true"
)
TWO = "--hardware.devices 2 --hardware.strategy ddp"
LAUNCHER = "-m torch.distributed.run --standalone --nproc_per_node 2 -m eirehn"


def run(line: str, folder: Path, program: str = "-m eirehn") -> str:
    words, settings = [*program.split(), *line.split()], {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, *words], env=settings, capture_output=True, text=True, timeout=300, cwd=folder
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def tasks_of_slurm(line: str, folder: Path, job: int) -> list[subprocess.Popen[str]]:
    """Two processes with the variables that `srun --ntasks-per-node 2` sets for them."""
    job_of = {"SLURM_JOB_ID": f"{job}", "SLURM_JOB_NAME": "words", "SLURM_NNODES": "1", "SLURM_NODEID": "0"}
    job_of |= {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NODELIST": "127.0.0.1"}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "eirehn", *line.split()],
            env={**os.environ, "OMP_NUM_THREADS": "1", **job_of, "SLURM_PROCID": task, "SLURM_LOCALID": task},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
        )
        for task in ("0", "1")
    ]


def test_a_job_of_slurm_that_reaches_its_time_limit_is_resumed(tmp_path: Path) -> None:
    """SLURM sends SIGTERM to its tasks, which stop with 130; the requeued job ends as one that was not stopped."""
    line = f"{SYNTHETIC} --optimisation.epochs 12"
    run(f"{line} --out one", tmp_path)
    port = 1000 + os.getpid() % 8000  # Lightning adds 15 000
    tasks = tasks_of_slurm(f"{line} --out two {TWO}", tmp_path, port)
    until = time.monotonic() + 200
    while not (tmp_path / "two" / "metrics.csv").exists() and time.monotonic() < until:
        time.sleep(0.02)
    for task in tasks:
        task.send_signal(signal.SIGTERM)
    said = [task.communicate(timeout=200)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [130, 130], said
    assert not (tmp_path / "two" / "result.json").exists()
    tasks = tasks_of_slurm(f"{line} --out two {TWO}", tmp_path, port + 1)
    said = [task.communicate(timeout=200)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], said
    assert [text.count("seed 0: ") for text in said] == [1, 0]
    theirs = read_values(tmp_path / "two" / "last.safetensors")
    for key, value in read_values(tmp_path / "one" / "last.safetensors").items():
        torch.testing.assert_close(theirs[key], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("line", "rows"), [(SYNTHETIC, 6), (LANGUAGE, 2)], ids=["synthetic", "language"])
def test_two_processes_match_one(line: str, rows: int, tmp_path: Path) -> None:
    if line == LANGUAGE:
        data = written(tmp_path, train=500, test=100)
        line += f" --text {data.train} {data.validation} {data.test}"
    run(f"{line} --out one", tmp_path)
    assert run(f"{line} --out two {TWO}", tmp_path).count("seed 0: ") == 1  # one of them speaks
    one, two = tmp_path / "one", tmp_path / "two"
    for name in ("best", "last"):
        theirs = read_values(two / f"{name}.safetensors")
        for key, value in read_values(one / f"{name}.safetensors").items():
            torch.testing.assert_close(theirs[key], value, rtol=0, atol=1e-12)
    tables = [list(csv.DictReader((each / "metrics.csv").read_text().splitlines())) for each in (one, two)]
    assert len(tables[0]) == len(tables[1]) == rows
    for mine, other in zip(*tables, strict=True):
        for column in mine:
            assert float(other[column]) == pytest.approx(float(mine[column]), rel=1e-9)
    assert read_json(two / "result.json")["values"] == pytest.approx(
        read_json(one / "result.json")["values"], rel=1e-9
    )


def test_processes_of_another_launcher_make_an_ended_run_longer(tmp_path: Path) -> None:
    """All are there from the start, and must not take the result of the shorter training for the longer one's."""
    line, longer = f"{SYNTHETIC} {TWO} --optimisation.schedule constant", "--optimisation.epochs 4"
    run(f"{line} --out run", tmp_path, LAUNCHER)
    run(f"train --resume run {longer}", tmp_path, LAUNCHER)
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 1 + 4 * 2
    run(f"{line} --out straight {longer}", tmp_path)
    theirs = read_values(tmp_path / "straight" / "last.safetensors")
    for key, value in read_values(tmp_path / "run" / "last.safetensors").items():
        assert torch.equal(value, theirs[key])
