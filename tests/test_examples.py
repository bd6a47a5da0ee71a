"""The examples, run as a person runs them."""

import subprocess
import sys
from pathlib import Path

import pytest

from eirehn.data.download import data_dir

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name, *arguments):
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
def test_synthetic_depth(tmp_path):
    done = run("synthetic_depth.py", "--out", tmp_path / "new" / "folder", "--epochs", "2")
    assert done.returncode == 0, done.stderr
    assert "depth penalty 0.03: test MSE" in done.stdout
    assert (tmp_path / "new" / "folder" / "synthetic-depth.png").exists()


@pytest.mark.slow
def test_synthetic_depth_refuses_no_epochs(tmp_path):
    done = run("synthetic_depth.py", "--out", tmp_path, "--epochs", "0")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("--epochs must be at least 1")


@pytest.mark.slow
def test_elastic_gate(tmp_path):
    assert run("elastic_gate.py", "--out", tmp_path / "gate.png").returncode == 0
    assert (tmp_path / "gate.png").exists()


@pytest.mark.slow
@pytest.mark.skipif(not (data_dir() / "har").is_dir(), reason="UCI HAR is not here: set EIREHN_DATA_DIR")
def test_har_depth(tmp_path):
    done = run("har_depth.py", "--out", tmp_path / "new" / "depth.png", "--windows", "60", "--epochs", "1")
    assert done.returncode == 0, done.stderr
    assert "walking downstairs" in done.stdout
    assert (tmp_path / "new" / "depth.png").exists()


def test_the_readme_has_the_table_of_the_results():
    done = run("readme_table.py", "--check")
    assert done.returncode == 0, done.stderr
