import math

import numpy as np
import pytest
from helpers.language_sample import language_report
from helpers.sample import full_report

from eirehn.report.content import Passage, Saving, TrueDepth, WordGroups
from eirehn.report.depth_figures import (
    early_panel,
    example_panels,
    extremes,
    families,
    histogram_panels,
    passage_scale,
    rise,
    savings_panels,
    true_depth_panel,
    word_panels,
)
from eirehn.report.tables import METRICS

MSE = METRICS["mse"]
GROUPS = ("m", ["a", "b"], ["1", "2"], [[0, 50], [0, 60]], [3.0, 4.0], [5.0, 6.0])


@pytest.fixture(scope="module")
def report():
    return full_report()


def test_histogram_draws_shares_in_percent(report):
    panel = histogram_panels(report.histograms)[2]
    counts = np.array(report.histograms[2].counts)
    heights = [bar.get_height() for bar in panel.figure.axes[0].patches]
    np.testing.assert_allclose(heights, 100 * counts / counts.sum())
    assert panel.title == "SREHN-20, penalty 0.1: mean 1.75"


def test_true_depth_is_hollow_where_it_rests_on_few(report):
    line = TrueDepth("a", [1, 2, 3], [1.0, 2.0, 2.5], [0.1, 0.2, 0.3], [500, 20, 19])
    (ax,) = true_depth_panel([line]).figure.axes
    assert ax.lines[0].get_ydata().tolist() == [1.0, 2.0, 2.5]
    assert [drawn.get_xdata().tolist() for drawn in ax.lines[1:3]] == [[1, 2], [3]]
    assert rise(line) == "a: 1.0 inner steps where the generator takes 1, 2.0 where it takes 2."


def test_early_curves_are_drawn_in_the_unit_of_the_metric(report):
    (ax,) = early_panel(report.early, 0.000427, MSE).figure.axes
    np.testing.assert_allclose(ax.lines[0].get_ydata(), 1e3 * np.array(report.early[0].mean))
    assert ax.get_yscale() == "log"


def test_savings_are_joined_within_a_family():
    labels = ["RHN-20, depth 1", "RHN-20 depth 2", "RHN-10, depth 1", "EI-REHN-20", "EI-REHN-20 (penalty 0.1)"]
    labels += ["EI-REHN-20, 2 layers", "EI-REHN-20, 2 layers, depth penalty 1e-3"]
    found = families([Saving(label, "fixed", None, 1, 1, 1e-3) for label in labels])
    assert [name for name, _ in found] == ["RHN-20", "RHN-10", "EI-REHN-20", "EI-REHN-20, 2 layers"]
    assert found[0][1].label == "RHN-20, depth 1"


def test_savings_are_drawn_against_cost_and_labelled(report):
    for panel, cost in zip(savings_panels(report.savings, math.nan, MSE), ("depth", "milliseconds"), strict=True):
        (ax,) = panel.figure.axes
        elastic = sorted((s for s in report.savings if s.group == "elastic"), key=lambda s: getattr(s, cost))
        line = next(line for line in ax.lines if line.get_linestyle() == "-")
        np.testing.assert_allclose(line.get_xdata(), [getattr(s, cost) for s in elastic])
        np.testing.assert_allclose(line.get_ydata(), [1e3 * s.mean for s in elastic])
        assert [text.get_text() for text in ax.texts][:5] == ["3·10⁻³", "10⁻³", "3·10⁻⁴", "10⁻⁴", "no penalty"]
        assert [text.get_text() for text in ax.texts][5:] == ["1", "2", "3", "4", "5", "6", "LSTM-20"]


def test_example_has_its_depths_as_numbers(report):
    panel = example_panels(report.examples, 1e3)[0]
    _, model, generator, error = panel.figure.axes
    assert [int(text.get_text()) for text in model.texts] == list(report.examples[0].spent)
    assert [int(text.get_text()) for text in generator.texts] == list(report.examples[0].taken)
    np.testing.assert_allclose(
        [bar.get_height() for bar in error.patches], 1e3 * np.array(report.examples[0].error)
    )


def test_words_have_mean_depth_above_and_perplexity_beneath():
    part = language_report().frequencies[0]
    (panel,) = word_panels([part], "times")
    above, below = panel.figure.axes
    np.testing.assert_allclose(above.lines[0].get_ydata(), part.mean)
    np.testing.assert_allclose(above.lines[1].get_ydata(), part.effective)
    np.testing.assert_allclose(below.lines[0].get_ydata(), part.perplexity)
    assert [label.get_text() for label in below.get_xticklabels()] == list(part.ticks)


def test_groups_that_take_the_same_depth_are_said_to():
    assert extremes(WordGroups(*GROUPS)) == "m takes nearly the same in each group, 1.00."
    effective = "m takes nearly the same in each group, 1.00; effective depth is from 0.50 (b) to 0.62 (a)."
    assert extremes(WordGroups(*GROUPS, effective=[0.625, 0.5])) == effective


def test_key_of_a_passage_shows_whole_depths_as_they_are():
    assert passage_scale([Passage("m", ["a", "b"], [1, 4], [None, 0.5])]) == [1, 2, 3, 4]
    assert passage_scale([Passage("m", ["a", "b"], [1, 4.5], [None, 0.5])]) == pytest.approx(np.linspace(1, 4.5, 8))


def test_what_diverged_is_not_drawn():
    savings = [Saving("lost", "fixed", None, 1, 1, math.nan), Saving("kept", "fixed", None, 1, 1, 1e-3)]
    panel = savings_panels(savings, math.nan, MSE)[0]
    assert [text.get_text() for text in panel.figure.axes[0].texts] == ["kept"]
