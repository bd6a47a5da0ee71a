import numpy as np
import pytest
from helpers.classified_sample import CLASSES, classified_report

from eirehn.report.classification_figures import (
    class_depth_panels,
    confusion_panels,
    largest_mistakes,
    shared_names,
    signal_groups,
    varies,
    window_panels,
    worst_mistake,
    wrapped,
)
from eirehn.report.content import Confusion


def test_mistakes_against_a_count_by_hand():
    part = Confusion("a", ["one", "two"], [[[8, 2], [1, 4]], [[6, 4], [0, 5]]])
    assert largest_mistakes(part, 5) == [("one", "two", pytest.approx(0.3)), ("two", "one", pytest.approx(0.1))]
    assert worst_mistake([part]) == pytest.approx(0.3)


def test_cells_hold_the_shares_in_percent():
    part = classified_report().confusions[0]
    (panel,) = confusion_panels([part])
    (ax,) = panel.figure.axes
    shown = {(int(x), int(y)): text.get_text() for text in ax.texts for x, y in [text.get_position()]}
    counts = np.array(part.counts).sum(0)
    for (true, predicted), number in np.ndenumerate(counts):
        share = 100 * number / counts[true].sum()
        expected = f"{share:.1f}" if 0.05 <= share < 100 else "" if share < 0.05 else "100"
        assert shown[predicted, true] == expected
    names = [f"{number}. {name}" for number, name in enumerate(CLASSES, 1)]
    assert [label.get_text() for label in ax.get_yticklabels()] == names
    assert panel.title == f"RNN-48: {100 * counts.trace() / counts.sum():.2f} % correct"


def test_few_classes_are_named_on_both_axes():
    part = Confusion("a", ["idle", "hard braking"], [[[3, 0], [0, 2]]])
    (ax,) = confusion_panels([part])[0].figure.axes
    for labels in (ax.get_xticklabels(), ax.get_yticklabels()):
        assert [label.get_text() for label in labels] == ["idle", "hard\nbraking"]


def test_many_classes_are_numbered_and_have_no_percentages():
    names = [f"class {index}" for index in range(19)] + [
        "a class with a name that would take all the room there is"
    ]
    part = Confusion("a", names, [np.eye(20, dtype=int).tolist()])
    (panel,) = confusion_panels([part])
    assert len(panel.figure.axes[0].texts) == 0
    assert panel.figure.axes[0].get_xticklabels()[19].get_text() == "20"
    assert panel.figure.axes[0].get_yticklabels()[19].get_text() == "20. a class with a name that woul…"


def test_names_are_broken_where_lines_come_out_shortest():
    assert wrapped("walking downstairs") == "walking\ndownstairs"
    assert wrapped("a b longer") == "a b\nlonger"
    assert wrapped("laying") == "laying"


def test_marks_lie_at_depth_and_accuracy():
    parts = classified_report().class_depths
    assert [varies(part) for part in parts] == [False, True, True]
    (panel,) = class_depth_panels([parts[1]])
    marks = [line for line in panel.figure.axes[0].lines if line.get_marker() not in ("None", None)]
    drawn = [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in marks]
    np.testing.assert_allclose(drawn, np.stack([parts[1].depth, 100 * parts[1].accuracy], 1))
    assert len({line.get_marker() for line in marks}) == 6


def test_signals_are_grouped_by_their_last_word():
    found = signal_groups(["body acc x", "body acc y", "gyro x", "gyro y"])
    assert found == [("body acc", [("x", 0), ("y", 1)]), ("gyro", [("x", 2), ("y", 3)])]
    assert shared_names(found) == ["x", "y"]
    found = signal_groups(["signal 1", "signal 2", "signal 3", "signal 4", "signal 5"])
    assert found == [(f"signal {number}", [(f"signal {number}", number - 1)]) for number in range(1, 6)]
    assert shared_names(signal_groups(["speed", "heading"])) == []


def test_window_draws_its_signals_and_the_depth_beneath():
    part = classified_report().windows[-1]
    (panel,) = window_panels([part])
    *signals, depth = panel.figure.axes
    drawn = np.stack([line.get_ydata() for ax in signals for line in ax.lines], 1)
    np.testing.assert_array_equal(drawn, part.signals)
    bars = [(bar.get_x(), bar.get_x() + bar.get_width(), bar.get_height()) for bar in depth.patches]
    found = [next(height for left, right, height in bars if left < step < right) for step in range(1, 129)]
    np.testing.assert_array_equal(found, part.depth)
    assert depth.get_title(loc="left") == "inner steps, mean of the 2 layers"
    assert panel.title.startswith("✗ walking, predicted as walking upstairs with probability ")
