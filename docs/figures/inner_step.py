"""Figure 2 of the paper: one inner step of EI-REHN."""

from __future__ import annotations

from drawing import Drawing
from matplotlib.figure import Figure

from eirehn.report.palette import INK, MUTED

HYPER, ELASTIC, CARRY = "#d55e00", "#0072b2", "#00875f"


def figure2() -> Figure:
    """From the state before an inner step to that after it; what EI-REHN adds to RHN stands in dashed regions."""
    drawing = Drawing(112, 68)
    _draw_hypernetwork(drawing)
    _draw_products(drawing)
    _draw_elastic_gate(drawing)
    _draw_state(drawing)
    return drawing.figure


def _draw_hypernetwork(d: Drawing) -> None:
    d.box(14, 41.5, 99, 67, HYPER, dashed=True)
    d.note(97.5, 65, "hypernetwork: changes the weights from one inner step to the next", ha="right", color=HYPER)
    d.box(19, 54, 57, 63, HYPER)
    d.text(38, 60.6, "its state")
    d.text(38, 56.6, r"$z^r=\tanh(W_{zh}\,s^{r-1}+W_{zg}\,\hat g^{r-1}+W_z\,z^{r-1}+b_z)$", 8.3)
    for y, name in ((61.3, "$z^{r-1}$"), (58.3, "$s^{r-1}$"), (55.3, r"$\hat g^{r-1}$")):
        d.text(5, y, name, 10)
        d.line([(8.5, y), (19, y)], HYPER)
    d.line([(57, 58.5), (104, 58.5)], HYPER)
    d.text(107.5, 58.5, "$z^r$", 10)
    d.dot(69, 58.5, HYPER)
    d.line([(69, 58.5), (69, 51.5)], HYPER)
    d.box(50, 43, 88, 51.5, HYPER)
    d.text(69, 49.1, "change of the weights, and how much of it to take", 8.3)
    d.text(69, 45.4, r"$w^r=P\,z^r\qquad\bar g^r=\mathrm{sigm}(\bar P\,z^r+\bar b)$", 8.6)


def _draw_products(d: Drawing) -> None:
    residual = r"$s^r=\tanh(\bar g^r W^{r-1}h^{r-1}+(1{-}\bar g^r)\,w^r h^{r-1}+[r{=}1]\,W_x x_t+b)$"
    for left, right, name, formula in (
        (24, 56, "residual gate", r"$\hat g^r=\mathrm{sigm}(\,\cdots)$, likewise, weights of its own"),
        (61, 98.5, "residual", residual),
    ):
        d.box(left, 27, right, 35.5, MUTED)
        d.text((left + right) / 2, 33, name)
        d.text((left + right) / 2, 29.4, formula, 7.4)
    d.line([(53, 43), (53, 35.5)], HYPER)
    d.line([(82, 43), (82, 35.5)], HYPER)
    d.text(5, 38.5, "$x_t$", 10)
    d.line([(8.5, 38.5), (31, 38.5), (31, 35.5)], MUTED, linestyle=(0, (3, 2)))
    d.line([(31, 38.5), (69, 38.5), (69, 35.5)], MUTED, linestyle=(0, (3, 2)))
    d.dot(31, 38.5, MUTED)
    d.note(10, 39.9, "only where r = 1", ha="left")
    d.line([(56, 31.2), (58.5, 31.2), (58.5, 40), (104, 40)])
    d.text(107.5, 40, r"$\hat g^r$", 10)
    d.line([(98.5, 31.2), (104, 31.2)])
    d.text(107.5, 31.2, "$s^r$", 10)


def _draw_elastic_gate(d: Drawing) -> None:
    d.box(14, 11.5, 52, 22.8, ELASTIC, dashed=True)
    d.box(17, 13, 41.5, 21.3, ELASTIC)
    d.text(29.2, 19, "elastic gate")
    d.text(29.2, 15.6, r"$d^r=\max(\beta+e^{\alpha}-e^{(\alpha+\alpha_t)r},\,0)$", 8.0)
    d.text(5, 17.2, r"$\alpha_t$", 10)
    d.line([(8.5, 17.2), (17, 17.2)], ELASTIC)
    d.line([(41.5, 17.2), (45.6, 17.2)], ELASTIC)
    d.node(47, 17.2, "×", ELASTIC)
    d.line([(47, 27), (47, 18.7)])
    once = r"$\alpha_t=\mathrm{sigm}(W_a\,[h_{t-1};x_t;1])$, once a time step; "
    once += "where $d^r$ is zero in all units, it ends"
    d.note(14, 9.4, once, ha="left", color=ELASTIC)


def _draw_state(d: Drawing) -> None:
    d.text(5, 6, "$h^{r-1}$", 10)
    d.line([(8.5, 6), (63.6, 6)], CARRY, linewidth=2.2)
    d.line([(66.4, 6), (99.6, 6)], CARRY, linewidth=2.2)
    d.line([(102.4, 6), (105, 6)], CARRY, linewidth=2.2)
    d.text(108, 6, "$h^r$", 10)
    d.dot(11, 6, CARRY)
    d.line([(11, 6), (11, 24.8), (36, 24.8), (36, 27)], CARRY)
    d.dot(36, 24.8, CARRY)
    d.line([(36, 24.8), (75, 24.8), (75, 27)], CARRY)
    d.line([(48.4, 17.2), (99.6, 17.2)], ELASTIC)
    d.text(57, 18.9, "$g^r$", 9.5)
    d.dot(65, 17.2, ELASTIC)
    d.line([(65, 17.2), (65, 13.2)], ELASTIC)
    d.node(65, 11.8, "1−", ELASTIC)
    d.line([(65, 10.4), (65, 7.4)], ELASTIC)
    d.node(65, 6, "×", CARRY)
    d.dot(101, 31.2)
    d.line([(101, 31.2), (101, 18.6)])
    d.node(101, 17.2, "×")
    d.line([(101, 15.8), (101, 7.4)])
    d.node(101, 6, "+", CARRY)
    d.note(83, 3.2, r"$h^r=g^r s^r+(1-g^r)\,h^{r-1}$", size=8.6, color=INK)
    d.note(36, 3.2, "the state: what no gate opens for is carried on as it is", color=CARRY)
