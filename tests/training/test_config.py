"""Recipes: what cannot be is refused where it is written down, and files of version 0.1 are read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from helpers.small import Sums, small, with_network

from eirehn._internal.files import RunError
from eirehn.data.har import HarData
from eirehn.data.synthetic import SyntheticData
from eirehn.data.text import TextData
from eirehn.models import LanguageNetwork, SequenceNetwork
from eirehn.recipes import har
from eirehn.training.config import (
    DATA,
    ClassifierOptimisation,
    Hardware,
    LanguageOptimisation,
    Optimisation,
    Recipe,
)

TEXT = TextData(8, None, "a", "b", "c")
DECAY = {"schedule": "decay", "decay": 0.5, "decay_from": 0}


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (Optimisation, {"epochs": 0}, "epochs must be greater than zero, got 0"),
        (Optimisation, {"batch_size": -1}, "batch_size must be greater than zero"),
        (Optimisation, {"optimizer": "adagrad"}, "optimizer must be one of adam, adamw, sgd, soap, got 'adagrad'"),
        (Optimisation, {"schedule": "linear"}, "schedule must be one of"),
        (Optimisation, {"learning_rate": 0.0}, "learning_rate"),
        (Optimisation, {"learning_rate": float("inf")}, "learning_rate must be finite"),
        (Optimisation, {"clip": 0.0}, "clip"),
        (Optimisation, {"depth_penalty": -1.0}, "depth_penalty"),
        (Optimisation, {"average": 1.0}, "average must be at least 0 and below 1, got 1.0"),
        (Optimisation, {"warmup": -0.1}, "warmup must be at least 0 and below 1"),
        (Optimisation, {"early": float("nan")}, "early must be finite"),
        (Optimisation, {"beta1": 1.0}, "beta1 must be at least 0"),
        (Optimisation, {**DECAY, "epochs": 1000}, "makes the learning rate overflow in 1000 epochs"),
        (Optimisation, {"decay_from": "0"}, "decay_from must be an integer of at least 0, got '0'"),
        (ClassifierOptimisation, {"smoothing": 1.0}, "smoothing must be at least 0 and below 1"),
        (LanguageOptimisation, {"recurrent_rate": 0.0}, "recurrent_rate"),
        (LanguageOptimisation, {"recurrent_rate": 0.5, "optimizer": "soap"}, "recurrent_rate cannot be used with"),
        (LanguageOptimisation, {"penalty": -1.0}, "penalty"),
        (Hardware, {"precision": "8-bit"}, "precision must be one of"),
    ],
)
def test_wrong_values(kind: type, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kind(**given)


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (Optimisation, {"beta1": "x"}, "beta1 should be a number"),
        (Optimisation, {"beta1": False}, "beta1 should be a number"),
        (LanguageOptimisation, {"shift": 1}, "shift"),
        (Hardware, {"capture": "yes"}, "capture"),
        # What belongs to another task cannot even be written down.
        (Optimisation, {"smoothing": 0.1}, "unexpected keyword argument 'smoothing'"),
        (ClassifierOptimisation, {"penalty": 0.1}, "unexpected keyword argument 'penalty'"),
        (SequenceNetwork, {"pointer": 3}, "unexpected keyword argument 'pointer'"),
        (LanguageNetwork, {"bidirectional": True}, "unexpected keyword argument 'bidirectional'"),
        (Recipe, {"data": TEXT}, "network of language should be LanguageNetwork, got: SequenceNetwork"),
        (
            Recipe,
            {"data": TEXT, "network": LanguageNetwork()},
            "optimisation of language should be LanguageOptimisation, got: Optimisation",
        ),
        (Recipe, {"data": HarData()}, "optimisation of classification should be ClassifierOptimisation"),
        (
            Recipe,
            {"optimisation": LanguageOptimisation()},
            "optimisation of regression should be Optimisation, got: LanguageOptimisation",
        ),
    ],
)
def test_wrong_types(kind: type, given: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        kind(**given)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: small("LSTM", early=0.5), "early needs a network with several inner steps"),
        (lambda: with_network(small(early=0.5), max_depth=1), "early needs a network with several inner steps"),
        (lambda: small("RHN", depth_penalty=0.1), "a network with adaptive depth, which RHN does not have"),
        (lambda: small(seeds=()), "seeds must be different from each other"),
        (lambda: small(seeds=(1, 1)), "seeds must be different from each other"),
        (lambda: small(seeds=(-1,)), r"below 2\*\*32"),
        (lambda: replace(small(), name="a/b"), "name must be text without a slash, got 'a/b'"),
    ],
)
def test_wrong_combinations(make: Callable[[], Recipe], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


def test_data_of_an_unknown_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATA, Sums.kind, Sums)
    recipe = replace(small(), data=Sums(), optimisation=ClassifierOptimisation())
    content = recipe.to_dict()
    assert content["data"] == {"kind": "sums", "train": 64, "validation": 0}
    assert Recipe.from_dict(content) == recipe
    for kind in ("nothing", None, ["sums"]):
        with pytest.raises(ValueError, match=r"data.kind must be one of synthetic, har"):
            Recipe.from_dict({**content, "data": {"kind": kind}})


# All that a recipe.json of version 0.1 said of any task, at the values at which it did nothing.
IDLE_NETWORK = json.loads("""{"bidirectional": false, "shortcut": false, "pooling": "last", "word_dropout": 0.0,
    "output_dropout": 0.0, "step_masks": false, "embedding_size": null, "tied": true, "pointer": 0,
    "calibrated": false, "gated_output": false, "gated_dropout": 0.0, "mixture": 1, "mixture_dropout": 0.0}""")
IDLE_OPTIMISATION = json.loads("""{"recurrent_rate": 1.0, "penalty": 0.0, "sum_steps": false, "shift": false,
    "smoothing": 0.0, "cooldown": 0.0, "pointer_loss": 0.0, "activation_penalty": 0.0, "temporal_penalty": 0.0,
    "margin": 0.0, "average_from": null, "average_after": null, "retreat": 0.0}""")
RECIPES = {
    "regression": small(),
    "classification": Recipe(data=HarData(), optimisation=ClassifierOptimisation(smoothing=0.1)),
    "language": Recipe(
        data=TEXT,
        network=LanguageNetwork(pointer=5, output_dropout=0.2),
        optimisation=LanguageOptimisation(shift=True, penalty=1e-4),
    ),
}


@pytest.mark.parametrize("task", RECIPES)
def test_recipes_of_version_01(task: str) -> None:
    """What did nothing is read over; what was in use and is gone, or of another task, is an error that names it."""
    content = RECIPES[task].to_dict()
    content["network"] = IDLE_NETWORK | content["network"]
    content["optimisation"] = IDLE_OPTIMISATION | content["optimisation"]
    assert Recipe.from_dict(content) == RECIPES[task]
    gone = {"network": {"mixture": 3, "gated_output": True}, "optimisation": {"retreat": 0.5, "average_from": 4}}
    for part, fields in gone.items():
        for name, value in fields.items():
            with pytest.raises(RunError, match=rf"{name} {value} is of eirehn 0.1"):
                Recipe.from_dict({**content, part: {**content[part], name: value}})
    other = {"network": {"tied": False}, "optimisation": {"sum_steps": True}}
    if task == "language":
        other = {"network": {"bidirectional": True}, "optimisation": {"smoothing": 0.1}}
    for part, fields in other.items():
        with pytest.raises(RunError, match=rf"{next(iter(fields))} .* is of eirehn 0.1"):
            Recipe.from_dict({**content, part: content[part] | fields})


def test_the_weight_update_of_version_01() -> None:
    """It had another name, and its initial values were not written out."""
    recipe = next(each for each in har.table2() if each.network.kind == "EIREHN")
    content = recipe.to_dict()
    content["network"] |= {"weight_update": "printed", "start": {"gate_bias": -2.0}}
    assert Recipe.from_dict(content).differences(recipe) == []
    shallow = next(each for each in har.table2() if each.network.kind == "LSTM")
    content = shallow.to_dict()
    content["network"]["weight_update"] = "printed"
    assert Recipe.from_dict(content).differences(shallow) == []
    assert shallow.differences(Recipe.from_dict(content)) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([], "Recipe must be a mapping, got list"),
        ({"network": 3}, "network must be a mapping, got int"),
        ({"data": "har"}, "data must be a mapping, got str"),
        ({"surprise": 1}, "Recipe has no surprise"),
        ({"hardware": {"gpus": 3}}, "Hardware has no gpus"),
    ],
)
def test_content_that_is_no_recipe(content: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Recipe.from_dict(content)


def test_differences() -> None:
    """Of the hardware only the precision makes another training."""
    one = small(depth_penalty=1e-3)
    assert one.differences(replace(one, hardware=replace(one.hardware, devices=2))) == []
    assert one.differences(replace(one, hardware=replace(one.hardware, precision="64-true"))) == [
        "hardware.precision"
    ]
    other = replace(
        small(depth_penalty=0.5, epochs=2), seeds=(7,), data=SyntheticData(train=9, validation=20, test=20)
    )
    assert one.differences(other) == ["data.train", "optimisation.epochs", "optimisation.depth_penalty", "seeds"]
