"""Lines of a results file, against figures by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from eirehn.experiments import experiments
from eirehn.experiments.results import paper_result, row
from eirehn.recipes import find, recipes

RESULT = {
    "recipe": "synthetic-ei-rehn-20",
    "metric": "mse",
    "values": [1.0, 2.0, 4.0],
    "final_values": [2.0, 3.0, 7.0],
    "best_epoch": [1, 2, 3],
    "depth": [2.0, 3.0, 4.0],
    "parameters": 2862,
    "seconds": 12.5,
}


def test_a_row() -> None:
    line = row(find("synthetic-ei-rehn-20"), RESULT)
    assert line["mean"] == pytest.approx(7 / 3)
    assert line["std"] == pytest.approx(math.sqrt((16 / 9 + 1 / 9 + 25 / 9) / 2))  # of a sample
    assert line["final_mean"] == 4.0
    assert line["paper"] == pytest.approx(0.47e-3)
    assert (line["model"], line["hidden"], line["layers"], line["max_depth"]) == ("EIREHN", 20, 1, 5)
    assert line["weight_update"] == "paper"


def test_a_diverged_seed_is_no_number() -> None:
    line = row(find("synthetic-lstm-20"), {**RESULT, "values": [1.0, None, 2.0]})
    assert math.isnan(line["mean"])
    assert line["max_depth"] is None


def test_the_paper_has_a_figure_for_its_own_rows_alone() -> None:
    with_figure = {name for name, recipe in recipes().items() if paper_result(recipe)[0] is not None}
    assert len(with_figure) == 12 + 6 + 1 + 12 + 12
    recipe = find("synthetic-ei-rehn-20")
    assert paper_result(replace(recipe, seeds=(7,)))[0] == pytest.approx(0.47e-3)
    assert paper_result(replace(recipe, optimisation=replace(recipe.optimisation, price=1e-3)))[0] is None
    assert paper_result(replace(recipe, network=replace(recipe.network, hidden_size=4)))[0] is None
    assert paper_result(find("synthetic-srhn-20-depth-3"))[0] == pytest.approx(0.58e-3)
    assert paper_result(find("synthetic-srehn-20"))[0] == pytest.approx(0.54e-3)


def test_recipes_come_back_from_a_file() -> None:
    for recipe in recipes().values():
        assert type(recipe).from_dict(recipe.to_dict()) == recipe


def test_the_experiments() -> None:
    known = experiments()
    assert len(known["synthetic"].rows) == 12 + 6 + 1 + 1 + 1 + 5
    assert {each.network.weight_update for each in known["weight-updates"].rows} == {
        "paper",
        "recursive",
        "additive",
        "scaling",
        "outer",
        "none",
    }
