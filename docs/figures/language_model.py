"""Figure 3 of the paper: a language model, with as many inner steps a word as its gate allows."""

from __future__ import annotations

from collections.abc import Sequence

from drawing import Drawing
from matplotlib.figure import Figure

from eirehn.report.palette import LINE, MUTED, PAPER

WORDS = ("the", "company", "said", "it")
LEFT_OUT = "said"
DEPTHS = (1, 4, 2)
DEEPEST = 4
EMBEDDING, ELASTIC, MASK = "#d55e00", "#0072b2", "#b5558f"
LEFT, WIDE = 15.0, 31.0
STATE = 29.0


def figure3() -> Figure:
    """Three words of a text on their way through; the depths are made up."""
    d = Drawing(112, 66)
    _draw_state(d)
    for index in range(len(DEPTHS)):
        _draw_word(d, index)
    _draw_notes(d)
    return d.figure


def _middle(index: int) -> float:
    return LEFT + WIDE * index + 12.0


def _draw_word(d: Drawing, index: int) -> None:
    x, depth = _middle(index), DEPTHS[index]
    first = LEFT + WIDE * index + 2.4
    d.text(x, 3.5, f"“{WORDS[index]}”", 11)
    d.line([(x, 5.4), (x, 8.5)])
    d.box(x - 9, 8.5, x + 9, 13.5, EMBEDDING)
    d.text(x, 11, r"embedding  $U w_t$", 8.6)
    _mask(d, x, 16, (1, 1, 1, 1, 1) if WORDS[index] != LEFT_OUT else (0, 0, 0, 0, 0))
    _mask(d, x, 19.5, (1, 0, 0, 1, 0))
    _mask(d, x + 6.2, 24.2, (1, 1, 0, 1, 1))
    d.line([(x, 13.5), (x, 22.6), (first + 2.2, 22.6), (first + 2.2, 26.2)])
    for step in range(DEEPEST):
        left = first + 5.3 * step
        taken = step < depth
        d.box(left, 26.2, left + 4.4, 31.8, ELASTIC if taken else LINE, strength=0.16 + 0.14 * step if taken else 0)
        if taken:
            d.text(left + 2.2, STATE, str(step + 1), 8.6)
    d.note(x, 33.6, f"{depth} inner step{'s' if depth > 1 else ''} of at most {DEEPEST}", color=ELASTIC)
    out = LEFT + WIDE * index + 25.6
    d.dot(out, STATE, ELASTIC)
    d.line([(out, STATE), (out, 37), (x, 37), (x, 45.5)])
    d.text(out + 1.8, 35.2, "$h_t$", 9.5)
    _mask(d, x, 41.2, (0, 1, 0, 0, 1))
    d.box(x - 9, 45.5, x + 9, 50.5, EMBEDDING)
    d.text(x, 48, r"softmax$(U^{\top}h_t+b)$", 8.6)
    d.line([(x, 50.5), (x, 54.2)])
    for bar, height in enumerate((0.7, 1.6, 4.2, 0.5, 1.1, 0.3)):
        _bar(d, x - 5.2 + 1.8 * bar, height, bar == 2)
    d.text(x, 61.4, f"“{WORDS[index + 1]}”?", 10.5)


def _bar(d: Drawing, left: float, height: float, chosen: bool) -> None:
    d.ax.bar(left, height, 1.2, 54.8, align="edge", color=EMBEDDING if chosen else LINE, linewidth=0, zorder=3)


def _mask(d: Drawing, x: float, y: float, kept: Sequence[int]) -> None:
    """The same at every step, but for words that are left out: it is drawn once for a sequence."""
    for cell, one in enumerate(kept):
        left = x - 3.25 + 1.3 * cell
        d.ax.bar(
            left,
            1.3,
            1.3,
            y - 0.65,
            align="edge",
            color=MASK if one else PAPER,
            edgecolor=MASK,
            linewidth=0.8,
            zorder=4,
        )


def _draw_state(d: Drawing) -> None:
    for index in range(len(DEPTHS)):
        start = LEFT + WIDE * index
        d.line([(start - (3.4 if index == 0 else 5.4), STATE), (start + 2.4, STATE)], ELASTIC, linewidth=1.8)
        end = start + 2.4 + 5.3 * DEPTHS[index] - 0.9
        for step in range(1, DEPTHS[index]):
            left = start + 2.4 + 5.3 * step
            d.line([(left - 0.9, STATE), (left, STATE)], ELASTIC, linewidth=1.8, arrow=False)
        # What is not taken changes nothing: the state passes it by.
        d.line([(end, STATE), (start + WIDE - 5.4, STATE)], ELASTIC, linewidth=1.8, arrow=False)
    d.line([(LEFT + 3 * WIDE - 5.4, STATE), (LEFT + 3 * WIDE, STATE)], ELASTIC, linewidth=1.8)


def _draw_notes(d: Drawing) -> None:
    d.text(6, STATE, "$h_{t-1}$", 9.5)
    d.note(6, STATE - 3.6, "from the\nwords before", linespacing=1.15)
    for y, text in ((16, "words left out"), (19.5, "dropout, input"), (41.2, "dropout, output")):
        d.note(_middle(0) - 5, y, text, ha="right", color=MASK)
    d.note(_middle(1) + 5, 17.8, "the same at all steps\nof a sequence", ha="left", color=MASK, linespacing=1.15)
    d.note(_middle(0) + 10.2, 24.2, "dropout, state", ha="left", color=MASK)
    d.note(
        1.5, 48, "one matrix $U$\nembeds words\nand tells them\napart", ha="left", color=EMBEDDING, linespacing=1.2
    )
    d.note(1.5, 11, "the same $U$", ha="left", color=EMBEDDING)
    d.note(1.5, 58, "how likely each\nword comes next", ha="left", color=MUTED, linespacing=1.2)
