"""A matplotlib figure as SVG to stand inside a page."""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING

from .palette import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_VARIABLE = {light: f"var(--{name})" for name, (light, _) in COLOURS.items()}


def inline_svg(figure: Figure, identity: str, alt: str) -> str:
    """The same text for the same figure, as wide as its surroundings, in the colours of the page's scheme.

    `identity` keeps its ids apart from those of other figures in the page, `alt` is what it shows in words.
    """
    text = _saved(figure, identity)
    text = text[text.index("<svg") :]
    size = re.search(r'viewBox="([^"]*)"', text)
    assert size is not None
    body = text[text.index(">") + 1 :]
    body = body.replace("<defs>\n  <style", "<style", 1)
    # matplotlib's rule for `*` would reach the whole page; the page's own style sheet has it instead.
    body = re.sub(r"<style.*?</style>\s*</defs>", "", body, count=1, flags=re.DOTALL)
    body = re.sub(r"(<g) id=\"[^\"]*\"", r"\1", body)
    body = re.sub(r' id="([^"]*)"', rf' id="{identity}-\1"', body)
    body = re.sub(r'xlink:href="#', f'href="#{identity}-', body)
    body = re.sub(r"url\(#", f"url(#{identity}-", body)
    # The page's font, however this matplotlib writes its own.
    body = re.sub(r"font: [^;\"]*?([\d.]+px)[^;\"]*", r"font-size: \1", body)
    body = re.sub(r"font-family: [^;\"]*;?\s*", "", body)
    body = re.sub(r' transform="rotate\(-0 [^"]*"', "", body)
    body = re.sub(r"#[0-9a-f]{6}\b", lambda found: _VARIABLE.get(found[0], found[0]), body)
    body = re.sub(r"\s*\n\s*", lambda found: " ", body)
    body = re.sub(r'(?<=[ "])(-?\d+\.\d{2})\d+(?=[ "])', r"\1", body)
    body = re.sub(r"> <", "><", body)
    return (
        f'<svg class="plot" role="img" aria-label="{html.escape(alt)}" viewBox="{size[1]}" '
        f'preserveAspectRatio="xMidYMid meet">{body}'
    )


def _saved(figure: Figure, identity: str) -> str:
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": identity, "path.simplify": True}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing, transparent=True)
    return buffer.getvalue()
