"""What a report says of classifiers, against NumPy and against what training itself measured."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.quick import quick
from helpers.small import Sums, small, with_data

from eirehn._internal.files import RunError
from eirehn.data.har import CHANNELS, HarData
from eirehn.experiments import classification
from eirehn.experiments.reproduce import page
from eirehn.experiments.results import row
from eirehn.experiments.trained import Trained, early_curve, histogram, largest_of_each, learning_curve, savings
from eirehn.models import SequenceNetwork
from eirehn.report.page import render
from eirehn.report.tables import METRICS
from eirehn.training.config import DATA, Recipe
from eirehn.training.loaders import Parts
from eirehn.training.trainer import train

VARIED = {"alpha": 0.1, "decay_bias": -1.5, "decay_scale": 1.0}
"""A start from which depth differs between layers, sequences and steps."""
NETWORKS = {
    "lstm": SequenceNetwork("LSTM", 4),
    "srhn": SequenceNetwork("SRHN", 4, max_depth=2),
    "flat": SequenceNetwork("EIREHN", 5, max_depth=3),
    "tall": SequenceNetwork("EIREHN", 5, 2, max_depth=3, start=VARIED),
    "penalised": SequenceNetwork("EIREHN", 5, max_depth=3),
    "unvalidated": SequenceNetwork("EIREHN", 4, max_depth=3),
}


def recipe(name: str) -> Recipe:
    plain = small(seeds=(0, 1, 2), epochs=3, learning_rate=0.03, depth_penalty=0.3 if name == "penalised" else 0.0)
    data = Sums(validation=0 if name == "unvalidated" else 30)
    return replace(with_data(plain, data), name=name, network=NETWORKS[name])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(DATA, Sums.kind, Sums)
        patch.setattr(Parts, "size", 7)  # so that the 40 test sequences are read in parts
        for name in NETWORKS:
            train(recipe(name), folder / name)
        yield {name: Trained(folder / name) for name in NETWORKS}


@torch.no_grad()
def by_hand(run: Trained):
    """Of each model, softmax, answers and depths (layers, N, T); what is true; the inputs."""
    test = run.recipe.data.load().test
    found = []
    for model in run.models:
        logits, _, depth, _ = model.run(test.x)
        exponents = np.exp(logits.double().numpy())
        share = exponents / exponents.sum(1, keepdims=True)
        found.append((share, share.argmax(1), depth.numpy()))
    return found, test.target.numpy(), test.x.numpy()


@pytest.mark.parametrize("name", NETWORKS)
def test_accuracies_are_those_of_training(runs, name: str) -> None:
    result = runs[name].result
    accuracies, depths = zip(*classification.accuracies_and_depths(runs[name]), strict=True)
    assert accuracies == pytest.approx(result["values"], abs=1e-12)
    assert depths == pytest.approx(result["depth"], rel=1e-6)


@pytest.mark.parametrize("name", ["lstm", "tall"])
def test_confusion_by_seed(runs, name: str) -> None:
    found, target, _ = by_hand(runs[name])
    matrices = json.loads(json.dumps(classification.about_row(runs[name])))["confusion"]
    for matrix, (_, answers, _) in zip(matrices, found, strict=True):
        assert matrix == [[np.sum((target == true) & (answers == taken)) for taken in (0, 1)] for true in (0, 1)]
    assert classification.about([runs[name]]) == {"classes": ["class 1", "class 2"]}
    assert classification.confusion(runs[name]).summed.sum() == 3 * 40


def test_classes_that_nobody_names_or_has() -> None:
    matrix = classification.confusion_matrix(torch.tensor([0, 2, 2, 0]), torch.tensor([0, 2, 0, 0]), 4)
    assert matrix == [[2, 0, 1, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]


def test_seed_that_diverged_has_no_confusion(runs, tmp_path: Path) -> None:
    for name in ("recipe.json", "model.json", "best.safetensors"):
        shutil.copy(runs["flat"].folder / name, tmp_path)
    (tmp_path / "result.json").write_text(json.dumps({**runs["flat"].result, "values": [0.5, None, 0.5]}))
    whole, run = classification.confusion_by_seed(runs["flat"]), Trained(tmp_path)
    assert classification.confusion_by_seed(run) == [whole[0], None, whole[2]]
    assert len(classification.confusion(run).counts) == 2
    (tmp_path / "best.safetensors").unlink()  # weights that were not kept
    assert classification.confusion_by_seed(Trained(tmp_path)) == [None] * 3


@pytest.mark.parametrize("name", ["flat", "tall", "penalised"])
def test_depth_and_accuracy_by_class(runs, name: str) -> None:
    found, target, _ = by_hand(runs[name])
    part = classification.class_depth(runs[name])
    for index in range(2):
        which = target == index
        accuracy = [np.mean(answers[which] == index) for _, answers, _ in found]
        depth = [np.mean(spent[:, which]) for *_, spent in found]
        assert part.accuracy[index] == pytest.approx(np.mean(accuracy), abs=1e-12)
        assert part.accuracy_std[index] == pytest.approx(np.std(accuracy, ddof=1), abs=1e-12)
        assert part.depth[index] == pytest.approx(np.mean(depth), abs=1e-12)
        assert part.depth_std[index] == pytest.approx(np.std(depth, ddof=1), abs=1e-12)
        assert part.count[index] == which.sum()
    assert part.layers == (2 if name == "tall" else 1)
    if name == "tall":  # else the mean over layers would not be put to the test
        lower, upper = found[0][2].mean((1, 2))
        assert abs(lower - upper) > 0.1


def test_histogram_counts_every_layer(runs) -> None:
    found, _, _ = by_hand(runs["tall"])
    spent = np.concatenate([depth.ravel() for *_, depth in found])
    part = histogram(runs["tall"], classification.depths(runs["tall"]))
    assert list(part.counts) == np.bincount(spent, minlength=4).tolist()
    assert sum(part.counts) == 3 * 2 * 40 * 6
    assert part.layers == 2


@pytest.mark.parametrize("name", ["penalised", "tall"])
def test_windows_are_the_first_predicted_and_the_surest_mistakes(runs, name: str) -> None:
    found, target, x = by_hand(runs[name])
    share, answers, depth = found[0]
    right = answers == target
    chosen = [np.flatnonzero(right & (target == index))[:1] for index in range(2)]
    wrong = np.flatnonzero(~right)
    chosen.append(wrong[np.argsort(-share.max(1)[wrong], kind="stable")][:2])
    indices = np.concatenate(chosen)
    parts = classification.windows(runs[name])
    assert len(parts) == len(indices)
    for part, index in zip(parts, indices, strict=True):
        np.testing.assert_array_equal(np.float32(part.signals), x[index])
        np.testing.assert_array_equal(part.depth, depth[:, index].mean(0))
        assert (part.true, part.predicted) == (f"class {target[index] + 1}", f"class {answers[index] + 1}")
        assert part.probability == pytest.approx(share[index].max(), abs=1e-6)  # float32, in parts
        assert part.names == ["signal 1", "signal 2"]


def test_frames_are_taken_apart(runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sums, "signals", ("only",), raising=False)  # two time steps of one signal are read at once
    *_, x = by_hand(runs["tall"])
    *_, depth = by_hand(runs["tall"])[0][0]
    part = classification.windows(runs["tall"])[0]
    assert (part.frame, len(part.signals)) == (2, 12)
    index = next(i for i in range(40) if np.array_equal(x[i].ravel(), np.float32(part.signals)[:, 0]))
    np.testing.assert_array_equal(part.depth, np.repeat(depth[:, index].mean(0), 2))


def test_early_curve_ends_where_the_table_stands(runs) -> None:
    part = early_curve(runs["tall"], classification.accuracies_and_depths)
    result = runs["tall"].result
    assert part.caps == [1, 2, 3]
    assert part.mean[-1] == pytest.approx(np.mean(result["values"]), abs=1e-12)
    assert part.std[-1] == pytest.approx(np.std(result["values"], ddof=1), abs=1e-12)
    test = runs["tall"].test
    answers = [model(test.x, max_depth=1).argmax(-1) for model in runs["tall"].models]
    shallow = [(answer == test.target).double().mean().item() for answer in answers]
    assert part.mean[0] == pytest.approx(np.mean(shallow), abs=1e-12)


def test_savings_are_in_accuracy(runs) -> None:
    parts = savings([runs["penalised"], runs["srhn"]], classification.accuracies_and_depths, rounds=1)
    assert [part.group for part in parts] == ["elastic", "fixed"]
    assert [part.penalty for part in parts] == [0.3, None]
    for part, name in zip(parts, ("penalised", "srhn"), strict=True):
        assert part.mean == pytest.approx(np.mean(runs[name].result["values"]))
    assert parts[1].depth == 2


def test_learning_curves_know_what_was_measured(runs) -> None:
    lines = (runs["flat"].folder / "metrics.csv").read_text().splitlines()
    columns = lines[0].split(",")
    last = [float(line.split(",")[columns.index("accuracy")]) for line in lines[1:] if line.startswith("3,")]
    curve = learning_curve(runs["flat"])
    assert curve.train is None
    assert [seed[-1] for seed in curve.validation] == last
    assert np.isfinite(curve.loss).all()
    assert np.isfinite(curve.depth).all()
    curve = learning_curve(runs["unvalidated"])
    assert (curve.validation, curve.depth) == (None, None)
    assert np.isfinite(curve.loss).all()


def test_metrics_that_are_cut_off(runs, tmp_path: Path) -> None:
    for name in ("recipe.json", "result.json"):
        shutil.copy(runs["flat"].folder / name, tmp_path)
    lines = (runs["flat"].folder / "metrics.csv").read_text().splitlines()
    for kept in (lines[:-1], lines[:1], []):
        (tmp_path / "metrics.csv").write_text("\n".join(kept) + "\n")
        with pytest.raises(RunError, match=r"metrics\.csv cannot be read"):
            learning_curve(Trained(tmp_path))


def test_the_largest_of_each_form_is_shown(runs) -> None:
    largest = largest_of_each(list(runs.values()), classification.parameters)
    assert [run.recipe.name for run in largest] == ["lstm", "srhn", "flat", "tall"]


@pytest.mark.parametrize("names", quick("lstm", of=[" ".join(NETWORKS), "unvalidated", "lstm"]))
def test_report(runs, names: str) -> None:
    chosen = [runs[name] for name in names.split()]
    results = {"rows": [row(run.recipe, run.result) for run in chosen]}
    report = page("Sums", "Some.", results, chosen)
    assert report.metric == METRICS["accuracy"]
    for name in ("windows", "early", "class_depths", "histograms"):
        assert bool(getattr(report, name)) == (names != "lstm")
    assert bool(report.savings) == (len(chosen) > 1)
    text = render(report)
    assert "diverged" not in text
    assert "accuracy" in text


def test_har_names_its_classes_and_signals() -> None:
    assert len(HarData.classes) == HarData.output_size
    assert len(HarData.signals) == HarData().input_size
    words = {"body_acc": "body acceleration", "body_gyro": "angular velocity", "total_acc": "total acceleration"}
    for name, channel in zip(HarData.signals, CHANNELS, strict=True):
        sensor, axis = channel.rsplit("_", 1)
        assert name == f"{words[sensor]} {axis}"
