"""The report of a search."""

from __future__ import annotations

import re

import numpy as np

from eirehn.report.content import Report, Searched, Tried
from eirehn.report.page import render
from eirehn.report.search_figures import field_panels, progress_panel
from eirehn.report.tables import METRICS, search_table

LR, UPDATE = "optimisation.learning_rate", "network.weight_update"
FIELDS = {LR: "0.001:0.1:log", UPDATE: "bounded,paper"}
TRIALS = [
    Tried(0, "complete", 0.8, 4, {LR: 0.01, UPDATE: "paper"}),
    Tried(1, "failed", None, 0, {LR: 0.02, UPDATE: "paper"}, "out of <memory>"),
    Tried(2, "complete", 0.7, 4, {LR: 0.03, UPDATE: "bounded"}),
    Tried(3, "complete", 0.9, 4, {LR: 0.04, UPDATE: "bounded"}),
    Tried(4, "pruned", 0.2, 2, {LR: 0.05, UPDATE: "paper"}),
    Tried(5, "running", None, 1, {LR: 0.06}),
]
SEARCH = Searched(METRICS["accuracy"], FIELDS, TRIALS, 3)


def test_the_page_lists_all_trials_best_first() -> None:
    page = render(Report("t", "", {"command": "eirehn tune"}, own=True, search=SEARCH))
    assert re.findall(r'<tr><th scope="row">(\d)</th>', page) == ["3", "0", "2", "1", "4", "5"]
    assert "out of &lt;memory&gt;" in page
    assert "<td>20.00, pruned</td><td>2</td><td>0.05</td><td>paper</td>" in page
    assert "<td>0.001:0.1:log</td><td>0.04</td>" in page  # the best
    assert "<td>running</td><td>1</td><td>0.06</td><td>–</td>" in page


def test_the_line_is_the_best_so_far() -> None:
    (ax,) = progress_panel(SEARCH).figure.axes
    line = next(each for each in ax.lines if len(each.get_xdata()) > 1)
    np.testing.assert_allclose(line.get_xdata(), [0, 2, 3, 5])
    np.testing.assert_allclose(line.get_ydata(), [80, 80, 90, 90])
    rate, update = field_panels(SEARCH)
    complete, pruned = (each.get_offsets() for each in rate.figure.axes[0].collections)
    np.testing.assert_allclose(complete, [[0.01, 80], [0.03, 70], [0.04, 90]])
    np.testing.assert_allclose(pruned, [[0.05, 20]])
    np.testing.assert_allclose(update.figure.axes[0].collections[0].get_offsets()[:, 0], [1, 0, 0])


def test_the_table_of_the_terminal() -> None:
    lines = search_table(SEARCH).splitlines()
    assert re.split(r"\s*\|\s*", lines[2].strip("| ")) == ["3", "90.00", "4", "0.04", "bounded"]
    assert lines[-1].startswith("6 trials (3 complete, 1 failed, 1 pruned, 1 running); accuracy on validation data")
