"""Lines of a results file, against figures by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from eirehn.experiments import experiments
from eirehn.experiments.results import label, paper_result, row
from eirehn.recipes import find, har, ptb, recipes

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
    assert paper_result(replace(recipe, optimisation=replace(recipe.optimisation, depth_penalty=0.1)))[0] is None
    assert paper_result(replace(recipe, network=replace(recipe.network, hidden_size=4)))[0] is None
    assert paper_result(find("synthetic-srhn-20-depth-3"))[0] == pytest.approx(0.58e-3)
    assert paper_result(find("synthetic-srehn-20"))[0] == pytest.approx(0.54e-3)


def test_the_experiments() -> None:
    known = experiments()
    assert len(known["synthetic"].rows) == 12 + 6 + 1 + 1 + 1 + 5
    updates = [each.network.weight_update for each in known["weight-updates"].rows]
    assert updates == ["paper", "recursive", "additive", "scaling", "outer", "none"]


def test_only_the_rows_themselves_are_the_papers() -> None:
    row = find("ptb-ei-rehn-1200-r4")
    assert paper_result(replace(row, network=replace(row.network, output_dropout=0.5)))[0] is None
    assert paper_result(replace(row, optimisation=replace(row.optimisation, epochs=30)))[0] == 66.2
    assert paper_result(find("ptb-rhn-1050-r4"))[0] is None  # its authors', not the paper's
    assert label(row) == "EI-REHN-1200, depth 4"


def test_how_those_for_all_depths_are_called() -> None:
    assert label(ptb.early()) == "EI-REHN-1200, depth 4, our recipe, 25% stopped early, recursive"
    seldom = replace(ptb.early(), optimisation=replace(ptb.early().optimisation, early=0.004))
    assert ", 0.4% stopped early" in label(seldom)
    assert label(ptb.best()) == "EI-REHN-1200, depth 4, calibrated, our recipe, recursive"


def test_names_and_labels_tell_rows_apart():
    recipes = har.recipes()
    assert len({recipe.name for recipe in recipes}) == len({label(recipe) for recipe in recipes}) == len(recipes)
    assert all(paper_result(recipe)[0] is None for recipe in har.variants())


def test_the_spread_the_paper_prints():
    rows = {recipe.name: recipe for recipe in har.recipes()}
    assert paper_result(rows["har-ei-rehn-48"])[1] == pytest.approx(0.0061)
    assert paper_result(rows["har-rhn-32-depth-3"])[1] == pytest.approx(0.0462)
    assert paper_result(rows["har-best"])[1] is None
