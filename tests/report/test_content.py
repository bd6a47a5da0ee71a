import math

import numpy as np
import pytest

from eirehn.report.content import Curve, DepthHistogram, EarlyCurve, Example, Report, Saving, TrueDepth

CURVE = {"label": "a", "epochs": [1, 2], "train": [[1.0, 2.0]], "validation": [[1.0, 2.0]]}
SAVING = {
    "label": "a",
    "group": "fixed",
    "price": None,
    "depth": 1.0,
    "milliseconds": 1.0,
    "mean": 1.0,
    "std": None,
}
EARLY = {"label": "a", "caps": [1, 2], "mean": [1.0, 2.0], "std": None}
TRUE = {"label": "a", "taken": [1, 2], "spent_mean": [1.0, 2.0], "spent_std": [0.0, 0.0], "count": [3, 4]}
EXAMPLE = {"x": [[0.0, 1.0]], "spent": [1], "taken": [2], "error": [0.1]}
REPORT = {"title": "t", "summary": "s", "results": {}}


@pytest.mark.parametrize(
    ("kind", "given", "change", "message"),
    [
        (Curve, CURVE, {"label": " "}, "Curve.label must be text that is not empty, got ' '"),
        (Curve, CURVE, {"epochs": []}, "Curve.epochs must not be empty"),
        (Curve, CURVE, {"epochs": [2, 2]}, "Curve.epochs must rise from one to the next, got 2 after 2"),
        (Curve, CURVE, {"epochs": [1.5, 2]}, "Curve.epochs must hold whole numbers of at least zero, got 1.5"),
        (Curve, CURVE, {"train": []}, "Curve.train needs at least one seed, got none"),
        (
            Curve,
            CURVE,
            {"validation": [[1.0]]},
            r"Curve.validation\[0\] must have one value for each of the 2 epochs, got 1",
        ),
        (Curve, CURVE, {"depth": [[1.0, "x"]]}, r"Curve.depth\[0\] must hold numbers, got 'x'"),
        (DepthHistogram, {"label": "a"}, {"counts": [0, 0]}, "must count at least one time step"),
        (DepthHistogram, {"label": "a"}, {"counts": [3, -1]}, "whole numbers of at least zero, got -1"),
        (Example, EXAMPLE, {"x": []}, "Example.x needs at least one time step"),
        (
            Example,
            EXAMPLE,
            {"x": [[1.0]]},
            r"Example.x\[0\] must have one value for each of the 2 coordinates, got 1",
        ),
        (
            Example,
            EXAMPLE,
            {"spent": [1, 2]},
            "Example.spent must have one value for each of the 1 time steps of x",
        ),
        (Example, EXAMPLE, {"taken": []}, "Example.taken must have one value"),
        (Example, EXAMPLE, {"error": ["x"]}, "Example.error must hold numbers"),
        (Saving, SAVING, {"group": "both"}, 'Saving.group must be "elastic" or "fixed", got \'both\''),
        (Saving, SAVING, {"price": -1.0}, "Saving.price must be a finite number of at least zero, got -1.0"),
        (Saving, SAVING, {"milliseconds": math.nan}, "Saving.milliseconds must be a finite number"),
        (Saving, SAVING, {"depth": "1"}, "Saving.depth must be a finite number"),
        (Saving, SAVING, {"std": -0.1}, "Saving.std must be a number of at least zero, got -0.1"),
        (EarlyCurve, EARLY, {"mean": [1.0]}, "EarlyCurve.mean must have one value for each of the 2 caps, got 1"),
        (EarlyCurve, EARLY, {"std": [1.0]}, "EarlyCurve.std must have one value for each of the 2 caps, got 1"),
        (
            TrueDepth,
            TRUE,
            {"count": [1]},
            "TrueDepth.count must have one value for each of the 2 depths taken, got 1",
        ),
        (TrueDepth, TRUE, {"taken": [2, 1]}, "TrueDepth.taken must rise"),
        (Report, REPORT, {"title": ""}, "Report.title must be text"),
        (Report, REPORT, {"summary": None}, "Report.summary must be text, got: NoneType"),
        (Report, REPORT, {"notice": 3}, "Report.notice must be text or None, got: int"),
        (Report, REPORT, {"scale": 0}, "Report.scale must be a finite number greater than zero, got 0"),
        (Report, REPORT, {"curves": ["x"]}, r"Report.curves\[0\] must be a Curve, got: str"),
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
