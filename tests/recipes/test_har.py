"""The rows of Table 2 against the published counts and results."""

from __future__ import annotations

import pytest

from eirehn.experiments.results import paper_result, published
from eirehn.recipes import har
from eirehn.training.config import Recipe
from eirehn.training.trainer import make_model


def parameters(recipe: Recipe) -> int:
    return sum(value.numel() for value in make_model(recipe).parameters())


def test_every_row_has_the_published_number_of_parameters():
    rows = {(row["model"], row["hidden"], row["depth"]): row for row in published()["har_accuracy_percent"]}
    recipes = har.table2()
    assert len(recipes) == len(rows) == 12
    for recipe in recipes:
        network = recipe.network
        depth = network.max_depth if network.kind == "RHN" else None
        row = rows.pop((network.kind, network.hidden_size, depth))
        assert parameters(recipe) == row["parameters_exact"], recipe.name
        assert paper_result(recipe)[0] == pytest.approx(row["mean"] / 100)


def test_the_recipe_is_the_paper_s():
    for recipe in har.table2():
        training = recipe.optimisation
        assert (training.optimizer, training.learning_rate, training.schedule) == ("adam", 0.0025, "constant")
        assert (training.batch_size, training.epochs, len(recipe.seeds)) == (200, 100, 5)
        assert recipe.data.held_out == 0


def test_our_own_recipe_is_small_enough():
    assert parameters(har.best()) <= 100_000
