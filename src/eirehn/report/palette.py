"""A colour and a marker for each model, the same in all plots, which colour-blind readers can distinguish."""

from __future__ import annotations

import re
from typing import NamedTuple


class Style(NamedTuple):
    colour: str
    marker: str


INK, MUTED, LINE, GRID, PAPER, FLOOR = "#1f2328", "#636b77", "#a3aab5", "#e4e7eb", "#fefefe", "#a3195b"

_MODELS = {
    # Okabe and Ito's colours, some of them darkened for contrast on white
    "EIREHN": ("#0072b2", "#5db3f0", "o"),
    "RHN": ("#d55e00", "#ff8f4a", "s"),
    "LSTM": ("#00875f", "#3ecf9f", "^"),
    "RNN": ("#7b818c", "#b4bbc7", "D"),
    "SREHN": ("#b5558f", "#eb9fcd", "v"),
    "SRHN": ("#a97800", "#edc04a", "P"),
    "ACT": ("#5b3fa6", "#b3a0f2", "X"),
    "GRU": ("#7a4a21", "#d0a37a", "<"),
    "other": ("#2f4858", "#9fc3d8", ">"),
}

_VARIABLES = {
    # name of the CSS variable: (light, dark)
    "ink": (INK, "#e6e8eb"),
    "muted": (MUTED, "#a2abb8"),
    "line": (LINE, "#5c6672"),
    "grid": (GRID, "#2d343d"),
    "card": (PAPER, "#171b21"),
    "floor": (FLOOR, "#ff7ab0"),
    **{f"model-{name.lower()}": (light, dark) for name, (light, dark, _) in _MODELS.items()},
}
"""Plots are drawn with the light ones."""
_PAINTED = {light: f"var(--{name})" for name, (light, _) in _VARIABLES.items()}


def style_of(label: str) -> Style:
    """The style of the model in a label: of the longest known name in it, so that EI-REHN is not read as RHN."""
    plain = re.sub(r"[^A-Z0-9]", "", label.upper())
    light, _, marker = _MODELS[max((name for name in _MODELS if name in plain), key=len, default="other")]
    return Style(light, marker)


def css_variables(dark: bool) -> str:
    return " ".join(f"--{name}: {pair[dark]};" for name, pair in _VARIABLES.items())


def paint(colour: str) -> str:
    """The CSS variable of a colour of the palette, which follows the page's scheme; other colours are unchanged."""
    return _PAINTED.get(colour, colour)


def tint(colour: str, strength: float) -> str:
    """A colour of the palette mixed with the page's background, in both schemes."""
    return f"color-mix(in srgb, {paint(colour)} {100 * strength:.0f}%, var(--card))"
