"""Figure 1 of the paper."""

from __future__ import annotations

from ..content import Report
from ..elements import figure_block
from ..palette import Palette
from ..panels.figure1 import figure1_panels


def gate(report: Report, palette: Palette) -> str:
    caption = (
        "The elastic gate dʳ = max(β + exp(α) − exp((α + αₜ) r), 0) of one unit. A filled mark is an inner step "
        "taken, the hollow one the step at which the gate has shut; once shut it stays shut. The first two panels "
        "show what a unit allows at most: the slower its decay α and the larger its bias β, the deeper. The map "
        "shows the same for all units at once, the numbers being depths and the dots the units of the first two "
        "panels. The last panel shows what the input and the state, through αₜ, leave of it at one time step: that "
        "is how depth comes to differ from step to step."
    )
    return figure_block("gate", figure1_panels(), caption)
