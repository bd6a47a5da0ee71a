"""Pieces of HTML: every text that comes in is escaped here."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from .palette import COLOURS, Style
from .panels.panel import Panel
from .svg import inline_svg

_VARIABLE = {light: f"var(--{name})" for name, (light, _) in COLOURS.items()}
_SHAPES = {
    "o": '<circle cx="16" cy="6" r="3.6"/>',
    "s": '<path d="M12.8 2.8h6.4v6.4h-6.4z"/>',
    "^": '<path d="M16 1.8l4 7.4h-8z"/>',
    "v": '<path d="M16 10.2l4-7.4h-8z"/>',
    "<": '<path d="M11.8 6l7.4-4v8z"/>',
    ">": '<path d="M20.2 6l-7.4-4v8z"/>',
    "D": '<path d="M16 1.6L20.4 6 16 10.4 11.6 6z"/>',
    "P": '<path d="M14.4 2h3.2v2.4H20v3.2h-2.4V10h-3.2V7.6H12V4.4h2.4z"/>',
    "X": '<path d="M12.6 4.4l2-2L16 3.8l1.4-1.4 2 2L18 6l1.4 1.4-2 2L16 8.2l-1.4 1.4-2-2L14 6z"/>',
}
_TICK = '<path d="M16 1v10" stroke-width="2.2"/>'


def escape(text: object) -> str:
    return html.escape(str(text))


def key(
    text: str,
    colour: str,
    *,
    dash: object = "solid",
    marker: str | None = None,
    hollow: bool = False,
    thin: bool = False,
) -> str:
    """One entry of a legend; an empty `dash` is no line."""
    paint = _VARIABLE.get(colour, colour)
    dashes = " ".join(f"{2 * part:g}" for part in dash[1]) if isinstance(dash, tuple) else "none"
    width = 0.8 if thin else 2
    line = f'<path d="M1 6h30" fill="none" stroke-width="{width}" stroke-dasharray="{dashes}"/>' if dash else ""
    shape = "" if marker is None else _TICK if marker == "|" else _SHAPES.get(marker, _SHAPES["o"])
    fill = "var(--card)" if hollow else paint
    box = "0 0 32 12" if dash else "9 0 14 12"
    return (
        f'<li><svg viewBox="{box}" height="12" aria-hidden="true" '
        f'style="stroke: {paint}; fill: {fill}">{line}{shape}</svg>{escape(text)}</li>'
    )


def model_key(text: str, style: Style, *, dash: object = "solid", hollow: bool = False) -> str:
    return key(text, style.colour, dash=dash, marker=style.marker, hollow=hollow)


def glyph(style: Style) -> str:
    """The model's mark, to stand before its name."""
    paint = _VARIABLE.get(style.colour, style.colour)
    shape = _SHAPES.get(style.marker, _SHAPES["o"])
    return f'<svg class="glyph" viewBox="10 0 12 12" aria-hidden="true" style="fill: {paint}">{shape}</svg>'


def ramp_key(text: str, colours: Sequence[str], low: float, high: float, unit: str = "inner steps") -> str:
    cells = "".join(f'<i style="background: {colour}"></i>' for colour in colours)
    ends = f"{low:g}", f"{high:g} {escape(unit)}"
    return f'<li>{escape(text)}: {ends[0]} <span class="ramp" aria-hidden="true">{cells}</span> {ends[1]}</li>'


def tint(colour: str, strength: float) -> str:
    """A colour of the palette laid thinly on the page's ground, in both schemes."""
    return f"color-mix(in srgb, {_VARIABLE.get(colour, colour)} {100 * strength:.0f}%, var(--card))"


def figure_block(
    identity: str,
    panels: Sequence[Panel],
    caption: str,
    *,
    keys: Iterable[str] = (),
    data: str = "",
    layout: str = "two",
) -> str:
    """`layout` is "one" (caption beside the figure), "two" or "many" in a row, where the screen is wide enough."""
    legend = "".join(keys)
    drawn = "".join(
        '<div class="panel">'
        + (f"<h3>{escape(panel.title)}</h3>" if panel.title else "")
        + inline_svg(panel.figure, f"{identity}-{index}", panel.alt)
        + "</div>"
        for index, panel in enumerate(panels)
    )
    listed = f'<ul class="keys">{legend}</ul>' if legend else ""
    above, beside = ("", listed) if layout == "one" else (listed, "")
    # On a phone many panels stand in a row that scrolls by itself, by keyboard too.
    focus = ' role="region" aria-label="Panels" tabindex="0"' if layout == "many" else ""
    return (
        f'<figure class="{layout}">{above}<div class="panels"{focus}>{drawn}</div>'
        f"<figcaption>{beside}<p>{escape(caption)}</p>{data}</figcaption></figure>"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    """A plain table of texts that scrolls inside its own box."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        "<tr>"
        + f'<th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0"><table>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def fold(summary: str, content: str) -> str:
    return f"<details><summary>{escape(summary)}</summary>{content}</details>"


def section(identity: str, heading: str, content: str) -> str:
    return f'<section id="{identity}"><h2>{escape(heading)}</h2>{content}</section>'
