import numpy as np
import pytest
import torch

from eirehn.cells import elastic_gate
from eirehn.report.figures import DEEPEST, depth_figure, figure1, gate_figure, gate_values


def test_gate_is_that_of_the_cells():
    for unit in ((0.05, 0.95, 0.0), (0.2, 0.4, 0.12)):
        tensors = [torch.tensor(value, dtype=torch.float64) for value in unit]
        expected = [elastic_gate(*tensors, r).item() for r in range(1, DEEPEST + 1)]
        np.testing.assert_allclose(gate_values(*unit), expected, rtol=1e-14, atol=1e-15)


def test_gate_figure_has_units_and_inputs():
    figure = gate_figure()
    labels = [[text.get_text() for text in ax.get_legend().get_texts()] for ax in figure.axes]
    assert labels[0][0] == "α = 0.05, β = 0.95: depth 13"
    assert labels[1][2] == "αₜ = 0.12: depth 4"


def test_depth_figure_groups_by_the_generator_s_depth():
    taken = torch.tensor([[1, 1, 3], [3, 3, 1]])
    spent = torch.tensor([[2, 4, 5], [5, 5, 3]])
    figure = depth_figure(torch.randn(2, 3, 2), spent, taken)
    line = figure.axes[1].lines[0]
    assert line.get_xdata().tolist() == [1, 3]
    assert line.get_ydata().tolist() == [pytest.approx(3.0), pytest.approx(5.0)]


def test_figure1_draws_the_equations_as_printed():
    by_alpha, by_beta, _, by_input = figure1().axes
    units = {
        by_alpha: [(a, 0.95, 0.0) for a in (0.05, 0.1, 0.2, 0.5)],
        by_beta: [(0.1, b, 0.0) for b in (0.95, 0.7, 0.4, 0.1)],
        by_input: [(0.05, 0.95, t) for t in (0.0, 0.05, 0.12, 0.3)],
    }
    r = np.arange(1, 40)
    for ax, parts in units.items():
        named = [line for line in ax.lines if not line.get_label().startswith("_")]
        for line, (alpha, beta, alpha_t) in zip(named, parts, strict=True):
            printed = np.maximum(beta + np.exp(alpha) - np.exp((alpha + alpha_t) * r), 0)
            depth = int((printed > 0).sum())
            assert line.get_label().endswith(f"depth {depth}")
            np.testing.assert_array_equal(line.get_xdata(), r[:depth])
            np.testing.assert_allclose(line.get_ydata(), printed[:depth], atol=1e-12)


def test_figure1_maps_the_bound_as_printed():
    bounds = figure1().axes[2]
    (bands,) = bounds.collections
    edges = [1, 2, 3, 5, 10, 20, 40]
    labels = dict(zip(edges, (text.get_text() for text in bounds.texts), strict=True))
    assert labels == {1: "1", 2: "2", 3: "3–4", 5: "5–9", 10: "10–19", 20: "20–39", 40: "40+"}
    random = np.random.default_rng(0)
    alpha, beta = 10 ** random.uniform(-2.2, -0.05, 300), random.uniform(0.05, 0.99, 300)
    exact = np.log(beta + np.exp(alpha)) / alpha
    for a, b, bound in zip(alpha, beta, exact, strict=True):
        if min(abs(bound / edge - 1) for edge in edges) < 0.01:
            continue  # too near an edge for the grid the map is drawn on
        band = max(i for i, edge in enumerate(edges) if int(bound) >= edge)
        inside = [i for i, path in enumerate(bands.get_paths()) if path.contains_point((a, b))]
        assert inside == [band]
