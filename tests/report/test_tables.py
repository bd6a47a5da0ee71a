import math

import numpy as np
import pytest
from helpers import sample
from helpers.classified_sample import results as classified_results

from eirehn.report.tables import (
    METRICS,
    NAMES,
    comparison_table,
    count,
    duration,
    markdown_table,
    measured,
    metric_of,
    percent,
    printed,
    results_table,
    signed,
    verdict,
    with_spread,
)


def stored(*rows, **more):
    return {"bayes_floor": 0.000427, "quick": False, "rows": list(rows), **more}


def row(model="RNN", hidden=20, values=(0.0004, 0.0006), **more):
    return sample.row(model, list(values), label=f"{NAMES.get(model, model)}-{hidden}", **more)


def test_row_holds_the_stored_figures_and_what_follows_from_them():
    (line,) = results_table(stored(row("EIREHN", paper=0.0004, parameters=2862, final_mean=0.0007, seconds=3)))
    assert (line.label, line.model, line.parameters) == ("EI-REHN-20", "EI-REHN", 2862)
    assert line.difference == pytest.approx(0.0001, abs=1e-12)
    assert line.excess == pytest.approx(0.000073, abs=1e-12)
    assert line.best
    assert line.paper_best


def test_rows_of_a_model_stand_together():
    rows = [row("RNN", 20), row("LSTM", 20), row("RNN", 30)]
    assert [line.label for line in results_table(stored(*rows))] == ["RNN-20", "RNN-30", "LSTM-20"]


@pytest.mark.parametrize(("metric", "best"), [("mse", "RNN-10"), ("accuracy", "RNN-30")])
def test_best_follows_the_direction_of_the_metric(metric, best):
    rows = [row(hidden=h, mean=m, paper=m, metric=metric) for h, m in ((10, 0.1), (20, 0.2), (30, 0.3))]
    lines = results_table(stored(*rows))
    assert [line.label for line in lines if line.best] == [best]
    assert [line.label for line in lines if line.paper_best] == [best]


def test_row_with_a_diverged_seed_is_never_best():
    lines = results_table(stored(row(hidden=10, mean=1e-9, values=[1e-9, None]), row(hidden=20)))
    assert [line.diverged for line in lines] == [1, 0]
    assert [line.best for line in lines] == [False, True]
    assert lines[0].finite_mean == (1e-9, 0.0)


def test_all_diverged_has_no_best():
    (line,) = results_table(stored(row(values=[math.nan, None])))
    assert not line.best
    assert math.isnan(line.mean)
    assert math.isnan(line.finite_mean[0])


def test_one_seed_has_no_spread():
    assert "| **0.500** |" in markdown_table(stored(row(values=[0.0005])))


def test_labels_tell_rows_apart():
    rows = [
        row("EIREHN", max_depth=6, weight_update="paper", recipe="paper"),
        row("EIREHN", max_depth=10, weight_update="paper", recipe="paper"),
        row("EIREHN", max_depth=10, weight_update="recursive", recipe="paper"),
        row("EIREHN", max_depth=10, weight_update="recursive", recipe="ours"),
    ]
    labels = [line.label for line in results_table(stored(*rows))]
    assert labels == [
        "EI-REHN-20, depth 6",
        "EI-REHN-20, depth 10, paper",
        "EI-REHN-20, depth 10, recursive, paper",
        "EI-REHN-20, depth 10, recursive, ours",
    ]


def test_markdown():
    text = markdown_table(
        stored(
            row("LSTM", 20, [0.000715, 0.000719], std=0.000002, paper=0.00072, parameters=1882),
            row("EIREHN", 20, [0.0005, math.nan], paper=0.00047, parameters=2862),
        )
    )
    lines = text.splitlines()
    head, _, first, second = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[:4])
    assert head == ["model", "parameters", "seeds", "ours", "paper", "difference", "over the floor"]
    assert first == ["LSTM-20", "1 882", "2", "**0.717 ± 0.002**", "0.72", "−0.003 (−0.4 %)", "+0.290"]
    assert second == ["EI-REHN-20", "2 862", "2, 1 diverged", "–", "**0.47**", "–", "–"]
    assert len({len(line) for line in lines[:4]}) == 1
    assert "Floor, which no predictor can beat: 0.427." in text


def test_quick_run_says_so():
    assert "not comparable" in markdown_table(stored(row(), quick=True))
    assert "not comparable" not in markdown_table(stored(row()))


def test_without_floor_there_is_no_excess():
    assert "floor" not in markdown_table(stored(row(), bayes_floor=None)).lower()


def test_accuracy_stands_in_percent_beside_the_paper_s():
    stored = classified_results()
    stored["rows"][6].update(values=[0.9210, 0.9230], mean=0.9220, std=0.0014, final_mean=0.9220)
    text = markdown_table(stored)
    line = next(line for line in text.splitlines() if line.startswith("| EI-REHN-48  "))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["EI-REHN-48", "16 950", "2", "**92.20 ± 0.14**", "**92.48 ± 0.61**", "−0.28"]
    assert "test accuracy, %; mean ± standard deviation over the seeds." in text


def compared(metric, references=(), **values):
    own = {"metric": metric, "parameters": 100, "depth": 2.0, "step_ms": {"cpu": 1.5}, "trials": [{}]}
    rows = [sample.row(name, given, label=name, **own) for name, given in values.items()]
    for each in rows:
        each["mean"] = np.mean(each["values"])  # NaN of a diverged seed
    return {"rows": rows, "references": references, "epochs": 3, "quick": False}


@pytest.mark.parametrize(
    ("metric", "values", "said"),
    [
        ("accuracy", {"A": [0.90, 0.92], "B": [0.915, 0.935], "C": [0.5, 0.52]}, "B is first, by more than"),
        ("accuracy", {"A": [0.90, 0.94], "B": [0.915, 0.935], "C": [0.91, 0.93]}, "B is first; C and A are within"),
        ("mse", {"A": [0.1, 0.12], "B": [0.9, 0.92]}, "A is first, by more than"),
        ("mse", {"A": [math.nan, 0.12], "B": [0.9, 0.92]}, "B is first, by more than"),
        ("mse", {"A": [math.nan, 0.12]}, "All layers diverged."),
    ],
)
def test_verdict(metric, values, said):
    assert verdict(compared(metric, **values)).startswith(said)


def test_compared_layers_stand_best_first_and_references_last():
    references = [{"label": "MiniRocket", "mean": 0.99, "std": None, "values": [0.99]}]
    lines = comparison_table(compared("accuracy", references, A=[0.90, 0.92], B=[0.93, 0.95])).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[0] for row in cells[2:5]] == ["B", "A", "MiniRocket"]
    assert cells[2] == ["B", "100", "94.00 ± 1.41", "2.00", "1.5"]
    assert cells[4][1:] == ["–", "99.00", "–", "–"]


def test_metric_of_the_rows():
    assert metric_of(classified_results()) == METRICS["accuracy"]
    assert metric_of(sample.results()) == METRICS["mse"] == metric_of({})
    with pytest.raises(ValueError, match="must have one metric, got: accuracy, mse"):
        metric_of({"rows": [{"metric": "accuracy"}, {"metric": "mse"}]})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (measured(0.5714), "0.571"),
        (measured(-12.345), "−12.35"),
        (measured(math.inf), "–"),
        (with_spread(92.2, 0.14), "92.20 ± 0.14"),
        (with_spread(1.0, math.nan), "1.000"),
        (printed(0.47), "0.47"),
        (printed(73.4), "73.40"),
        (signed(-0.05, 92.2), "−0.05"),
        (percent(0.004), "+0.4 %"),
        (count(25_340_000), "25 340 000"),
        (count(None), "–"),
        (duration(4.25), "4.2 s"),
        (duration(90), "2 min"),
        (duration(7200), "2.0 h"),
    ],
)
def test_numbers(text, expected):
    assert text == expected
