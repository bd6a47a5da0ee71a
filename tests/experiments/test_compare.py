"""Layers compared: equal sizes, tuned on validation data alone, resumed, reported."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from helpers.language import small_language_recipe, written
from helpers.tables import LONG, classes, long_csv, sequences

from eirehn._internal.files import read_json, write_json, write_text
from eirehn.data.download import data_dir
from eirehn.data.synthetic import SyntheticData
from eirehn.experiments.compare import compare, comparison, comparison_on
from eirehn.experiments.tuning import Comparison, Search, size_of, sized, with_layer
from eirehn.models.config import KINDS
from eirehn.recipes import find, har, ptb, synthetic
from eirehn.report.tables import comparison_table
from eirehn.training.config import Recipe
from eirehn.training.run import RESULT, RunFolder

needs_ptb = pytest.mark.skipif(
    not (data_dir() / "ptb").is_dir(), reason="Penn Treebank is not here: set EIREHN_DATA_DIR"
)


def tiny(**changes: Any) -> Comparison:
    data = SyntheticData(train=40, validation=20, test=20)
    recipe = synthetic.compared()
    recipe = replace(recipe, data=data, seeds=(0, 1), optimisation=replace(recipe.optimisation, epochs=1))
    own = Comparison("tiny", recipe, data, 1, 400, trials=2, layers=("LSTM", "EIREHN"))
    return replace(own, **changes)


@pytest.mark.parametrize(
    ("recipe", "parameters"),
    [
        ("synthetic-ei-rehn-20", 2862),
        ("har-ei-rehn-48-no-map", 16470),
        pytest.param("ptb-ei-rehn-1200-r4", 25.34e6, marks=needs_ptb),
    ],
)
def test_size_of_is_the_published_number_of_parameters(recipe: str, parameters: int) -> None:
    assert size_of(find(recipe)) == pytest.approx(parameters, rel=3e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["synthetic", "har"])
def test_layers_have_equal_sizes(kind: str, name: str) -> None:
    base = synthetic.compared() if name == "synthetic" else har.best()
    compared = Comparison(name, base, base.data, 1, 20_000)
    recipe = with_layer(compared, kind, {"max_depth": 3} if kind not in ("RNN", "GRU", "LSTM") else {})
    assert size_of(recipe) == pytest.approx(20_000, rel=0.03)
    wider = replace(recipe, network=replace(recipe.network, hidden_size=recipe.network.hidden_size + 1))
    assert size_of(wider) > 20_600


@needs_ptb
@pytest.mark.parametrize("kind", ["LSTM", "RHN", "EIREHN"])
def test_language_models_have_equal_sizes(kind: str) -> None:
    base = ptb.short()
    compared = Comparison("ptb", base, base.data, 1, 25_000_000, trials=3)
    assert size_of(with_layer(compared, kind, {})) == pytest.approx(25_000_000, rel=0.03)


@pytest.mark.slow
def test_language_models_are_compared(tmp_path: Path) -> None:
    base = replace(small_language_recipe(written(tmp_path, train=1000, test=300)), seeds=(0, 1))
    base = replace(base, optimisation=replace(base.optimisation, recurrent_rate=0.5))
    compared = Comparison("words", base, base.data, 1, size_of(base), trials=3, layers=("LSTM", "EIREHN"))
    results = compare(compared, tmp_path / "runs", command="", jobs=1)
    assert [len(row["trials"]) for row in results["rows"]] == [3, 3]
    assert all(row["metric"] == "perplexity" and row["step_ms"]["cpu"] > 0 for row in results["rows"])
    trained = [RunFolder(tmp_path / "runs" / row["recipe"]).recipe() for row in results["rows"]]
    assert [each.optimisation.recurrent_rate for each in trained] == [1.0, 0.5]  # less is for shared inner steps
    assert "Layers compared: words" in (tmp_path / "runs" / "report.html").read_text()


def test_too_few_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="parameters must be at least"):
        sized(synthetic.compared(), 3)


def test_what_belongs_to_one_layer_stays_with_it() -> None:
    base = replace(find("classify"), data=SyntheticData(), optimisation=synthetic.compared().optimisation)
    base = replace(base, optimisation=replace(base.optimisation, depth_penalty=0.1))
    compared = Comparison("some", base, base.data, 1, 2000)
    lstm = with_layer(compared, "LSTM", {"learning_rate": 0.005})
    assert (lstm.network.hidden_dropout, lstm.optimisation.depth_penalty) == (0, 0)
    assert lstm.optimisation.learning_rate == 0.005
    elastic = with_layer(compared, "EIREHN", {"weight_update": "scaling", "max_depth": 3})
    assert (elastic.network.hidden_dropout, elastic.optimisation.depth_penalty) == (0.2, 0.1)
    assert (elastic.network.weight_update, elastic.network.max_depth) == ("scaling", 3)


def test_trials_are_those_of_optuna(tmp_path: Path) -> None:
    """The settings of a comparison do not change with this library: its results can be repeated."""
    compared, told = tiny(trials=12), [0.1 * (number * 7 % 12) for number in range(12)]
    found = Search(compared, "EIREHN")
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0, constant_liar=True))
    rate = compared.base.optimisation.learning_rate
    while recipes := found.next(tmp_path):
        trials = [study.ask() for _ in recipes]
        for trial, recipe in zip(trials, recipes, strict=True):
            assert recipe.optimisation.learning_rate == trial.suggest_float(
                "learning_rate", 0.1 * rate, 3.0 * rate, log=True
            )
            assert recipe.optimisation.weight_decay == trial.suggest_float("weight_decay", 1e-4, 0.3, log=True)
            assert recipe.network.max_depth == trial.suggest_int("max_depth", 2, 5)
            assert recipe.network.weight_update == trial.suggest_categorical(
                "weight_update", ["bounded", "scaling", "paper"]
            )
        for trial in trials:
            study.tell(trial.number, told[trial.number])
            found.study.tell(trial.number, told[trial.number])


def test_trials_never_see_the_test_data_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text(long_csv(sequences(60), classes(60)))
    compared = comparison_on(replace(LONG, path=str(path)))
    final, tuning = compared.base.data.division, compared.tuning_data.division  # type: ignore[attr-defined]
    assert len(tuning.validation) > 5
    assert final.test.tolist() == tuning.test.tolist()
    assert not set(tuning.test) & {*tuning.train, *tuning.validation}


def test_har_is_tuned_on_people_of_the_training_part() -> None:
    compared = comparison("har")
    assert compared.tuning_data.held_out == 6  # type: ignore[attr-defined]
    assert compared.base.data.held_out == 0  # type: ignore[attr-defined]


@needs_ptb
def test_a_language_model_tries_three_learning_rates() -> None:
    compared = comparison("ptb")
    search = Search(replace(compared, parameters=1_000_000), "LSTM")
    rates = {recipe.optimisation.learning_rate for recipe in search.next(Path())}
    rate = compared.base.optimisation.learning_rate
    assert rates == {rate / 2, rate, 2 * rate}
    assert not search.next(Path())


@pytest.mark.slow
def test_best_settings_on_validation_are_trained(tmp_path: Path) -> None:
    results = compare(tiny(), tmp_path, command="eirehn compare tiny", jobs=1)
    assert read_json(tmp_path / "results.json")["rows"] == results["rows"]
    for row in results["rows"]:
        assert len(row["trials"]) == 2
        best = min(row["finals"], key=lambda final: sum(final["values"]))
        assert row["settings"] == best["settings"]
        assert row["parameters"] == pytest.approx(400, rel=0.12)  # few units: the next size is far
        assert row["step_ms"]["cpu"] > 0
        trained = RunFolder(tmp_path / row["recipe"]).recipe()
        assert trained.optimisation.learning_rate == row["settings"]["learning_rate"]
        assert trained.seeds == (0, 1)
    assert "Layers compared: tiny" in (tmp_path / "report.html").read_text()
    table = comparison_table(results)
    assert all(row["label"] in table for row in results["rows"])


@pytest.mark.slow
def test_a_comparison_that_was_stopped_resumes(tmp_path: Path) -> None:
    def stop(recipe: Recipe, result: dict[str, Any]) -> None:
        if recipe.name == "ei-rehn-00":
            raise KeyboardInterrupt

    whole = compare(tiny(), tmp_path / "whole", command="", jobs=1)
    with pytest.raises(KeyboardInterrupt):
        compare(tiny(), tmp_path / "stopped", command="", jobs=1, ended=stop)
    trained = []

    def note(recipe: Recipe, result: dict[str, Any]) -> None:
        trained.append(recipe.name)

    resumed = compare(tiny(), tmp_path / "stopped", command="", jobs=1, ended=note)
    assert trained[0] == "ei-rehn-01"
    assert trained[-2:] == ["lstm", "ei-rehn"]
    assert all(name.endswith("-full") for name in trained[1:-2])
    for ours, theirs in zip(resumed["rows"], whole["rows"], strict=True):
        assert ours["trials"] == theirs["trials"]
        assert ours["values"] == theirs["values"]


def ended(recipe: Recipe, folder: Path, values: list[float]) -> None:
    """A run folder as its training leaves it, with these values on validation data, one for each seed."""
    with RunFolder(folder / recipe.name) as run:
        run.open(recipe)
    write_json(run.result, dict.fromkeys(RESULT) | {"values": values, "best_validation": values})
    lines = [f"{epoch},{seed},1.0,{value},1.0" for epoch in (1, 2) for seed, value in enumerate(values)]
    write_text(run.metrics, "\n".join(["epoch,seed,train_loss,mse,depth", *lines, ""]))


def searched(folder: Path, values: dict[float, float]) -> Search:
    """A search whose trials had these learning rates and values."""
    search = Search(tiny(trials=len(values)), "LSTM")
    for rate in values:
        search.study.enqueue_trial({"learning_rate": rate})
    for recipe in search.next(folder):
        ended(recipe, folder, [values[recipe.optimisation.learning_rate]])
    search.tell()
    return search


def test_the_best_of_each_band_of_learning_rates_is_trained_at_full_length(tmp_path: Path) -> None:
    values = {0.028: 0.1, 0.02: 0.2, 0.005: 0.4, 0.004: 0.3, 0.0012: 0.9}  # the range is 0.001 to 0.03
    search = searched(tmp_path, values)
    finalists = search.finalists()
    assert [recipe.optimisation.learning_rate for recipe in finalists] == [0.0012, 0.004, 0.028]
    assert all(recipe.seeds == (0, 1) for recipe in finalists)
    assert all(recipe.optimisation.epochs == search.compared.base.optimisation.epochs for recipe in finalists)
    for recipe, found in zip(finalists, ([0.5, 0.5], [0.2, 0.3], [0.1, 0.9]), strict=True):
        ended(recipe, tmp_path, found)
    assert search.choose(tmp_path)["learning_rate"] == 0.004
    ended(finalists[1], tmp_path, [0.2, math.nan])  # a diverged seed is out, however good the others
    assert search.choose(tmp_path)["learning_rate"] in (0.0012, 0.028)


def test_diverged_trials_do_not_count(tmp_path: Path) -> None:
    search = searched(tmp_path, {0.02: math.nan, 0.015: 0.5})
    assert math.isnan(search.trials()[0]["value"])
    assert [recipe.optimisation.learning_rate for recipe in search.finalists()] == [0.015]
    ended(search.full[0][1], tmp_path, [math.nan, math.nan])
    with pytest.raises(ValueError, match="LSTM diverged at every learning rate"):
        search.choose(tmp_path)


def test_no_finite_trial_is_an_error() -> None:
    with pytest.raises(ValueError, match="no trial of LSTM gave a finite result"):
        Search(tiny(), "LSTM").finalists()
