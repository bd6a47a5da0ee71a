import math
from dataclasses import replace

import numpy as np
import pytest

from eirehn.report.content import (
    ClassDepth,
    Confusion,
    Curve,
    DepthHistogram,
    EarlyCurve,
    Example,
    Passage,
    Report,
    Saving,
    TrueDepth,
    Window,
    WordGroups,
)

CURVE = {"label": "a", "epochs": [1, 2], "train": [[1.0, 2.0]], "validation": [[1.0, 2.0]]}
SAVING = {"label": "a", "group": "fixed", "price": None, "depth": 1.0, "milliseconds": 1.0, "mean": 1.0}
EARLY = {"label": "a", "caps": [1, 2], "mean": [1.0, 2.0]}
TRUE = {"label": "a", "taken": [1, 2], "spent_mean": [1.0, 2.0], "spent_std": [0.0, 0.0], "count": [3, 4]}
EXAMPLE = {"x": [[0.0, 1.0]], "spent": [1], "taken": [2], "error": [0.1]}
CONFUSION = {"label": "a", "classes": ["one", "two"], "counts": [[[8, 2], [1, 4]], [[6, 4], [0, 5]]]}
DEPTH = {"label": "a", "classes": ["one", "two"], "accuracy": [0.5, 0.9], "depth": [1.0, 2.0], "count": [3, 4]}
WINDOW = {"label": "a", "names": ["u", "v"], "signals": [[0.0, 1.0], [1.0, 2.0]], "depth": [1.5, 2.0]}
WINDOW |= {"true": "one", "predicted": "two", "probability": 0.7}
GROUPS = {"label": "m", "names": ["a", "b"], "ticks": ["1", "2"], "counts": [[1, 2, 3], [0, 0, 4]]}
GROUPS |= {"perplexity": [5.0, math.nan], "next_perplexity": [6.0, 7.0]}
PASSAGE = {"label": "m", "tokens": ["a", "<eos>"], "depth": [1, 2.5], "chance": [None, 0.5]}
REPORT = {"title": "t", "summary": "s", "results": {}}


@pytest.mark.parametrize(
    ("kind", "given", "change", "message"),
    [
        (Curve, CURVE, {"train": []}, "Curve.train needs at least one seed, got none"),
        (Curve, CURVE, {"validation": [[1.0]]}, r"Curve.validation\[0\] must have one value"),
        (Curve, CURVE, {"seconds": [1.0]}, "Curve.seconds must have one value for each of the 2 epochs, got 1"),
        (Curve, CURVE, {"train": None, "validation": None}, "Curve needs one of train, validation and loss"),
        (DepthHistogram, {"label": "a"}, {"counts": [0, 0]}, "must count at least one time step"),
        (Example, EXAMPLE, {"x": [[1.0]]}, r"Example.x\[0\] must have one value"),
        (Saving, SAVING, {"group": "both"}, 'Saving.group must be "elastic" or "fixed", got \'both\''),
        (Saving, SAVING, {"price": -1.0}, "Saving.price must be finite and at least zero, got -1.0"),
        (EarlyCurve, EARLY, {"std": [1.0]}, "EarlyCurve.std must have one value for each of the 2 caps, got 1"),
        (TrueDepth, TRUE, {"count": [1]}, "TrueDepth.count must have one value for each of the 2 depths taken"),
        (Confusion, CONFUSION, {"counts": []}, "Confusion.counts needs at least one seed"),
        (Confusion, CONFUSION, {"counts": [[[1, 2], [1]]]}, r"Confusion.counts\[0\]\[1\] must have one value"),
        (ClassDepth, DEPTH, {"accuracy": [0.5]}, "ClassDepth.accuracy must have one value"),
        (Window, WINDOW, {"signals": []}, "Window needs at least one of its time steps"),
        (Window, WINDOW, {"depth": [1, math.nan]}, "Window.depth must be finite and at least zero, got nan"),
        (WordGroups, GROUPS, {"counts": [[1, 2], [3]]}, r"WordGroups.counts\[1\] must have one value"),
        (WordGroups, GROUPS, {"counts": [[1, 2], [0, 0]]}, r"WordGroups.counts\[1\] must count at least one word"),
        (Passage, PASSAGE, {"depth": [1, math.inf]}, "Passage.depth must be finite and at least zero, got inf"),
        (
            Passage,
            PASSAGE,
            {"chance": [None, math.nan]},
            "Passage.chance must be finite and at least zero, got nan",
        ),
        (Window, WINDOW, {"probability": math.nan}, "Window.probability must be finite and at least zero, got nan"),
        (Report, REPORT, {"scale": 0}, "Report.scale must be finite and greater than zero, got 0"),
        (Report, REPORT, {"results": {"rows": [{}]}}, 'must have a "model"'),
    ],
)
def test_bad_content_is_named(kind, given, change, message):
    with pytest.raises(ValueError, match=message):
        kind(**{**given, **change})


def test_what_diverged_is_allowed():
    Curve("a", [1, 2], [[1.0, math.nan]], [[math.inf, None]])
    Saving("a", "elastic", 0.0, 1.0, 1.0, math.nan, math.nan)
    EarlyCurve("a", [1], [None], [math.nan])


def test_numpy_is_plain_enough():
    ones = np.ones((2, 3))
    Curve("a", np.arange(1, 4), ones, ones, ones)
    Example(np.zeros((4, 2), np.float32), np.ones(4, np.int64), np.ones(4, np.int64), np.ones(4))
    DepthHistogram("a", np.array([0, 3]))
    TrueDepth("a", np.arange(1, 3), np.ones(2), np.ones(2), np.array([4, 5]))


def test_confusion_against_a_count_by_hand():
    part = Confusion(**CONFUSION)
    assert part.summed.tolist() == [[14, 6], [1, 9]]
    assert part.shares.tolist() == [[0.7, 0.3], [0.1, 0.9]]
    assert part.precision == pytest.approx([14 / 15, 9 / 15])


def test_class_that_does_not_occur():
    part = Confusion("a", ["one", "two"], [[[3, 0], [0, 0]]])
    assert np.isnan(part.shares[1]).all()
    assert math.isnan(part.precision[1])


def test_mean_and_deviation_of_groups():
    part = WordGroups(**GROUPS)
    first = np.repeat([0, 1, 2], [1, 2, 3])
    assert part.mean == pytest.approx([first.mean(), 2.0])
    assert part.std == pytest.approx([first.std(), 0.0])
    assert part.words == [6, 4]
    assert replace(part, layers=2).words == [3, 2]
