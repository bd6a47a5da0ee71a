"""Two processes that share each batch train what one process trains."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers.language import written

from eirehn._internal.files import read_json
from eirehn.models.io import read_values

# 21 validation sequences, batches of 13 and a last one of 8: most do not split evenly.
SETTING = [
    "train",
    "--recipe",
    "synthetic-ei-rehn-10",
    "--data.train",
    "60",
    "--data.validation",
    "21",
    "--data.test",
    "20",
    "--optimisation.epochs",
    "3",
    "--optimisation.batch_size",
    "13",
    "--optimisation.clip",
    "0.05",
    "--optimisation.early",
    "0.5",
    "--optimisation.price",
    "0.001",
    "--seeds",
    "[0,1]",
    "--hardware.accelerator",
    "cpu",
    "--hardware.precision",
    "64-true",
]


# Seven columns, of which one process reads four and the other three.
LANGUAGE = [
    *["train", "--recipe", "lm", "--data.steps", "8", "--network.hidden_size", "6", "--network.max_depth", "2"],
    *["--network.word_dropout", "0", "--network.input_dropout", "0", "--network.hidden_dropout", "0"],
    *["--network.output_dropout", "0", "--optimisation.epochs", "2", "--optimisation.batch_size", "7"],
    *["--optimisation.optimizer", "sgd", "--optimisation.penalty", "0.001", "--optimisation.sum_steps", "true"],
    *["--optimisation.clip", "0.5", "--hardware.accelerator", "cpu", "--hardware.precision", "64-true"],
]


def run(setting: list[str], folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "eirehn", *setting, "--out", str(folder), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=300, cwd=folder.parent)


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this torch has no gloo")
@pytest.mark.parametrize("kind", ["synthetic", "language"])
def test_two_processes_match_one(tmp_path: Path, kind: str) -> None:
    setting, lines = SETTING, 6
    if kind == "language":
        data = written(tmp_path, train=500, test=100)
        setting, lines = [*LANGUAGE, "--text", data.train, data.validation, data.test], 2
    one = run(setting, tmp_path / "one")
    two = run(setting, tmp_path / "two", "--hardware.devices", "2", "--hardware.strategy", "ddp")
    assert one.returncode == 0, one.stderr
    assert two.returncode == 0, two.stderr
    assert two.stdout.count("seed 0: ") == 1  # one of them speaks
    for name in ("best", "last"):
        ours, theirs = (read_values(tmp_path / which / f"{name}.safetensors") for which in ("one", "two"))
        for key in ours:
            torch.testing.assert_close(theirs[key], ours[key], rtol=0, atol=1e-12)
    tables = [
        list(csv.DictReader((tmp_path / which / "metrics.csv").read_text().splitlines()))
        for which in ("one", "two")
    ]
    assert len(tables[0]) == len(tables[1]) == lines
    for mine, other in zip(*tables, strict=True):
        for column in mine:
            assert float(other[column]) == pytest.approx(float(mine[column]), rel=1e-9)
    results = [read_json(tmp_path / which / "result.json") for which in ("one", "two")]
    assert results[1]["values"] == pytest.approx(results[0]["values"], rel=1e-9)


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this torch has no gloo")
def test_processes_of_another_launcher_make_an_ended_run_longer(tmp_path: Path) -> None:
    """All are there from the start, and must not take the result of the shorter training for the longer one's."""
    more = ["--hardware.devices", "2", "--hardware.strategy", "ddp", "--optimisation.schedule", "constant"]
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        "-m",
        "eirehn",
    ]
    longer = ["--optimisation.epochs", "4"]
    for words in ([*SETTING, *more, "--out", "run"], ["train", "--resume", "run", *longer]):
        done = subprocess.run(
            [*launcher, *words],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=200,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
    assert len((tmp_path / "run" / "metrics.csv").read_text().splitlines()) == 1 + 4 * 2
    straight = run([*SETTING, *more], tmp_path / "straight", *longer)
    assert straight.returncode == 0, straight.stderr
    ours, theirs = (read_values(tmp_path / which / "last.safetensors") for which in ("run", "straight"))
    for key in ours:
        assert torch.equal(ours[key], theirs[key])
