import numpy as np
import pytest
import torch

from eirehn.report.figures import depth_figure, gate_figure


def test_gate_figure_draws_the_gate(tmp_path):
    figure = gate_figure()
    bounds, local = figure.axes
    curve = bounds.lines[0]
    assert "depth 13" in curve.get_label()
    r = np.arange(1, 16)
    printed = np.maximum(0.95 + np.exp(0.05) - np.exp(0.05 * r), 0)
    np.testing.assert_allclose(curve.get_ydata(), printed, atol=1e-6)
    printed = np.maximum(0.95 + np.exp(0.05) - np.exp((0.05 + 0.12) * r), 0)
    np.testing.assert_allclose(local.lines[2].get_ydata(), printed, atol=1e-6)
    figure.savefig(tmp_path / "gate.png")
    assert (tmp_path / "gate.png").stat().st_size > 10_000


def test_depth_figure_groups_by_the_generator_s_depth():
    taken = torch.tensor([[1, 1, 3], [3, 3, 1]])
    spent = torch.tensor([[2, 4, 5], [5, 5, 3]])
    figure = depth_figure(torch.randn(2, 3, 2), spent, taken)
    line = figure.axes[1].lines[0]
    assert line.get_xdata().tolist() == [1, 3]
    assert line.get_ydata().tolist() == [pytest.approx(3.0), pytest.approx(5.0)]
