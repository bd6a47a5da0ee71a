"""Models as ONNX files, run by ONNX Runtime, against the models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import eirehn
from eirehn._internal.files import RunError
from eirehn.models import LanguageModel, LanguageNetwork, Scaling, SequenceModel, SequenceNetwork, export_onnx

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True, scope="module")
def _as_users_run_it():
    with eirehn.use_backend("auto"):
        yield


def test_a_classifier_of_raw_features(tmp_path: Path) -> None:
    network = SequenceNetwork("EIREHN", 5, num_layers=2, max_depth=4, bidirectional=True, shortcut=True)
    scaling = Scaling((1e6, 2.0, 3.0), (1.0, 2.0, 0.5))
    model = SequenceModel(network, 3, 2, last=True, scaling=scaling)
    model.classes, model.signals = ("süß", "sour"), ("x", "y", "z")
    export_onnx(model, tmp_path / "model.onnx", max_depth=3)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    about = session.get_modelmeta().custom_metadata_map
    assert (json.loads(about["classes"]), json.loads(about["signals"])) == (["süß", "sour"], ["x", "y", "z"])
    assert about["eirehn"] == eirehn.__version__
    x = np.random.default_rng(0).normal((1e6, 0.0, 0.0), size=(5, 11, 3))
    logits, depth = session.run(["logits", "depth"], {"x": x})
    outcome = model.eval().run(torch.from_numpy(x), max_depth=3)
    np.testing.assert_allclose(logits, outcome.prediction.detach().numpy(), rtol=0, atol=1e-6)
    assert np.array_equal(depth, outcome.depth.numpy())
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(shares, model.predict_proba(x, max_depth=3), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "LSTM"},
        pytest.param({"kind": "ACT", "max_depth": 3}, marks=pytest.mark.slow),
        {"kind": "EIREHN", "num_layers": 2, "embedding_size": 3, "pointer": 4, "calibrated": True},
    ],
    ids=lambda options: options["kind"],
)
def test_a_language_model_reads_a_text_in_pieces(options: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = LanguageModel(LanguageNetwork(hidden_size=5, **options), vocabulary=7).eval()
    export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    tokens = torch.randint(7, (3, 10))
    state = {}
    for each in session.get_inputs()[1:]:
        shape = [3 if size == "batch" else size for size in each.shape]
        words = each.name == "pointer_words"
        state[each.name] = np.full(shape, -1, np.int64) if words else np.zeros(shape, np.float32)
    names, found = [each.name for each in session.get_outputs()], []
    for piece in tokens.split([4, 1, 5], 1):
        results = dict(zip(names, session.run(None, {"tokens": piece.numpy(), **state}), strict=True))
        found.append(results["logits" if model.pointer is None else "log_probabilities"])
        state = {name: results[f"next_{name}"] for name in state}
    np.testing.assert_allclose(np.concatenate(found, 1), model(tokens).detach().numpy(), rtol=0, atol=1e-5)
    assert results["depth"].shape == (options.get("num_layers", 1), 3, 5)


def test_what_cannot_be_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = SequenceModel(SequenceNetwork("SREHN", 3), 2, 1)
    with pytest.raises(RunError, match=r"cannot write .*: it is a folder"):
        export_onnx(model, tmp_path)
    with pytest.raises(ValueError, match="takes a model of float32 or float64, got"):
        export_onnx(model.bfloat16(), tmp_path / "model.onnx")
    with (
        eirehn.use_backend("reference"),
        pytest.raises(ValueError, match=r"cannot be exported: .* unrolls the loop over time of this SREHN"),
    ):
        export_onnx(model.float(), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
