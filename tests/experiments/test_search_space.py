"""What a search changes: what is typed, and what is searched by default."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from helpers.language import small_language_recipe, written
from helpers.small import Sums, small, with_data, with_network
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from eirehn.experiments.search_space import check, default_space, in_words, read_space, with_settings
from eirehn.models.config import KINDS
from eirehn.training.config import Recipe

RECIPE = small("EIREHN")


@pytest.mark.parametrize(
    ("line", "field", "range_"),
    [
        ("lr=1e-3:0.1:log", "optimisation.learning_rate", FloatDistribution(1e-3, 0.1, log=True)),
        ("optimisation.weight-decay=0:1", "optimisation.weight_decay", FloatDistribution(0.0, 1.0)),
        ("network.hidden_size=8:64:log", "network.hidden_size", IntDistribution(8, 64, log=True)),
        ("network.hyper_size=2:4", "network.hyper_size", IntDistribution(2, 4)),
        ("network.max_depth=2,5", "network.max_depth", CategoricalDistribution((2, 5))),
        ("network.weight_update=none,paper", "network.weight_update", CategoricalDistribution(("none", "paper"))),
        ("network.shortcut=true,false", "network.shortcut", CategoricalDistribution((True, False))),
    ],
)
def test_ranges(line: str, field: str, range_: object) -> None:
    space = read_space(RECIPE, [line], {"lr": "optimisation.learning_rate"}, ())
    assert space == {field: range_}
    assert read_space(RECIPE, [f"{field}={in_words(space[field])}"], {}, ()) == space


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("optimisation.learning_rate", "must be FIELD=RANGE"),
        ("network.hiden_size=1:2", r"no field 'network\.hiden_size'; did you mean 'network\.hidden_size'"),
        ("data.seed=1:2", r"no field 'data\.seed'"),
        ("network.kind=LSTM,GRU", "`eirehn compare` compares layers"),
        ("network.start=1:2", "no single value"),
        ("optimisation.clip=0.1:0", "must rise"),
        ("optimisation.clip=0:1:log", "must rise, from above zero for log"),
        ("optimisation.clip=0.1:1:linear", "must be LOW:HIGH or LOW:HIGH:log"),
        ("network.max_depth=2:4.5", "takes whole numbers, got '4.5'"),
        ("optimisation.clip=nan:1", "must rise"),
        ("optimisation.clip=1:inf", "must be finite"),
        ("network.pooling=last:mean", "and A,B,C otherwise"),
        ("network.pooling=last", "at least two different values"),
        ("network.pooling=last,first", "pooling must be one of"),
        ("network.shortcut=yes,no", "takes true or false"),
        ("network.hidden_size=0:4", "hidden_size must be greater than zero"),
        ("network.hidden_dropout=0:1.5", "hidden_dropout should be"),
        ("optimisation.batch_size=2:4", "is given as a flag and in --search"),
    ],
)
def test_mistakes(line: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_space(RECIPE, [line], {}, ["optimisation.batch_size"])


def ends(recipe: Recipe) -> None:
    """That the recipe can have all values at the ends of its default ranges."""
    space = default_space(recipe)
    assert space
    for pick in ("low", "high"):
        values = {
            name: each.choices[-1] if isinstance(each, CategoricalDistribution) else getattr(each, pick)
            for name, each in space.items()
        }
        changed = with_settings(recipe, values)
        check(changed)
        assert all(
            getattr(getattr(changed, name.split(".")[0]), name.split(".")[1]) == values[name] for name in space
        )


@pytest.mark.parametrize("kind", KINDS)
def test_default_ranges_fit_each_layer(kind: str, tmp_path: Path) -> None:
    recipe = with_network(small(kind), num_layers=2)
    ends(with_data(recipe, Sums(validation=10)))
    names = {name.partition(".")[2] for name in default_space(recipe)}
    assert {"learning_rate", "weight_decay"} <= names
    assert ("max_depth" in names) == (kind not in ("RNN", "GRU", "LSTM"))
    assert ("weight_update" in names) == (kind == "EIREHN")
    assert ("hidden_dropout" in names) == (kind in ("RHN", "SRHN", "SREHN", "EIREHN"))
    assert "depth_penalty" not in names  # the recipe has none
    if kind != "ACT":
        words = small_language_recipe(written(tmp_path, train=300, test=100))
        words = replace(words, network=replace(words.network, kind=kind, start={}, hidden_dropout=0.0))
        ends(words)
        assert {"network.word_dropout", "network.output_dropout"} <= set(default_space(words))


def test_given_fields_are_not_searched_and_a_depth_penalty_is() -> None:
    recipe = small("SREHN", depth_penalty=0.01)
    space = default_space(recipe, ["optimisation.learning_rate", "optimisation.epochs"])
    assert "optimisation.learning_rate" not in space
    assert space["optimisation.depth_penalty"] == FloatDistribution(0.001, 0.1, log=True)
