"""What a report says of runs in every state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eirehn._internal.files import read_json
from eirehn.data.synthetic import SyntheticData
from eirehn.experiments import Cut, Experiment, experiments
from eirehn.experiments.reproduce import report_on, reproduce
from eirehn.recipes import find
from eirehn.training.config import Optimisation, Recipe


def tiny(name: str, **changes: object) -> Recipe:
    optimisation = Optimisation(epochs=1, batch_size=20, **changes)  # type: ignore[arg-type]
    return replace(
        find(name), data=SyntheticData(train=20, validation=10, test=10), seeds=(0, 1), optimisation=optimisation
    )


def diverging(name: str) -> Recipe:
    return tiny(name, optimizer="sgd", learning_rate=1e38)


@pytest.mark.slow
def test_runs_that_diverged_are_named_and_no_reason_to_fail(tmp_path: Path) -> None:
    rows = [tiny("synthetic-srhn-20-depth-1"), diverging("synthetic-ei-rehn-10"), tiny("synthetic-srehn-20")]
    experiment = Experiment("some", "Some rows", "In every state.", rows)
    results = reproduce(experiment, tmp_path, command="eirehn …", cut=Cut(), jobs=1)
    kept = read_json(tmp_path / "results.json")
    assert [row["mean"] is None for row in kept["rows"]] == [False, True, False]
    assert "diverged" in (tmp_path / "report.html").read_text()
    assert results["bayes_floor"] > 0


@pytest.mark.slow
def test_the_figures_of_the_report_are_in_the_results(tmp_path: Path) -> None:
    rows = [tiny("synthetic-srehn-20"), tiny("synthetic-rhn-10")]
    reproduce(Experiment("some", "Some rows", "Two.", rows), tmp_path, command="eirehn …", jobs=1)
    figures = read_json(tmp_path / "results.json")["figures"]
    assert {each["label"]: each["caps"] for each in figures["early"]} == {
        "SREHN-20": [1, 2, 3, 4, 5],
        "RHN-10": [1, 2, 3, 4, 5],
    }
    full = {row["label"]: row["mean"] for row in read_json(tmp_path / "results.json")["rows"]}
    for each in figures["early"]:  # uncapped, a model is as good as the table says
        assert each["mean"][-1] == pytest.approx(full[each["label"]], rel=1e-5)


@pytest.mark.slow
def test_a_report_of_nothing_but_diverged_runs(tmp_path: Path) -> None:
    row = diverging("synthetic-ei-rehn-10")
    reproduce(Experiment("some", "One row", "None.", [row]), tmp_path, command="eirehn …", jobs=1)
    page = report_on([tmp_path / row.name], tmp_path / "again.html", command="eirehn …")
    assert "diverged" in page.read_text()


@pytest.mark.slow
def test_rows_trained_before_stay_in_the_results(tmp_path: Path) -> None:
    rows = [tiny("synthetic-rnn-20"), tiny("synthetic-lstm-10"), tiny("synthetic-lstm-15")]
    experiment = Experiment("some", "Three rows", "Some.", rows)
    reproduce(experiment, tmp_path, command="eirehn …", only=["synthetic-lstm-15"], jobs=1)
    results = reproduce(experiment, tmp_path, command="eirehn …", only=["synthetic-rnn-20"], jobs=1)
    assert [row["recipe"] for row in results["rows"]] == ["synthetic-rnn-20", "synthetic-lstm-15"]
    assert not (tmp_path / "synthetic-lstm-10").exists()
    # What ended by another recipe, say a shorter one, is no row of this one.
    cut = reproduce(
        experiment, tmp_path / "cut", command="eirehn …", only=["synthetic-rnn-20"], jobs=1, cut=Cut(epochs=2)
    )
    assert len(cut["rows"]) == 1


def test_quick_experiments_are_small_in_every_way() -> None:
    for experiment in experiments().values():
        rows = [experiment.quick(recipe) for recipe in experiment.rows]
        assert max(recipe.optimisation.epochs for recipe in rows) <= 3
        assert max(recipe.network.hidden_size for recipe in rows) <= 64
        assert max(len(recipe.seeds) for recipe in rows) <= 2
    notice = experiment.quick.notice(rows)
    assert notice is not None
    assert "training tokens 20000, at most 64 units" in notice
