"""The package as a user gets it: quick to import, and whole in its wheel."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def seconds_to_import(module):
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
def test_import_takes_at_most_a_third_longer_than_torch():
    seconds_to_import("eirehn")  # bytecode is written once
    torch, eirehn = [], []
    for _ in range(5):
        torch.append(seconds_to_import("torch"))
        eirehn.append(seconds_to_import("eirehn"))
    assert min(eirehn) <= 1.3 * min(torch)  # what else the machine does only adds


def test_import_brings_nothing_heavy():
    code = "import torch, sys; before = set(sys.modules); import eirehn; print(*set(sys.modules) - before)"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    brought = {name.split(".")[0] for name in out.split()}
    assert brought == {"eirehn"}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", out, ROOT], check=True, capture_output=True, timeout=600
    )
    return out


@pytest.mark.slow
def test_wheel_and_sdist_hold_what_they_should(built):
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    sources = {
        str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*") if path.suffix in (".py", ".cu")
    }
    assert sources <= set(names)
    assert {"eirehn/py.typed", "eirehn/experiments/published.json"} <= set(names)
    assert not [name for name in names if name.startswith("tests")]
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("/LICENSE") for name in archive.getnames())


@pytest.mark.slow
def test_wheel_works_in_a_fresh_environment(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    for packages in (["torch==2.13.0"], [wheel]):
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages],
            check=True,
            capture_output=True,
            timeout=900,
        )
    code = """
import pathlib, torch, eirehn
assert "site-packages" in eirehn.__file__, eirehn.__file__
layer = eirehn.EIREHN(input_size=9, hidden_size=48, max_depth=10, batch_first=True)
x = torch.randn(4, 6, 9)
out, h_n = layer(x)
out, h_n, depth = layer(x, return_depth=True)
layer(x, max_depth=2)
out.sum().backward()
print(tuple(out.shape), tuple(h_n.shape), tuple(depth.shape), layer.depth_bound().shape, eirehn.__version__)
"""
    run = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert run.stdout.startswith("(4, 6, 48) (1, 4, 48) (1, 4, 6)")
