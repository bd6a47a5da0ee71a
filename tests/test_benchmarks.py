"""The benchmarks run, at a size that says nothing about speed: what they use of the library is still there."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from eirehn.data.synthetic import SyntheticData
from eirehn.training.recipe import Hardware

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _among_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)


def test_training_steps() -> None:
    module: Any = importlib.import_module("training_step")
    recipe = replace(module.cases()["paper"], data=SyntheticData(train=80, validation=10, test=10), seeds=(0, 1))
    short = replace(recipe, optimisation=replace(recipe.optimisation, epochs=2), hardware=Hardware("cpu"))
    steps, epochs, graph = module.timed(short)
    assert (len(steps), len(epochs), graph) == (2, 2, None)
    assert module.signals().input_size == 9


def test_bases(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    module: Any = importlib.import_module("soap_bases")
    best = module.synthetic.best()
    tiny = replace(best, data=SyntheticData(train=100, validation=10, test=10), seeds=(0,))
    tiny = replace(tiny, network=replace(tiny.network, hidden_size=2))
    monkeypatch.setattr(module.synthetic, "best", lambda: tiny)
    monkeypatch.setattr(module, "Hardware", lambda accelerator: Hardware("cpu"))
    module.train("qr", 3)
    assert "validation" in capsys.readouterr().out


def test_an_epoch_of_har(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module: Any = importlib.import_module("har_epoch")
    monkeypatch.setattr(module, "WINDOWS", 2)
    monkeypatch.setattr(module, "BATCH", 2)
    monkeypatch.setattr(sys, "argv", ["har_epoch.py", "--epochs", "1", "--json", str(tmp_path / "found.json")])
    threads = torch.get_num_threads()
    module.main()
    torch.set_num_threads(threads)
    assert json.loads((tmp_path / "found.json").read_text())["times"]["median"] > 0
    assert "wanted" in capsys.readouterr().out
