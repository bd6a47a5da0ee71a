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
    """Of the processor, not of the clock, which other work on the machine would slow down."""
    code = f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
def test_import_takes_at_most_a_third_longer_than_torch():
    whole = "eirehn.layers, eirehn.models.io"
    seconds_to_import(whole)  # bytecode is written once
    torch, eirehn = [], []
    for _ in range(5):
        torch.append(seconds_to_import("torch"))
        eirehn.append(seconds_to_import(whole))
    assert min(eirehn) <= 1.3 * min(torch)


def test_import_brings_nothing_heavy():
    code = "import torch, sys; before = set(sys.modules); from eirehn import *; print(*set(sys.modules) - before)"
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
    suffixes = (".py", ".cu", ".html", ".css", ".json", ".safetensors")
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*") if path.suffix in suffixes}
    assert sources <= set(names)
    assert {"eirehn/py.typed", "eirehn/experiments/published.json"} <= set(names)
    assert {f"eirehn/report/{name}" for name in ("template.html", "macros.html", "style.css")} <= set(names)
    assert not [name for name in names if name.startswith("tests")]
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("/LICENSE") for name in archive.getnames())


@pytest.fixture(scope="module")
def core(built, tmp_path_factory):
    """The Python of an environment with the wheel alone, without its extras."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    for packages in (["torch==2.13.0"], built.glob("*.whl")):
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        subprocess.run(install, check=True, capture_output=True, timeout=900)
    return python


def run(python, folder, *words):
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([python, *words], capture_output=True, text=True, cwd=folder, env=settings)


@pytest.mark.slow
def test_the_core_alone_trains_a_layer(core, tmp_path):
    code = """
import importlib.util, torch, eirehn
from eirehn import EIREHN
assert "site-packages" in eirehn.__file__, eirehn.__file__
for heavy in ("pytorch_lightning", "matplotlib", "pandas", "sklearn", "rich", "jsonargparse"):
    assert importlib.util.find_spec(heavy) is None, heavy
layer = EIREHN(input_size=9, hidden_size=48, max_depth=10, batch_first=True)
optimizer = torch.optim.Adam(layer.parameters(), 0.01)
x, losses = torch.randn(4, 6, 9), []
for _ in range(5):
    out, h_n, depth = layer(x, return_depth=True)
    losses.append(out.square().mean().item())
    optimizer.zero_grad()
    out.square().mean().backward()
    optimizer.step()
assert losses[-1] < losses[0], losses
layer(x, max_depth=2)
assert eirehn.load("har-best").predict(torch.zeros(1, 32, 36)).shape == (1,)
print(tuple(out.shape), tuple(h_n.shape), tuple(depth.shape), layer.depth_bound().shape, eirehn.__version__)
"""
    ended = run(core, tmp_path, "-c", code)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("(4, 6, 48) (1, 4, 48) (1, 4, 6)")


@pytest.mark.slow
def test_the_core_alone_says_what_else_to_install(core, tmp_path):
    ended = run(core, tmp_path, "-c", "import eirehn.training")
    told = "pytorch_lightning is not installed: pip install 'eirehn[train]'"
    assert ended.stderr.splitlines()[-1] == f"ModuleNotFoundError: {told}"
    for command in ("train", "evaluate", "reproduce", "recipes"):
        ended = run(core, tmp_path, "-m", "eirehn", command, "a")
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith("eirehn: ")
        assert ended.stderr.endswith("is not installed: pip install 'eirehn[train]'\n"), ended.stderr
        assert ended.stderr.count("\n") == 1
    assert run(core, tmp_path, "-m", "eirehn", "--version").returncode == 0
    assert not list(tmp_path.iterdir())
