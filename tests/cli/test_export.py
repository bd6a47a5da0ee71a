"""`eirehn export`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.command import done, refused
from helpers.small import small

import eirehn
from eirehn.training.trainer import train

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "run"
    train(small(epochs=1), folder)
    return folder


def test_a_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done(f"export {run} {tmp_path}/new/model.onnx --max-depth 2")
    out, err = capsys.readouterr()
    assert out.startswith(f"{tmp_path}/new/model.onnx: ")
    assert not err
    session = onnxruntime.InferenceSession(tmp_path / "new" / "model.onnx")
    x = np.random.default_rng(0).normal(size=(3, 7, 2)).astype(np.float32)
    prediction, depth = session.run(["prediction", "depth"], {"x": x})
    expected = eirehn.load(run)(x, max_depth=2).detach().numpy()
    np.testing.assert_allclose(prediction, expected, rtol=0, atol=1e-6)
    assert depth.max() <= 2


@pytest.mark.slow
def test_a_language_model_says_its_tokens(language_run: Path, tmp_path: Path) -> None:
    done(f"export {language_run} {tmp_path}/model.onnx")
    about = onnxruntime.InferenceSession(tmp_path / "model.onnx").get_modelmeta().custom_metadata_map
    assert tuple(json.loads(about["tokens"])) == eirehn.load(language_run).tokens.tokens
    assert about["level"] == "word"


def test_mistakes(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "holds no trained model" in refused(f"export {tmp_path} {tmp_path}/model.onnx", capsys)
    assert "FILE must end in .onnx, got 'model.pt'" in refused(f"export {run} {tmp_path}/model.pt", capsys)
    (tmp_path / "file").touch()
    assert "must lie in a folder" in refused(f"export {run} {tmp_path}/file/model.onnx", capsys)
    assert "max_depth must be greater than zero" in refused(f"export {run} {tmp_path}/a.onnx --max-depth 0", capsys)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert refused(f"export {run} {tmp_path}/a.onnx", capsys) == (
        "eirehn: onnx is not installed: pip install 'eirehn[onnx]'\n"
    )
    assert not (tmp_path / "a.onnx").exists()
