"""`eirehn evaluate`: what it prints, what it keeps, and what it refuses before it works."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.command import done, refused
from helpers.language import calibrated, small_language_recipe, written
from helpers.small import small

from eirehn._internal.files import read_json, write_json
from eirehn.models import LanguageNetwork
from eirehn.training.evaluate import calibrate, evaluate, evaluate_together
from eirehn.training.trainer import train


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic")
    train(small(epochs=1), folder / "run")
    return folder / "run"


def test_capped_depth_of_another_split(synthetic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done(f"evaluate {synthetic} --max_depth 1 --split validation")
    value = evaluate(synthetic, split="validation", max_depth=1).values[0]
    out = capsys.readouterr().out
    assert f"seed 0: mse {value:.6g}" in out
    assert "depth 1.000" in out


def test_what_is_only_for_language_models(
    synthetic: Path, language_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "only language models are calibrated" in refused(f"evaluate {synthetic} --calibrate", capsys)
    told = refused(f"evaluate {language_run} {synthetic} --together", capsys)
    assert "only language models are evaluated together" in told
    assert "these data are not a text" in refused(f"evaluate {synthetic} --batch 1", capsys)


def test_all_runs_are_looked_for_before_the_first_is_read(
    language_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = refused(f"evaluate {language_run} {tmp_path / 'none'} --results {tmp_path / 'results.json'}", capsys)
    assert told == f"eirehn: {tmp_path / 'none'} is not a run folder: it has no recipe.json\n"
    lost = tmp_path / "lost"
    shutil.copytree(language_run, lost)
    write_json(lost / "model.json", {**read_json(lost / "model.json"), "best_score": [None]})
    assert "no seed has a best epoch" in refused(f"evaluate {lost} --together", capsys)


def test_members_without_a_best_epoch_do_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What they started from is no model; the others are what they are without them."""
    data, both, good = written(tmp_path, train=500, test=100), tmp_path / "both", tmp_path / "good"
    recipe = replace(small_language_recipe(data, epochs=1), network=LanguageNetwork("RNN", 8), seeds=(0, 1))
    train(recipe, both)
    train(replace(recipe, seeds=(0,)), good)
    about = read_json(both / "model.json")
    write_json(both / "model.json", {**about, "best_score": [about["best_score"][0], None]})
    results = tmp_path / "new" / "results.json"
    done(f"evaluate {both} {good} --together --results {results}")
    out, err = capsys.readouterr()
    value, together = evaluate(both).values[0], evaluate_together([both, good])
    assert f"mean: perplexity {value:.6g} (1 of 2 left out: no best epoch)\n" in out
    assert f"together, 2 models: perplexity {together.value:.6g}" in out
    assert err == f"eirehn: left out, because it has no best epoch: {both}, seed 1\n"
    kept = read_json(results)
    assert [each["run"] for each in kept["runs"]] == [str(both), str(good)]
    assert (kept["runs"][0]["values"], kept["runs"][0]["mean"]) == ([value, None], value)
    assert kept["together"] == {**together._asdict(), "left_out": [f"{both}, seed 1"]}
    assert kept["versions"]["torch"] == torch.__version__


def test_temperatures_are_kept(language_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results.json"
    done(f"evaluate {language_run} --batch 1 --calibrate --results {results}")
    found, plain, kept = calibrate(language_run, batch=1), evaluate(language_run, batch=1), read_json(results)
    said = f"seed 0, calibrated: perplexity {found.values[0]:.6g}, temperature {found.temperatures[0]:.2f}"
    assert said in capsys.readouterr().out
    assert (kept["split"], kept["which"], kept["batch"], kept["max_depth"]) == ("test", "best", 1, None)
    assert kept["command"].endswith(f"--calibrate --results {results}")
    assert kept["runs"] == [
        {
            "run": str(language_run),
            "metric": "perplexity",
            "seeds": [0],
            "values": plain.values,
            "depths": plain.depths,
            "mean": plain.values[0],
            "calibrated": {"temperatures": found.temperatures, "values": found.values},
        }
    ]
    assert "together" not in kept
    done(f"evaluate {language_run} --calibrate --split validation")
    assert capsys.readouterr().out.rstrip().endswith(", fitted to this text")


def test_a_temperature_beside_a_models_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe, run = calibrated(small_language_recipe(written(tmp_path, train=500, test=100))), tmp_path / "run"
    train(recipe, run)
    done(f"evaluate {run} --calibrate --together")
    out = capsys.readouterr().out
    assert f"temperature {calibrate(run).temperatures[0]:.2f} in addition to its own" in out
    assert "together, 1 models: " in out
    assert "without temperature scaling" in out
