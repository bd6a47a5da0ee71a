"""Searches by one process and several, stopped and resumed, against Optuna's own view of their storage."""

from __future__ import annotations

import multiprocessing
import os
import signal
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from helpers.resume import KilledError, StopAt
from helpers.small import DATA, Sums, small, with_data, with_network

from eirehn._internal.files import RunError, read_json, write_json
from eirehn.cli import main
from eirehn.experiments.search import Search, tune
from eirehn.experiments.search_space import read_space
from eirehn.training.config import Recipe
from eirehn.training.run import RunFolder

RECIPE = replace(with_network(small("EIREHN", epochs=4), max_depth=2), name="tiny")
LINES = ("optimisation.learning_rate=1e-4:30:log", "network.max_depth=1:3", "network.weight_update=bounded,scaling")
State = optuna.trial.TrialState
Complete, Pruned, Running = State.COMPLETE, State.PRUNED, State.RUNNING


def search(
    folder: Path, trials: int, recipe: Recipe = RECIPE, lines: tuple[str, ...] = LINES, **more: Any
) -> Search:
    return Search(folder, recipe, read_space(recipe, lines, {}, ()), trials, **more)


def study_in(folder: Path) -> optuna.Study:
    return optuna.load_study(study_name=None, storage=f"sqlite:///{folder / 'study.db'}")


def facts(study: optuna.Study) -> list[Any]:
    return [(each.number, each.state, each.params, each.intermediate_values) for each in study.trials]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search that was not stopped."""
    folder = tmp_path_factory.mktemp("searches") / "whole"
    tune(search(folder, 12), command="", jobs=1)
    return folder


def test_optuna_reads_what_the_runs_measured(whole: Path) -> None:
    study = study_in(whole)
    assert [each.number for each in study.trials] == list(range(12))
    complete = [each for each in study.trials if each.state == Complete]
    assert len(complete) >= 5
    for each in complete:
        folder = whole / "trials" / f"tiny-{each.number:03}"
        assert each.value == statistics.fmean(read_json(folder / "result.json")["best_validation"])
        recipe = RunFolder(folder).recipe()
        assert recipe.optimisation.learning_rate == each.params["optimisation.learning_rate"]
        assert recipe.network.max_depth == each.params["network.max_depth"]
    assert study.best_value == min(each.value for each in complete)
    first = study.trials[0].params  # the recipe's own; its weight update and depth too
    assert first == {
        "optimisation.learning_rate": 0.01,
        "network.max_depth": 2,
        "network.weight_update": "bounded",
    }


def test_bad_trials_are_pruned(whole: Path) -> None:
    """Each is worse than the median, by then, of the trials before it."""
    trials = study_in(whole).trials
    pruned = [each for each in trials if each.state == Pruned]
    assert pruned
    for each in pruned:
        step = each.last_step
        before = [other.intermediate_values[step] for other in trials[: each.number] if other.state == Complete]
        assert step < 4
        assert len(before) >= 5
        assert min(each.intermediate_values.values()) > statistics.median(before)
        assert not RunFolder(whole / "trials" / f"tiny-{each.number:03}").result.exists()


def test_the_best_settings_train_to_the_same_result(whole: Path, tmp_path: Path) -> None:
    assert main(["train", "--config", str(whole / "best.yaml"), "--out", str(tmp_path / "run")]) == 0
    assert statistics.fmean(read_json(tmp_path / "run" / "result.json")["best_validation"]) == (
        study_in(whole).best_value
    )
    assert RunFolder(tmp_path / "run").recipe().name == "tiny-tuned"


def test_a_search_that_was_killed_resumes_with_the_same_trials(whole: Path, tmp_path: Path) -> None:
    own = search(tmp_path / "search", 3)
    own.open()
    for step in (3, 9):  # in the first epoch of the first trial, and in its third
        with own.claimed() as trial:
            assert trial is not None
            with pytest.raises(KilledError):
                own.run(trial, print, print, StopAt(step, killed=True))
    with own.claimed() as trial, own.claimed() as other:  # a trial under way is left to whoever has it
        assert trial is not None
        assert other is not None
        assert (trial.number, other.number) == (0, 1)
    tune(own, command="", jobs=1)
    assert facts(study_in(own.folder)) == facts(study_in(whole))[:3]
    tune(replace(own, trials=12), command="", jobs=1)  # more trials
    assert facts(study_in(own.folder)) == facts(study_in(whole))
    assert (own.folder / "best.yaml").read_text() == (whole / "best.yaml").read_text()


@pytest.mark.slow
def test_processes_share_a_search_and_one_is_killed(tmp_path: Path) -> None:
    said: list[str] = []
    own = search(tmp_path / "search", 6, replace(RECIPE, data=replace(DATA, train=600)))

    def kill(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)

    with pytest.raises(RunError, match="a training process was killed"):
        tune(own, command="", jobs=2, say=kill)
    trials = study_in(own.folder).trials
    assert Running in {each.state for each in trials}
    found = tune(own, command="", jobs=1, say=said.append)
    assert [each.number for each in found.trials] == list(range(6))
    after = study_in(own.folder).trials
    assert {each.state for each in after} <= {Complete, Pruned}
    assert len({each.params["optimisation.learning_rate"] for each in after}) == 6
    assert sorted(line[:8] for line in said) == [f"tiny-00{number}" for number in range(6)]  # each ended once
    for each in trials:  # what had been chosen stays
        assert after[each.number].params.items() >= each.params.items()
        assert each.state == Running or after[each.number].value == each.value
    assert not list(own.folder.glob(".sweep*"))


def test_settings_that_do_not_fit_are_failed_trials(tmp_path: Path) -> None:
    """`early` needs several inner steps."""
    lines = ("network.max_depth=1:2", "optimisation.early=0:0.5")
    recipe = replace(RECIPE, optimisation=replace(RECIPE.optimisation, epochs=1))
    found = tune(search(tmp_path / "search", 6, recipe, lines), command="", jobs=1)
    failed = [each for each in found.trials if each.settings["network.max_depth"] == 1]
    assert failed
    assert all(each.state == "failed" and "early needs" in str(each.error) for each in failed)
    assert sum(each.state == "complete" for each in found.trials) == 6 - len(failed)


def test_diverged_trials_are_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose process was killed after the training, before the study knew."""
    lines = ("optimisation.learning_rate=1e33,1e34",)
    own = search(tmp_path / "search", 2, lines=lines)
    own.open()

    def killed(*_: Any, **__: Any) -> None:
        raise KilledError

    with own.claimed() as trial, monkeypatch.context() as patch:
        assert trial is not None
        patch.setattr(own.study, "tell", killed)
        with pytest.warns(UserWarning, match="unstable"), pytest.raises(KilledError):
            own.run(trial, print, print)
    assert read_json(own.runs / "tiny-000" / "result.json")["best_validation"] == [None, None]
    with (
        pytest.warns(UserWarning, match="unstable"),
        pytest.raises(ValueError, match="no trial gave a finite result; try lower"),
    ):
        tune(own, command="", jobs=1)
    assert [each.state for each in study_in(tmp_path / "search").trials] == [Pruned, Pruned]


def test_all_trials_are_with_other_processes(tmp_path: Path) -> None:
    own = search(tmp_path / "search", 1)
    own.open()
    with own.claimed(), pytest.raises(RunError, match="no trial is complete yet: other processes train"):
        tune(own, command="", jobs=1)


def test_what_is_not_this_search_is_refused(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"another search \(it differs in search\)"):
        search(whole, 12, lines=LINES[:1]).open()
    with pytest.raises(RunError, match=r"optimisation\.epochs"):
        search(whole, 12, small(epochs=2)).open()
    with pytest.raises(RunError, match="differs in storage"):
        search(whole, 12, storage=f"sqlite:///{tmp_path}/other.db").open()
    with pytest.raises(RunError, match="not the folder of a search"):
        search(whole / "trials" / "tiny-000", 12).open()
    shared = f"sqlite:///{tmp_path}/shared.db"
    search(tmp_path / "a" / "same", 1, storage=shared).open()
    with pytest.raises(RunError, match="has a study 'same' of another folder"):
        search(tmp_path / "b" / "same", 1, storage=shared).open()
    with pytest.raises(RunError, match=r"^the storage postgres\S*//me:\*\*\*@nowhere/db cannot be used"):
        search(tmp_path / "c", 1, storage="postgres://me:secret@nowhere/db").open()
    search(tmp_path / "c", 1).open()  # with a storage that can be used
    for damaged in ({}, [], {"id": "1", "recipe": {"seeds": "a"}, "search": {}, "storage": None}):
        write_json(tmp_path / "c" / "search.json", damaged)
        with pytest.raises(RunError, match=r"search.json is damaged: "):
            search(tmp_path / "c", 1).open()


def test_validation_data_and_one_process_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"needs validation data, .* --data\.held-out 6"):
        search(tmp_path / "search", 1, with_data(RECIPE, Sums())).open()
    two = replace(RECIPE, hardware=replace(RECIPE.hardware, devices=2))
    with pytest.raises(ValueError, match="trained by one process"):
        search(tmp_path / "search", 1, two).open()
    monkeypatch.setenv("SLURM_PROCID", "1")
    with pytest.raises(ValueError, match="trained by one process"):
        search(tmp_path / "search", 1).open()
    assert not list(tmp_path.iterdir())
