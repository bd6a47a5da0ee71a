import numpy as np
import pytest
import torch

from eirehn.report.figures import depth_figure, figure1, figure2, figure3, gate_figure


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


def test_figure1_draws_the_equations_as_printed(tmp_path):
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


def test_figure1_can_be_saved(tmp_path):
    for name in ("figure1.png", "figure1.svg"):
        figure1().savefig(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 10_000


@pytest.mark.parametrize("draw", [figure2, figure3])
def test_drawings_are_whole_and_their_texts_apart(draw, tmp_path):
    figure = draw()
    figure.savefig(tmp_path / "drawing.svg")
    figure.canvas.draw()
    (ax,) = figure.axes
    extents = [(text.get_text(), text.get_window_extent()) for text in ax.texts if text.get_text()]
    assert len(extents) > 20
    width, height = figure.bbox.width, figure.bbox.height
    for index, (name, one) in enumerate(extents):
        assert 0 <= one.x0 < one.x1 <= width, name
        assert 0 <= one.y0 < one.y1 <= height, name
        for other, two in extents[index + 1 :]:
            assert not (one.x0 < two.x1 and two.x0 < one.x1 and one.y0 < two.y1 and two.y0 < one.y1), (name, other)


def test_figure2_has_every_quantity_of_an_inner_step():
    texts = " ".join(text.get_text() for text in figure2().axes[0].texts)
    for formula in (
        r"z^r=\tanh(W_{zh}\,s^{r-1}+W_{zg}\,\hat g^{r-1}+W_z\,z^{r-1}+b_z)",
        r"w^r=P\,z^r",
        r"\bar g^r=\mathrm{sigm}(\bar P\,z^r+\bar b)",
        r"d^r=\max(\beta+e^{\alpha}-e^{(\alpha+\alpha_t)r},\,0)",
        r"h^r=g^r s^r+(1-g^r)\,h^{r-1}",
        r"\alpha_t=\mathrm{sigm}(W_a\,[h_{t-1};x_t;1])",
    ):
        assert formula in texts


def test_figure3_takes_no_more_steps_than_it_says():
    texts = [text.get_text() for text in figure3().axes[0].texts]
    depths = [int(text.split()[0]) for text in texts if text.endswith("of at most 4")]
    numbers = [int(text) for text in texts if text.isdecimal()]
    assert numbers == [step for depth in depths for step in range(1, depth + 1)]
