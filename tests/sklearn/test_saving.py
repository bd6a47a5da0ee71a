"""Estimators in files: back to the bit, and hostile ones refused in words."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.toys import QUICK, sequences, signs
from safetensors import safe_open
from safetensors.numpy import save_file

from eirehn._internal.files import RunError
from eirehn.sklearn import ElasticClassifier, ElasticRegressor


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_classifier_comes_back(bidirectional: bool, tmp_path: Path) -> None:
    x = sequences()
    settings = {**QUICK, "members": 2, "class_weight": {"above": 1.0, "below": 2.5}, "bidirectional": bidirectional}
    model = ElasticClassifier(**settings).fit(x, signs(x))
    model.save(tmp_path / "model")
    again = ElasticClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    assert again.classes_.dtype == model.classes_.dtype
    assert (again.predict(x) == model.predict(x)).all()
    assert again.get_params() == model.get_params()
    assert sorted(vars(again)) == sorted(vars(model))


@pytest.mark.parametrize("labels", [[3, 5], [True, False], [1.0, 2.0], ["ä", "b"], np.array(["x", "y"], object)])
def test_classes_of_any_type(labels: Any, tmp_path: Path) -> None:
    x = sequences(10, equal=True)
    y = np.asarray(labels)[np.arange(10) % 2]
    model = ElasticClassifier(**{**QUICK, "epochs": 1}).fit(np.stack(x)[:, :, 0], y)
    model.save(tmp_path / "model")
    again = ElasticClassifier.load(tmp_path / "model")
    assert again.classes_.tolist() == model.classes_.tolist()
    assert again.classes_.dtype == model.classes_.dtype
    with pytest.raises(ValueError, match="expecting 6 features"):
        again.predict(np.zeros((2, 5)))


def test_a_regressor_comes_back_and_from_pickle_too(tmp_path: Path) -> None:
    x = sequences()
    model = ElasticRegressor(**QUICK).fit(x, np.array([each[0] for each in x]))
    model.save(tmp_path / "a")
    for again in (ElasticRegressor.load(tmp_path / "a"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(again.predict(x), model.predict(x))


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        ElasticClassifier().save(tmp_path / "model")
    x = sequences()
    model = ElasticClassifier(**QUICK).fit(x, signs(x))
    (tmp_path / "old").write_text("precious")
    model.set_params(verbose=object())
    with pytest.raises(TypeError, match="verbose cannot be saved"):
        model.save(tmp_path / "old")
    assert (tmp_path / "old").read_text() == "precious"
    assert [each.name for each in tmp_path.iterdir()] == ["old"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "model"
    x = sequences()
    ElasticClassifier(**QUICK).fit(x, signs(x)).save(path)
    return path


def changed(saved: Path, target: Path, change: Any, values: Any = None) -> Path:
    """The file with its header changed."""
    with safe_open(saved, "np") as file:
        about = json.loads(file.metadata()["eirehn"])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
    change(about)
    if values is not None:
        values(arrays)
    save_file(arrays, target, {"eirehn": json.dumps(about)})
    return target


CHANGES: dict[str, Any] = {
    "no estimator of this version": lambda about: about.update(format="eirehn estimator 99"),
    "holds an ElasticRegressor, not an ElasticClassifier": lambda about: about.update(
        {"class": "ElasticRegressor"}
    ),
    "unexpected keyword argument 'shell'": lambda about: about["params"].update(shell="rm"),
    "'predict' is nothing that is fitted": lambda about: about["fitted"].update(predict="me"),
    "'__class__' is nothing that is fitted": lambda about: about["fitted"].update(__class__="me"),
    "the values do not fit": lambda about: about["model"]["network"].update(hidden_size=10**9),
    "layers, inner steps or members": lambda about: about["model"]["network"].update(num_layers=10**12),
    "fewer values than layers": lambda about: about["model"]["network"].update(num_layers=9000),
    "kind must be one of": lambda about: about["model"]["network"].update(kind="os.system"),
    "other sizes than the estimator": lambda about: about["fitted"].update(n_channels_in_=7),
    "the scaling does not fit": lambda about: about["scaling"].update(mean=[1.0, 2.0, 3.0]),
    "could not convert|float": lambda about: about["scaling"].update(mean=["a", "b"]),
    "n_channels_in_": lambda about: about["fitted"].pop("n_channels_in_"),
    "an array of": lambda about: about["fitted"]["classes_"].update(dtype="V8"),
    "'params'": lambda about: about.pop("params"),
    "unknown content": lambda about: about["params"].update(kind={"py/object": "os.system"}),
}


@pytest.mark.parametrize("message", CHANGES)
def test_headers_that_lie(message: str, saved: Path, tmp_path: Path) -> None:
    path = changed(saved, tmp_path / "model", CHANGES[message])
    with pytest.raises(RunError, match=message):
        ElasticClassifier.load(path)


def test_files_that_are_none(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    path = tmp_path / "model"
    for content in (b"", b"nonsense", whole[:100], whole[:-1], pickle.dumps({"a": 1}), b"\xff" * 64):
        path.write_bytes(content)
        with pytest.raises(RunError, match="is damaged or not an estimator"):
            ElasticClassifier.load(path)
    save_file({"a": np.zeros(3)}, path)
    with pytest.raises(RunError, match="is damaged or not an estimator"):
        ElasticClassifier.load(path)
    with pytest.raises(RunError, match="cannot read"):
        ElasticClassifier.load(tmp_path / "none")

    def poison(arrays: dict[str, Any]) -> None:
        arrays["0.head.bias"] = arrays["0.head.bias"] * np.nan

    with pytest.raises(RunError, match="not finite numbers"):
        ElasticClassifier.load(changed(saved, path, lambda about: None, poison))
