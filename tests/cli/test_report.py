"""`eirehn report`: of a user's own data, and never of runs that cannot stand side by side."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.command import done, refused
from helpers.language import written
from helpers.ragged import TRAIN, changed, ragged

import eirehn
from eirehn._internal.files import read_json
from eirehn.cli import main
from eirehn.data.table import FileData
from eirehn.experiments import classification
from eirehn.experiments.trained import Trained, histogram
from eirehn.training.run import RunFolder
from eirehn.training.trainer import train


def test_a_report_of_own_data(tmp_path: Path) -> None:
    """Depths and accuracies by class are those of the sequences read one by one."""
    path, run = ragged(tmp_path), tmp_path / "run"
    with np.load(path) as file:
        arrays = dict(file)
    arrays["y"] = np.where(arrays["y"] == "above", 7, 3)
    arrays["y"][0] = 5  # of which none can be held out
    np.savez(path, **arrays)
    start = ["--network.start", "{alpha: 0.1, decay_bias: -1.5, decay_scale: 1.0}"]  # depth differs
    line = f"{TRAIN} --recipe classify --data {path} --optimisation.epochs 8 --out {run} --network.max_depth 4"
    assert main([*line.split(), *start]) == 0
    done(f"report {run} --out {tmp_path / 'page.html'}")
    assert (tmp_path / "page.html").exists()

    told, result = Trained(run), read_json(run / "result.json")
    accuracies, depths = zip(*classification.accuracies_and_depths(told), strict=True)
    assert accuracies == pytest.approx(result["values"], abs=1e-12)
    assert depths == pytest.approx(result["depth"], rel=1e-6)
    test = FileData(path=str(path)).division.test
    lengths, y = arrays["lengths"][test], arrays["y"][test]
    inputs = [torch.from_numpy(arrays["X"][row : row + 1, : arrays["lengths"][row]]) for row in test]
    alone = [[eirehn.load(run, seed=seed).run(x).depth for x in inputs] for seed in (0, 1)]  # 2 of N of (1, 1, T)
    counts = np.bincount(np.concatenate([each.flatten() for seed in alone for each in seed]), minlength=5)
    assert histogram(told, classification.depths(told)).counts == counts.tolist()
    assert len(set(counts[1:].tolist()) - {0}) > 1
    by_class = classification.class_depth(told)
    assert by_class.classes == ["3", "7"]
    assert by_class.count == [int((y == 3).sum()), int((y == 7).sum())]
    means = np.array([[each.double().mean().item() for each in seed] for seed in alone]).mean(0)  # (N,)
    assert by_class.depth == pytest.approx([means[y == 3].mean(), means[y == 7].mean()], rel=1e-9)
    shown = {(len(each.signals), len(each.depth)) for each in classification.windows(told)}
    assert shown <= {(length, length) for length in lengths.tolist()}


def test_no_report_of_other_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their metrics would stand side by side. Copies of a file are the same data."""
    path, page = ragged(tmp_path), tmp_path / "page.html"
    shutil.copy(path, tmp_path / "copy.npz")
    changed(path, tmp_path / "other.npz")
    runs = {name: tmp_path / f"run-{name}" for name in ("my", "copy", "other", "seed")}
    for name, run in runs.items():
        file = tmp_path / f"{'my' if name == 'seed' else name}.npz"
        more = "--data.seed 3" if name == "seed" else "--data.class_weights balanced"
        done(f"{TRAIN} --recipe classify --optimisation.epochs 1 --data {file} {more} --out {run}")
    done(f"report {runs['my']} {runs['copy']} --out {page}")
    for name, what in (("other", "file"), ("seed", "sequences to test on")):
        told = refused(f"report {runs['my']} {runs['copy']} {runs[name]} --out {page}", capsys)
        assert told.endswith(f"run-{name} differs from {runs['my']} in: {what}\n")


def test_a_report_of_the_same_cases(tmp_path: Path) -> None:
    """However they are named: a file that says itself what to test on, with or without its checksum."""
    with np.load(ragged(tmp_path)) as file:
        parts = {f"{name}_{part}": file[name][at::2] for name in file for at, part in enumerate(("train", "test"))}
    np.savez(tmp_path / "parts.npz", **parts)
    line = f"{TRAIN} --recipe classify --optimisation.epochs 1 --data {tmp_path / 'parts.npz'} --out {tmp_path}"
    done(f"{line}/one")
    done(f"{line}/two --data.seed 3")
    recipe = RunFolder(tmp_path / "one").recipe()
    assert isinstance(recipe.data, FileData)
    train(replace(recipe, data=replace(recipe.data, sha256=None)), tmp_path / "three")
    runs = " ".join(str(tmp_path / name) for name in ("one", "two", "three"))
    done(f"report {runs} --out {tmp_path / 'page.html'}")


def test_no_report_of_different_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Metrics of numbers and of classes, of words and of characters."""
    page, few = tmp_path / "page.html", "--network.hidden_size=4 --optimisation.epochs=1"
    path = ragged(tmp_path)
    done(f"{TRAIN} --recipe regress --data {path} --data.target level {few} --out {tmp_path / 'number'}")
    done(f"{TRAIN} --recipe classify --data {path} --data.target level {few} --out {tmp_path / 'class'}")
    told = refused(f"report {tmp_path / 'number'} {tmp_path / 'class'} --out {page}", capsys)
    assert "class differs from" in told
    assert "task" in told
    data = written(tmp_path, train=500, test=100)
    line = f"train --text {data.train} {data.validation} {data.test} --network.kind=LSTM --data.steps=5 {few}"
    for level in ("word", "char"):
        done(f"{line} --hardware.accelerator=cpu --level {level} --out {tmp_path / level}")
    told = refused(f"report {tmp_path / 'word'} {tmp_path / 'char'} --out {page}", capsys)
    assert told.endswith(f"{tmp_path / 'char'} differs from {tmp_path / 'word'} in: level\n")
    assert not page.exists()
