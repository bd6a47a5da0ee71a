"""A training on a user's own file: the command line, the model it leaves, and being stopped."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.resume import StopAt, same, train_with_stops

import eirehn
from eirehn._internal.files import RunError, read_json, write_json
from eirehn.cli import main
from eirehn.data.table import FileData
from eirehn.experiments import classification
from eirehn.experiments.trained import Trained, histogram
from eirehn.recipes import find
from eirehn.training.config import Hardware, Recipe
from eirehn.training.run import RunFolder
from eirehn.training.trainer import train


@pytest.fixture
def ragged(tmp_path: Path) -> Path:
    """40 sequences of 3 to 6 steps and two channels, around 50 and −3; what follows them is not a number."""
    random = np.random.default_rng(0)
    lengths, shifts = random.integers(3, 7, 40), random.choice([-6.0, 6.0], 40)
    x = random.normal([50.0, -3.0], [5.0, 0.1], (40, 6, 2)) + shifts[:, None, None] * [1.0, 0.0]
    for row, length in enumerate(lengths):
        x[row, length:] = np.nan
    path = tmp_path / "my.npz"
    np.savez(path, X=x, y=np.where(shifts > 0, "above", "below"), lengths=lengths, level=1000.0 + shifts)
    return path


SMALL = ["--network.hidden_size", "5", "--network.max_depth", "2", "--hardware.accelerator", "cpu"]


def trained(folder: Path, *words: str) -> list[str]:
    """A command that trains in `folder`, in words."""
    return ["train", *words, *SMALL, "--seeds", "[0,1]", "--out", str(folder)]


def test_classify(ragged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    weights = ["--data.class_weights", "balanced", "--data.validation", "0.2"]
    words = trained(run, "--recipe", "classify", "--data", str(ragged), "--optimisation.epochs", "8", *weights)
    assert main(words) == 0
    assert main(["evaluate", str(run)]) == 0
    shown = capsys.readouterr().out
    result = read_json(run / "result.json")
    for seed, value in enumerate(result["values"]):
        assert f"seed {seed}: accuracy {value:.6g}" in shown
    check_model(run, ragged, result["values"])


def test_nothing_held_out_to_choose_by(ragged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last epoch is the one that counts."""
    run = tmp_path / "run"
    words = trained(run, "--recipe", "classify", "--data", str(ragged), "--optimisation.epochs", "2")
    assert main(words) == 0
    result = read_json(run / "result.json")
    assert result["best_epoch"] == [2, 2]
    assert result["values"] == result["final_values"]
    check_model(run, ragged, result["values"])
    assert main(["evaluate", str(run), "--split", "validation"]) == 2
    assert "holds no sequences out for validation" in capsys.readouterr().err
    assert main(words) == 0  # ended: not trained again
    assert read_json(run / "result.json") == result


def check_model(run: Path, path: Path, values: list[float]) -> None:
    """`eirehn.load` gives a model of the file's own units, sequence by sequence."""
    data = RunFolder(run).recipe().data
    assert isinstance(data, FileData)
    assert Path(data.path) == path.resolve()
    with np.load(path) as file:
        x, y, lengths = file["X"], file["y"], file["lengths"]
    for index, expected in enumerate(values):
        model = eirehn.load(run, seed=index)
        assert model.classes == ("above", "below")
        right = []
        for row in data.division.test:
            with torch.no_grad():
                answer = model(torch.from_numpy(x[row : row + 1, : lengths[row]])).argmax(-1)
            right.append(model.classes[int(answer)] == y[row])
        assert np.mean(right) == pytest.approx(expected)


def test_regress(ragged: Path, tmp_path: Path) -> None:
    """The error is in units of the target's deviation, the model's answers in the file's own."""
    run = tmp_path / "run"
    words = trained(
        run, "--recipe=regress", f"--data={ragged}", "--data.target", "level", "--optimisation.epochs=8"
    )
    assert main(words) == 0
    data = RunFolder(run).recipe().data
    assert isinstance(data, FileData)
    rows = data.division.test
    with np.load(ragged) as file:
        x, level, lengths = file["X"][rows], file["level"][rows], file["lengths"][rows]
    model = eirehn.load(run, seed=1)
    with torch.no_grad():
        found = model(torch.from_numpy(x), lengths=torch.from_numpy(lengths))[:, 0].numpy()
    error = np.mean((found - level) ** 2) / data.scaling.target_scale[0] ** 2
    assert read_json(run / "result.json")["values"][1] == pytest.approx(error, rel=1e-4)


def test_report(ragged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with np.load(ragged) as file:
        arrays = dict(file)
    arrays["y"] = np.where(arrays["y"] == "above", 7, 3)
    arrays["y"][0] = 5  # of which none can be held out
    np.savez(ragged, **arrays)
    run, page = tmp_path / "run", tmp_path / "page.html"
    start = ["--network.start", "{alpha: 0.1, decay_bias: -1.5, decay_scale: 1.0}"]  # depth differs
    words = ["--recipe", "classify", "--data", str(ragged), "--optimisation.epochs", "8", *start]
    assert main([*trained(run, *words), "--network.max_depth", "4"]) == 0
    assert main(["report", str(run), "--out", str(page)]) == 0
    assert page.exists()

    told = Trained(run)
    accuracies, depths = zip(*classification.accuracies_and_depths(told), strict=True)
    result = read_json(run / "result.json")
    assert accuracies == pytest.approx(result["values"], abs=1e-12)
    assert depths == pytest.approx(result["depth"], rel=1e-6)
    test = FileData(path=str(ragged)).division.test
    lengths, y = arrays["lengths"][test], arrays["y"][test]
    alone = [
        [
            eirehn.load(run, seed=seed)
            .run(torch.from_numpy(arrays["X"][row : row + 1, : arrays["lengths"][row]]))
            .depth
            for row in test
        ]
        for seed in (0, 1)
    ]  # 2 of N of (1, 1, T)
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


def test_no_report_of_other_data(ragged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their figures would stand side by side. Copies of a file are the same data."""
    for name in ("copy", "other"):
        shutil.copy(ragged, tmp_path / f"{name}.npz")
    with np.load(ragged) as file:
        np.savez(tmp_path / "other.npz", **{**file, "X": file["X"] + 1.0})
    words = ["--recipe", "classify", "--optimisation.epochs", "1"]
    runs = {name: str(tmp_path / f"run-{name}") for name in ("my", "copy", "other", "seed")}
    for name, run in runs.items():
        path = tmp_path / f"{'my' if name == 'seed' else name}.npz"
        more = ["--data.seed", "3"] if name == "seed" else ["--data.class_weights", "balanced"]
        assert main([*trained(Path(run), *words), "--data", str(path), *more]) == 0
    page = str(tmp_path / "page.html")
    assert main(["report", runs["my"], runs["copy"], "--out", page]) == 0
    capsys.readouterr()
    for name, what in (("other", "file"), ("seed", "sequences to test on")):
        assert main(["report", runs["my"], runs["copy"], runs[name], "--out", page]) == 2
        assert capsys.readouterr().err.strip().endswith(f"run-{name} has others than {runs['my']}: {what}")


def test_a_report_of_the_same_cases(ragged: Path, tmp_path: Path) -> None:
    """However they are named: a file that says itself what to test on, with or without its checksum."""
    with np.load(ragged) as file:
        parts = {f"{name}_{part}": file[name][at::2] for name in file for at, part in enumerate(("train", "test"))}
    np.savez(tmp_path / "parts.npz", **parts)
    words = ["--recipe", "classify", "--optimisation.epochs", "1", "--data", str(tmp_path / "parts.npz")]
    assert main(trained(tmp_path / "one", *words)) == 0
    assert main([*trained(tmp_path / "two", *words), "--data.seed", "3"]) == 0
    recipe = RunFolder(tmp_path / "one").recipe()
    assert isinstance(recipe.data, FileData)
    train(replace(recipe, data=replace(recipe.data, sha256=None)), tmp_path / "three")
    runs = [str(tmp_path / name) for name in ("one", "two", "three")]
    assert main(["report", *runs, "--out", str(tmp_path / "page.html")]) == 0


def test_what_is_written_takes_the_place_of_nothing(
    ragged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = ["--recipe", "classify", "--data", str(ragged), "--optimisation.epochs", "1"]
    assert main(trained(run, *words)) == 0
    (log,) = (run / "tensorboard").glob("events*")
    (run / "last.ckpt").unlink()  # nor of what is not there
    (run / "last.safetensors").rename(tmp_path / "store")
    (run / "last.safetensors").symlink_to(tmp_path / "store")
    os.mkfifo(tmp_path / "pipe")
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    capsys.readouterr()
    parts = [run / name for name in ("best.safetensors", "../run/recipe.json", "last.ckpt", "last.safetensors")]
    for own in (*parts, log, tmp_path / "store"):
        for command in (["report", str(run), "--out"], ["evaluate", str(run), "--results"]):
            assert main([*command, str(own)]) == 2
            assert "is a part of the run" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    for command in (["report", str(run), "--out"], ["evaluate", str(run), "--results"]):
        assert main([*command, str(tmp_path / "pipe")]) == 2
        assert "must be a file" in capsys.readouterr().err
        for _ in range(2):  # beside what is the run's own there is room
            assert main([*command, str(run / "found")]) == 0
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(RunError, match="it is a folder or a device, no file"):
        write_json(tmp_path / "pipe", {})


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "RHN", "SRHN", "SREHN", "ACT"])
def test_classify_by_other_networks(
    kind: str, ragged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A price is for those that choose their depth."""
    words = ["--recipe", "classify", "--data", str(ragged), "--optimisation.epochs", "1", "--network.kind", kind]
    depth = [] if kind not in ("RNN", "LSTM") else ["--network.max_depth", "1"]
    assert main([*trained(tmp_path / "run", *words), *depth]) == 0
    capsys.readouterr()
    chooses = kind in ("SREHN", "ACT")
    priced = [*trained(tmp_path / "priced", *words), *depth, "--optimisation.price", "0.1"]
    assert main(priced) == (0 if chooses else 2)
    assert ("price is for networks that choose their depth" in capsys.readouterr().err) != chooses


def test_no_report_of_numbers(ragged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    words = ["--recipe", "regress", "--data", str(ragged), "--data.target", "level", "--optimisation.epochs", "1"]
    assert main(trained(run, *words)) == 0
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 2
    assert "no report of numbers" in capsys.readouterr().err


def small(path: Path, **options: Any) -> Recipe:
    base = find("classify")
    return replace(
        base,
        network=replace(base.network, hidden_size=4, max_depth=2),
        data=FileData(path=str(path), validation=0.15, **options),
        optimisation=replace(base.optimisation, epochs=3),
        seeds=(0, 1),
        hardware=Hardware(accelerator="cpu"),
    )


def test_stopped_and_gone_on_it_ends_with_the_same_bits(
    ragged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(ragged, class_weights="balanced")
    train(recipe, tmp_path / "straight")
    stops = [StopAt(1, killed=False), StopAt(3, killed=True), StopAt(4, killed=False)]
    train_with_stops(recipe, tmp_path / "stopped", stops, 0.0)
    same(tmp_path / "stopped", tmp_path / "straight")


def test_members_together_are_members_alone(ragged: Path, tmp_path: Path) -> None:
    recipe = replace(small(ragged), hardware=Hardware(accelerator="cpu", precision="64-true"))
    together = train(recipe, tmp_path / "together")
    for index in range(2):
        alone = train(replace(recipe, seeds=(index,)), tmp_path / f"alone-{index}")
        assert alone["best_validation"][0] == together["best_validation"][index]
        assert alone["depth"][0] == pytest.approx(together["depth"][index], rel=1e-9)


def test_a_file_that_changed_is_no_way_to_go_on(
    ragged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = trained(run, "--recipe", "classify", "--data", str(ragged), "--optimisation.epochs", "1")
    assert main(words) == 0
    with np.load(ragged) as file:
        np.savez(ragged, **{**file, "X": file["X"] + 1})
    assert main(words) == 2
    assert "another recipe (it differs in data.sha256)" in capsys.readouterr().err
    assert main(["evaluate", str(run)]) == 2
    assert "has changed since it was first trained on" in capsys.readouterr().err


@pytest.mark.parametrize("named", [["--config", "{}"], ["--config={}"]])
def test_flags_change_what_a_yaml_file_says_wherever_it_stands(
    named: list[str], ragged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["recipes", "classify"]) == 0
    path = tmp_path / "my.yaml"
    path.write_text(capsys.readouterr().out)
    named = [word.format(path) for word in named]
    flags = ["--data", str(ragged), "--data.test", "0.2", "--optimisation.epochs", "1"]
    for number, words in enumerate(([*named, *flags], [*flags, *named])):
        run = tmp_path / str(number)
        assert main(trained(run, *words)) == 0
        assert RunFolder(run).recipe().data == FileData(path=str(ragged), test=0.2).pinned()
        assert RunFolder(run).recipe().network.hidden_dropout == 0.2


def test_wrong_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        ([], "data.path must name an npz, CSV or Parquet file"),
        (["--data", str(tmp_path / "none.csv")], "there is no file"),
        (["--data", "my.pickle"], "path must end in .npz"),
        (["--data=my.pickle"], "path must end in .npz"),
        (["--data", str(tmp_path)], "path must end in .npz"),
        (["--data.validation", "2"], "validation must be at least 0"),
    ):
        assert main(trained(tmp_path / "run", "--recipe", "classify", *words)) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
