import math

import numpy as np
import pytest
from helpers.classified_sample import classified_report
from helpers.sample import curves, results

from eirehn.report.content import Curve
from eirehn.report.tables import METRICS, results_table
from eirehn.report.training_figures import curve_panels, depth_panels, seeds_panel, thinned, time_panel


def test_every_seed_and_the_paper_stand_in_the_row_of_their_model():
    rows = results_table(results())
    panel = seeds_panel(rows, 0.000427, METRICS["mse"])
    (ax,) = panel.figure.axes
    np.testing.assert_allclose(ax.collections[0].get_offsets()[:, 0], 1e3 * np.array(rows[0].values))
    paper = [line for line in ax.lines if line.get_marker() == "|"]
    assert float(paper[0].get_xdata()[0]) == pytest.approx(1.01)
    assert [label.get_text() for label in ax.get_yticklabels()] == [row.label for row in rows]
    assert "RNN-20: 0.800, paper 1.01" in panel.alt


def test_a_far_baseline_is_in_the_figure():
    rows = results_table(results())
    (ax,) = seeds_panel(rows, math.nan, METRICS["mse"], 0.5).figure.axes
    assert ax.get_xlim()[1] > 500


def test_mean_is_over_the_seeds_that_have_not_diverged():
    curve = Curve("a", [1, 2], None, [[4e-3, 2e-3], [2e-3, math.nan]])
    (panel,) = curve_panels([curve], math.nan, METRICS["mse"], "loss")
    assert panel.figure.axes[0].lines[-1].get_ydata().tolist() == [pytest.approx(3.0), pytest.approx(2.0)]
    assert panel.title == "a: 1 of 2 seeds diverged"


def test_loss_is_drawn_beneath_the_accuracy_or_alone():
    for validated in (True, False):
        curve = classified_report(validated=validated).curves[0]
        (panel,) = curve_panels([curve], math.nan, METRICS["accuracy"], "training loss")
        axes = panel.figure.axes
        assert len(axes) == (2 if validated else 1)
        assert axes[-1].lines[-1].get_ydata()[-1] == pytest.approx(np.mean(curve.loss, 0)[-1])
        if validated:
            assert axes[0].lines[-1].get_ydata()[-1] == pytest.approx(100 * np.mean(curve.validation, 0)[-1])
            assert axes[0].get_yscale() == "linear"


def test_depth_is_drawn_for_the_models_that_choose_it():
    panels = depth_panels(curves())
    assert [panel.title for panel in panels] == ["EI-REHN-10", "EI-REHN-15", "EI-REHN-20", "SREHN-20", "ACT-20"]


def test_time_is_in_the_unit_that_fits():
    curve = Curve("a", [1, 2], None, [[3e-3, 2e-3]], seconds=[3600, 9000])
    (ax,) = time_panel([curve], METRICS["mse"]).figure.axes
    assert ax.get_xlabel() == "hours of training"
    assert ax.lines[0].get_xdata().tolist() == [1.0, 2.5]


def test_long_curves_are_thinned():
    kept = thinned(2000)
    assert len(kept) <= 60
    assert (kept[0], kept[-1]) == (0, 1999)
    assert thinned(3) == [0, 1, 2]
