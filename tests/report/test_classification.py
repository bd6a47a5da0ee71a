import dataclasses
import math
import re

import numpy as np
import pytest
from helpers.classified_sample import CLASSES, NAMES, classified_report, results
from helpers.page import OVERLAPPING, Page
from helpers.quick import quick
from helpers.sample import results as regression_results

from eirehn.report.classification import ClassDepth, Confusion, Window
from eirehn.report.content import Curve, DepthHistogram, Report
from eirehn.report.html import render
from eirehn.report.metric import METRICS, metric_of
from eirehn.report.palette import Palette
from eirehn.report.panels.classes import class_depth_panels, varies
from eirehn.report.panels.confusion import confusion_panels, largest_mistakes, worst_mistake, wrapped
from eirehn.report.panels.curves import curve_panels
from eirehn.report.panels.windows import groups, shared_names, window_panels
from eirehn.report.table import markdown_table

CONFUSION = {"label": "a", "classes": ["one", "two"], "counts": [[[8, 2], [1, 4]], [[6, 4], [0, 5]]]}
DEPTH = {"label": "a", "classes": ["one", "two"], "accuracy": [0.5, 0.9], "depth": [1.0, 2.0], "count": [3, 4]}
WINDOW = {
    "label": "a",
    "names": ["u", "v"],
    "signals": [[0.0, 1.0], [1.0, 2.0]],
    "depth": [1.5, 2.0],
    "true": "one",
    "predicted": "two",
    "probability": 0.7,
}


@pytest.mark.parametrize(
    ("kind", "given", "change", "message"),
    [
        (Confusion, CONFUSION, {"classes": ["one", "one"]}, "Confusion.classes must differ from each other"),
        (Confusion, CONFUSION, {"classes": "ab"}, "Confusion.classes must be a list of names, got 'ab'"),
        (Confusion, CONFUSION, {"classes": ["one", ""]}, r"Confusion.classes\[1\] must be text that is not empty"),
        (Confusion, CONFUSION, {"counts": []}, "Confusion.counts needs at least one seed"),
        (
            Confusion,
            CONFUSION,
            {"counts": [[[1, 2]]]},
            r"Confusion.counts\[0\] must have one value for each of the 2",
        ),
        (Confusion, CONFUSION, {"counts": [[[1, 2], [1]]]}, r"Confusion.counts\[0\]\[1\] must have one value"),
        (
            Confusion,
            CONFUSION,
            {"counts": [[[1, 2], [1, 0.5]]]},
            "must hold whole numbers of at least zero, got 0.5",
        ),
        (
            ClassDepth,
            DEPTH,
            {"accuracy": [0.5]},
            "ClassDepth.accuracy must have one value for each of the 2 classes",
        ),
        (ClassDepth, DEPTH, {"depth_std": [0.5, -1]}, "ClassDepth.depth_std must be a number of at least zero"),
        (ClassDepth, DEPTH, {"count": [1, 0.5]}, "ClassDepth.count must hold whole numbers"),
        (ClassDepth, DEPTH, {"layers": 0}, "ClassDepth.layers must be a whole number greater than zero, got 0"),
        (Window, WINDOW, {"signals": []}, "Window.signals needs at least one time step"),
        (Window, WINDOW, {"signals": [[1.0], [1.0]]}, r"Window.signals\[0\] must have one value for each of the 2"),
        (Window, WINDOW, {"depth": [1]}, "Window.depth must have one value for each of the 2 time steps, got 1"),
        (Window, WINDOW, {"probability": 1.2}, "Window.probability must be a number from 0 to 1, got 1.2"),
        (Window, WINDOW, {"true": ""}, "Window.true must be text that is not empty"),
        (DepthHistogram, {"label": "a", "counts": [1]}, {"layers": 1.5}, "DepthHistogram.layers must be a whole"),
        (Curve, {"label": "a", "epochs": [1], "train": None}, {"validation": None}, "Curve needs one of train"),
        (Report, {"title": "t", "summary": "s", "results": {}}, {"windows": [3]}, "must be a Window, got: int"),
    ],
)
def test_bad_content_is_named(kind, given, change, message):
    with pytest.raises(ValueError, match=message):
        kind(**{**given, **change})


def test_confusion_against_a_count_by_hand():
    part = Confusion(**CONFUSION)
    np.testing.assert_array_equal(part.summed, [[14, 6], [1, 9]])
    np.testing.assert_allclose(part.shares, [[0.7, 0.3], [0.1, 0.9]], rtol=1e-15)
    np.testing.assert_allclose(part.precision, [14 / 15, 9 / 15], rtol=1e-15)
    assert largest_mistakes(part, 5) == [("one", "two", pytest.approx(0.3)), ("two", "one", pytest.approx(0.1))]
    assert worst_mistake([part]) == pytest.approx(0.3)


def test_class_that_does_not_occur():
    part = Confusion("a", ["one", "two"], [[[3, 0], [0, 0]]])
    assert np.isnan(part.shares[1]).all()
    assert math.isnan(part.precision[1])
    absent = ClassDepth("a", ["one", "two"], [1.0, math.nan], [2.0, math.nan], [3, 0])
    page = Page(render(Report("t", "", {}, confusions=[part], class_depths=[absent], figure1=False)))
    assert page.row("a: two")[-2:] in (["–", "–"], ["–", "0"])
    assert "nan" not in page.text


def test_cells_hold_the_shares_in_percent():
    report = classified_report()
    part = report.confusions[0]
    (panel,) = confusion_panels([part], Palette([part.label]))
    (ax,) = panel.figure.axes
    shown = {(int(x), int(y)): text.get_text() for text in ax.texts for x, y in [text.get_position()]}
    counts = np.array(part.counts).sum(0)
    for true in range(6):
        for taken in range(6):
            share = 100 * counts[true, taken] / counts[true].sum()
            assert shown[taken, true] == (f"{share:.1f}" if 0.05 <= share < 100 else "" if share < 0.05 else "100")
    assert [label.get_text().replace("\n", " ") for label in ax.get_yticklabels()] == list(CLASSES)
    accuracy = 100 * counts.trace() / counts.sum()
    assert panel.title == f"RNN-48: {accuracy:.2f} % right"


def test_many_classes_have_no_numbers_and_upright_names():
    names = [f"class {index}" for index in range(20)]
    part = Confusion("a", names, [np.eye(20, dtype=int).tolist()])
    (panel,) = confusion_panels([part], Palette(["a"]))
    assert len(panel.figure.axes[0].texts) == 0
    assert panel.figure.axes[0].get_xticklabels()[0].get_rotation() == 90


def test_names_are_broken_where_lines_come_out_shortest():
    assert wrapped("walking downstairs") == "walking\ndownstairs"
    assert wrapped("a b longer") == "a b\nlonger"
    assert wrapped("laying") == "laying"


def test_marks_lie_at_depth_and_accuracy():
    part = classified_report().class_depths[1]
    (panel,) = class_depth_panels([part], Palette([part.label]))
    (ax,) = panel.figure.axes
    marks = [line for line in ax.lines if line.get_marker() not in ("None", None)]
    drawn = [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in marks]
    np.testing.assert_allclose(drawn, np.stack([part.depth, 100 * part.accuracy], 1))
    assert len({line.get_marker() for line in marks}) == 6


@pytest.mark.slow
def test_depth_that_is_the_same_for_all_classes_is_said_and_not_drawn():
    report = classified_report()
    assert [varies(part) for part in report.class_depths] == [False, True, True]
    page = Page(render(dataclasses.replace(report, figure1=False, confusions=())))
    assert "Only in the table, for spending the same on every class: EI-REHN-48." in page.text
    assert page.row("EI-REHN-48: laying")[2:] == ["4.000 ± 0.000", "537"]
    alone = dataclasses.replace(report, class_depths=report.class_depths[:1])
    assert "EI-REHN-48 spends the same on every class, 4.00." in Page(render(alone)).text


def test_signals_are_grouped_by_their_last_word():
    found = groups(["body_acc_x", "body_acc_y", "gyro.x", "gyro.y"])
    assert found == [("body acc", [("x", 0), ("y", 1)]), ("gyro", [("x", 2), ("y", 3)])]
    assert shared_names(found) == ["x", "y"]
    found = groups(["signal 1", "signal 2", "signal 3", "signal 4", "signal 5"])
    assert [len(members) for _, members in found] == [3, 2]
    assert shared_names(groups(["speed", "heading"])) == []


def test_window_draws_its_signals_and_the_depth_beneath():
    part = classified_report().windows[-1]
    panel = window_panels([part])[0]
    *signals, depth = panel.figure.axes
    drawn = np.stack([line.get_ydata() for ax in signals for line in ax.lines], 1)
    np.testing.assert_array_equal(drawn, part.signals)
    steps = np.arange(1, 129)
    bars = [(bar.get_x(), bar.get_x() + bar.get_width(), bar.get_height()) for bar in depth.patches]
    found = [next(height for left, right, height in bars if left < step < right) for step in steps]
    np.testing.assert_array_equal(found, part.depth)
    assert depth.get_title(loc="left") == "inner steps, mean of the 2 layers"
    assert panel.title.startswith("✗ walking taken for walking upstairs: ")


def test_loss_is_drawn_beneath_the_accuracy_or_alone():
    for validated in (True, False):
        report = classified_report(validated=validated)
        curve = report.curves[0]
        panel = curve_panels([curve], math.nan, report, "accuracy", Palette([curve.label]))[0]
        axes = panel.figure.axes
        assert len(axes) == (2 if validated else 1)
        assert axes[-1].lines[-1].get_ydata()[-1] == pytest.approx(np.mean(curve.loss, 0)[-1])
        if validated:
            assert axes[0].lines[-1].get_ydata()[-1] == pytest.approx(100 * np.mean(curve.validation, 0)[-1])
            assert axes[0].get_yscale() == "linear"


@pytest.mark.slow
def test_where_nothing_is_held_out_the_page_says_so():
    page = Page(render(classified_report(validated=False)))
    assert "each at the last epoch. Higher is better" in page.text
    assert "validation chose" not in page.text
    assert "last epoch" not in page.row("model")
    assert "only the loss is known" in page.text
    page = Page(render(classified_report()))
    assert "each at the epoch that validation chose" in page.text
    assert "last epoch" in page.row("model")


def test_accuracy_stands_in_percent_beside_the_paper_s():
    stored = results()
    stored["rows"][6].update(values=[0.9210, 0.9230], mean=0.9220, std=0.0014, final_mean=0.9220)
    text = markdown_table(stored)
    line = next(line for line in text.splitlines() if line.startswith("| EI-REHN-48  "))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == ["EI-REHN-48", "16 950", "2", "**92.20 ± 0.14**", "**92.48 ± 0.61**", "−0.28"]
    assert "test accuracy, %; mean ± standard deviation over the seeds." in text
    report = Report("t", "", stored, figure1=False, **metric_of(stored)._asdict())
    row = Page(render(report)).row("EI-REHN-48")
    assert row[1:4] == ["92.20 ± 0.14", "92.48 ± 0.61", "−0.28, worse"]


def test_metric_of_the_rows():
    assert metric_of(results()) == METRICS["accuracy"]
    assert metric_of(regression_results()) == METRICS["mse"] == metric_of({})
    assert METRICS["accuracy"].scale == 100
    assert not METRICS["accuracy"].lower_is_better
    with pytest.raises(ValueError, match="must have one metric, got: accuracy, mse"):
        metric_of({"rows": [{"metric": "accuracy"}, {}]})
    with pytest.raises(ValueError, match="metric must be one of mse, accuracy, perplexity, got 'speed'"):
        metric_of({"rows": [{"metric": "speed"}]})


def test_text_of_classes_and_signals_is_escaped():
    evil = "<script>x</script> & $\\frac{$"
    report = Report(
        "t",
        "",
        {},
        figure1=False,
        confusions=[Confusion(evil, [evil, "b"], [[[1, 2], [3, 4]]])],
        class_depths=[ClassDepth(evil, [evil, "b"], [0.5, 0.6], [1.0, 2.0], [3, 4])],
        windows=[Window(evil, [evil, "b"], [[0.0, 1.0]], [1.0], evil, "b", 0.5)],
        windows_chosen=evil,
        curves=[Curve(evil, [1], None, None, None, [[1.0]])],
        loss_name=evil,
    )
    text = render(report)
    assert "<script" not in text
    assert Page(text).text.count(evil) > 10


@pytest.fixture(scope="module", params=quick(True, of=[True, False]), ids=["validated", "unvalidated"])
def page_file(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(classified_report(validated=request.param)), "utf-8")
    return path


def test_page_is_whole(page_file):
    text = page_file.read_text("utf-8")
    page = Page(text)
    assert {"results", "training", "confusion", "depth", "class-depth", "windows", "savings", "early"} <= set(
        page.ids
    )
    assert len(page.ids) == len(set(page.ids))
    assert "nan" not in page.text
    assert "floor" not in page.text
    assert len(text.encode()) < 1_000_000
    labels = [value for tag, name, value in page.attributes if tag == "svg" and name == "aria-label"]
    assert all(len(label) > 30 and "nan" not in label for label in labels)
    assert {row[0] for row in page.rows} >= set(NAMES)
    assert re.search(r"Where a network has several layers, each counts by itself", page.text)


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 820, 1280])
def test_browser_shows_the_page_without_complaint(browser, page_file, width, dark):
    browser.open(page_file, width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == [page_file.resolve().as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    hidden = "[...document.querySelectorAll('svg.plot')].filter(p => p.getBoundingClientRect().height < 60).length"
    assert browser.evaluate(hidden) == 0


@pytest.mark.slow
def test_texts_of_a_figure_do_not_lie_on_each_other(browser, page_file):
    browser.open(page_file, 1280)
    assert browser.evaluate(OVERLAPPING) == []
    assert browser.print_width(page_file, 718) <= 718
