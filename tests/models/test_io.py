"""Models back from the folder they were trained in."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.small import DATA, Sums, small, with_data
from torch import nn

from eirehn._internal.files import RunError, read_json, write_json
from eirehn.data.download import data_dir
from eirehn.data.har import ACTIVITIES, HarData
from eirehn.data.synthetic import SyntheticData
from eirehn.data.vocabulary import Vocabulary
from eirehn.models.io import TRAINED, load, read_values, write_values
from eirehn.training import config
from eirehn.training.trainer import train


def test_the_model_that_was_trained(tmp_path: Path) -> None:
    result, test = train(small(epochs=2), tmp_path), DATA.load().test
    for index, seed in enumerate((0, 1)):
        for which, name in (("best", "values"), ("last", "final_values")):
            model = load(tmp_path, seed=seed, which=which)
            assert not model.training
            with torch.no_grad():
                error = nn.functional.mse_loss(model(test.x), test.target).item()
            assert error == pytest.approx(result[name][index], rel=1e-5)
    chosen = min(range(2), key=lambda index: result["best_validation"][index])
    torch.testing.assert_close(load(tmp_path)(test.x), load(tmp_path, seed=(0, 1)[chosen])(test.x), rtol=0, atol=0)


def test_the_member_with_the_least_training_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is held out for validation."""
    monkeypatch.setitem(config.DATA, Sums.kind, Sums)
    train(with_data(small(learning_rate=0.05), Sums()), tmp_path)
    lines = [line.split(",") for line in (tmp_path / "metrics.csv").read_text().splitlines()]
    column = lines[0].index("train_loss")
    losses = {int(line[1]): float(line[column]) for line in lines[1:] if line[0] == "3"}
    expected = load(tmp_path, seed=min(losses, key=losses.__getitem__))
    assert all(map(torch.equal, load(tmp_path).parameters(), expected.parameters()))


def test_a_model_of_version_01(tmp_path: Path) -> None:
    """Fields that did nothing are read over; one that was in use and is gone is an error that names it."""
    train(small(epochs=1), tmp_path)
    about = read_json(tmp_path / "model.json")
    assert about["network"]["kind"] == "EIREHN"
    about["network"] |= {"tied": True, "mixture": 1, "gated_output": False}
    write_json(tmp_path / "model.json", about)
    load(tmp_path)
    about["network"]["mixture"] = 3
    write_json(tmp_path / "model.json", about)
    with pytest.raises(RunError, match=r"mixture 3 is of eirehn 0\.1"):
        load(tmp_path)


def test_models_that_cannot_be_loaded(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(RunError, match="holds no trained model"):
        load(tmp_path)
    train(small(epochs=1), run)
    with pytest.raises(ValueError, match=r"seed must be one of 0, 1 in .*, got 7"):
        load(run, seed=7)
    with pytest.raises(ValueError, match="which must be one of best, last, got 'first'"):
        load(run, which="first")
    values = run / "best.safetensors"
    values.write_bytes(values.read_bytes()[:100])
    with pytest.raises(RunError, match=r"best.safetensors is damaged"):
        load(run)
    about = read_json(run / "model.json")
    about["network"]["hidden_size"] = 6
    write_json(run / "model.json", about)
    with pytest.raises(RunError, match="does not fit the model"):
        load(run, which="last")
    for damaged in (
        {},
        [],
        None,
        "x",
        {**about, "network": [1]},
        {**about, "scaling": [1]},
        {**about, "classes": 3},
        {**about, "best_score": ["a", 1.0]},
    ):
        write_json(run / "model.json", damaged)
        with pytest.raises(RunError, match=r"model.json is damaged"):
            load(run)


def test_weights_of_a_dtype_that_is_refused(tmp_path: Path) -> None:
    train(small(epochs=1), tmp_path)
    path = tmp_path / "best.safetensors"
    whole = read_values(path)
    first = next(iter(whole))
    for change, message in (
        ({name: value.int() for name, value in whole.items()}, "got int32$"),
        ({name: value.to(torch.float8_e5m2) for name, value in whole.items()}, "got float8_e5m2$"),
        ({first: whole[first].double()}, "got float32, float64$"),
        ({first: torch.tensor(1.0)}, f"{first} has no dimension of seeds$"),
    ):
        write_values(path, {**whole, **change})
        with pytest.raises(RunError, match=message):
            load(tmp_path)
    write_values(path, {name: value.bfloat16() for name, value in whole.items()})
    assert load(tmp_path)(torch.zeros(1, 3, 2, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_a_vocabulary_that_does_not_fit(language_run: Path, tmp_path: Path) -> None:
    for name in ("model.json", "best.safetensors"):
        shutil.copy(language_run / name, tmp_path)
    Vocabulary("word", ("<unk>", "<eos>", "a")).save(tmp_path / "vocabulary.json")
    with pytest.raises(RunError, match="does not fit"):
        load(tmp_path)


@pytest.mark.parametrize(("name", "outputs"), [("har-best", (2, 6)), ("synthetic-best", (2, 32, 2))])
def test_models_of_the_package(
    name: str, outputs: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = load(name)
    assert model(torch.zeros(2, 32, model.input_size)).shape == outputs
    assert model.results["recipe"] == name
    with pytest.raises(RunError, match="there is no folder bset, and the models of the package are har-best, "):
        load("bset")
    Path(name).mkdir()
    with pytest.raises(RunError, match="holds no trained model"):
        load(name)


@pytest.mark.skipif(not (data_dir() / "har").is_dir(), reason="UCI HAR is not here: set EIREHN_DATA_DIR")
def test_the_model_card_has_the_accuracy_of_the_weights() -> None:
    test, model = HarData(held_out=0, standardise=False, frame=4).load().test, load("har-best")
    right = model.predict(test.x) == np.array(ACTIVITIES)[test.target]
    card = (TRAINED / "har-best" / "README.md").read_text("utf-8")
    assert f"| test accuracy | {100 * right.mean():.2f} % (seed 0) |" in card


def test_the_model_card_has_the_error_of_the_weights() -> None:
    test = SyntheticData().load().test
    with torch.no_grad():
        error = nn.functional.mse_loss(load("synthetic-best")(test.x), test.target).item()
    card = (TRAINED / "synthetic-best" / "README.md").read_text("utf-8")
    assert f"| test mse | {error:.4g} (seed 0) |" in card
