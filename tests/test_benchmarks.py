"""The benchmarks run, at a size that says nothing about speed: what they use of the library is still there."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import eirehn
from eirehn.data.synthetic import SyntheticData
from eirehn.training.config import Hardware

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _among_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)


def test_training_steps() -> None:
    module: Any = importlib.import_module("training_step")
    recipe = replace(module.cases()["paper"], data=SyntheticData(train=80, validation=10, test=10), seeds=(0, 1))
    short = replace(recipe, optimisation=replace(recipe.optimisation, epochs=2), hardware=Hardware("cpu"))
    clock = module.timed(short, looks=True)
    assert (len(clock.steps), len(clock.epochs), clock.graph) == (2, 2, None)
    assert module.signals().input_size == 9


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Calls a benchmark with these words, in this process, and returns what it writes."""
    found = tmp_path / "found.json"

    def call(module: Any, *words: str) -> Any:
        monkeypatch.setattr(sys, "argv", [module.__name__, *words, "--json", str(found)])
        monkeypatch.setattr(module, "ProcessPoolExecutor", lambda count: ThreadPoolExecutor(1), raising=False)
        threads = torch.get_num_threads()
        module.main()
        torch.set_num_threads(threads)
        return json.loads(found.read_text())

    return call


@pytest.mark.slow
def test_an_epoch_of_har(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module: Any = importlib.import_module("har_epoch")
    monkeypatch.setattr(module, "WINDOWS", 2)
    monkeypatch.setattr(module, "BATCH", 2)
    assert run(module, "--epochs", "1")["times"]["median"] > 0
    assert "wanted" in capsys.readouterr().out


def test_stability(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two layers on a few sequences; a second call repeats nothing."""
    module: Any = importlib.import_module("stability")
    x = torch.randn(40, 8, 3)
    tiny = module.Data((x, (x.sum((1, 2)) > 0).long()), (x, (x.sum((1, 2)) > 0).long()), 4, 2, 20, 2)
    monkeypatch.setitem(module.TASKS, "har", lambda: tiny)
    monkeypatch.setattr(module, "LENGTHS", (4, 12))
    layers = ["torch LSTM", "EI-REHN, bidirectional"]
    for _ in range(2):
        runs = run(module, "--tasks", "har", "--seeds", "1", "--layers", *layers)["runs"]
    assert [each["layer"] for each in runs] == layers
    assert all(0 <= each["score"] <= 1 and each["skipped"] == 0 for each in runs)
    assert all(norm > 0 for each in runs for norm in each["gradient_at_initialisation"] + each["gradient_after"])
    assert capsys.readouterr().out.count("| har | torch LSTM | 1 |") == 2


def test_stability_of_the_classifier(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module: Any = importlib.import_module("stability")
    x = torch.randn(16, 4, 2)
    tiny = (x, (x[:, 0, 0] > 0).long())
    monkeypatch.setattr(module, "har", lambda: module.Data(tiny, tiny, 4, 1, 8, 2))
    runs = run(module, "--classifier", "--seeds", "1")["runs"]
    assert [(each["kind"], each["seed"], each["warnings"]) for each in runs] == [("EIREHN", 0, []), ("LSTM", 0, [])]
    assert "EIREHN: accuracy median" in capsys.readouterr().out


def test_where_gradients_explode(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It compares its equations with the layer's itself; without a path a gradient is another."""
    module: Any = importlib.import_module("explosion")
    x = torch.randn(200, 6, 3)
    tiny = (x, (x[:, 0, 0] > 0).long())
    monkeypatch.setattr(module, "har", lambda: importlib.import_module("stability").Data(tiny, tiny, 4, 1, 50, 2))
    runs = run(module, "--seeds", "1")["runs"]
    assert [each["update"] for each in runs] == ["paper", "recursive", "bounded"]
    for each in runs:
        assert len({round(norm, 12) for norm in each["largest"].values()}) == 7
    assert capsys.readouterr().out.count("\n") == 5


def test_gradients_of_the_first_state_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against finite differences, over joined sequences."""
    module: Any = importlib.import_module("stability")
    monkeypatch.setattr(module, "LENGTHS", (7,))
    x = torch.randn(6, 5, 3, dtype=torch.float64)
    data = module.Data((x, x), (x, x), 4, 1, 2, 3)
    model = module.Model(module.LAYERS["torch GRU"], data).double()
    (norms,) = module.gradients(model, data, torch.float64).values()
    layer, v = model.double().layer, torch.randn(4, generator=torch.Generator().manual_seed(0)).double()
    first = x[:2].flatten(0, 1)[:7][None]  # the first of the samples begins with the first sequence

    def end(h: torch.Tensor) -> float:
        with torch.no_grad():
            return float(layer(first, h.view(1, 1, 4))[0][0, -1] @ (v / v.norm()))

    steps = 1e-6 * torch.eye(4, dtype=torch.float64)
    expected = torch.tensor([(end(step) - end(-step)) / 2e-6 for step in steps]).norm().item()
    assert norms[0] == pytest.approx(expected, rel=1e-5)


def test_episodes(run: Callable[..., Any]) -> None:
    module: Any = importlib.import_module("episodes")
    with eirehn.use_backend("auto"):
        found = run(module, "--rounds", "1")
    assert len(found["milliseconds"]) == 4
    assert module.table(found).count("\n| ") == 4


def test_the_first_call(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = importlib.import_module("first_call")
    monkeypatch.setattr(module, "SCRIPT", "print(0.5)")
    assert run(module, "--runs", "2")["seconds"] == {"empty cache": [0.5, 0.5], "full cache": [0.5, 0.5]}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's ONNX exporter on itself
def test_onnx_speed(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    module: Any = importlib.import_module("onnx_speed")
    monkeypatch.setattr(module, "STEPS", 3)
    monkeypatch.setattr(module, "HIDDEN", 4)
    monkeypatch.setattr(module, "layers", partial(_only, module.layers, "RHN"))
    monkeypatch.setattr(module.logging, "disable", lambda level: None)
    with eirehn.use_backend("auto"):
        found = run(module, "--rounds", "1")
    assert [(row["layer"], row["batch"], len(row["milliseconds"])) for row in found["rows"]] == [
        ("RHN", 1, 3),
        ("RHN", 32, 3),
    ]
    assert module.table(found).count("\n| RHN |") == 2


def _only(layers: Callable[[], dict[str, Any]], name: str) -> dict[str, Any]:
    return {name: layers()[name]}
