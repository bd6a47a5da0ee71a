"""The report as one self-contained HTML file, without scripts or fonts."""

from __future__ import annotations

import io
import math
import os
import re
import warnings
from collections.abc import Iterable
from functools import partial
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from .._internal.extras import need
from .._internal.files import write_text
from . import palette, tables
from .content import Report, TableRow
from .palette import css_variables, paint, style_of
from .tables import MISSING, as_float, measured, printed, signed

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure

PAPER_TABLE = ["model", "parameters", "paper, validation", "ours, validation", "paper, test", "ours, test"]
PAPER_TABLE += ["ours − paper"]


def render(report: Report) -> str:
    """The page as text, which depends on the report only."""
    need("jinja2", "matplotlib")
    environment = _environment()
    with warnings.catch_warnings():
        # The browser draws the text; it does not matter which letters matplotlib's font has.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        return environment.get_template("template.html").render(
            report=report,
            rows=tables.results_table(report.results),
            floor=tables.floor_of(report.results),
            baseline=tables.baseline_of(report.results),
            published=[_paper_table(*each) for each in groupby(report.tables, lambda row: row.table)],
        )


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from . import (
        classification_figures,
        depth_figures,
        figures,
        regression_figures,
        search_figures,
        training_figures,
    )

    environment = Environment(
        loader=PackageLoader("eirehn", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        figures=figures,
        training=training_figures,
        depths=depth_figures,
        classes=classification_figures,
        regression=regression_figures,
        searches=search_figures,
        tables=tables,
        ink=palette,
        number=as_float,
        style_of=style_of,
        zip=partial(zip, strict=True),
        style_sheet=Markup(_style()),
    )
    environment.filters.update(
        svg=lambda figure, identity: Markup(inline_svg(figure, identity)),
        dashes=lambda dash: "none" if isinstance(dash, str) else " ".join(f"{2 * part:g}" for part in dash[1]),
        paint=paint,
        count_text=tables.count,
        class_range=classification_figures.class_range,
        depth_tint=depth_figures.depth_tint,
        extremes=depth_figures.extremes,
        rise=depth_figures.rise,
        field_title=tables.title,
    )
    environment.tests.update(finite=math.isfinite, varying=classification_figures.varies)
    return environment


def _paper_table(name: str, rows: Iterable[TableRow]) -> tuple[str, list[str], list[list[str]]]:
    """Name, head and lines of a table of the paper, without empty columns."""
    lines = [_paper_line(row) for row in rows]
    filled = [column for column in range(len(PAPER_TABLE)) if any(line[column] != MISSING for line in lines)]
    return name, [PAPER_TABLE[column] for column in filled], [[line[column] for column in filled] for line in lines]


def _paper_line(row: TableRow) -> list[str]:
    paper, ours = as_float(row.paper_test), as_float(row.test)
    return [
        row.model,
        MISSING if row.millions is None else f"{row.millions:.3g} M",
        printed(as_float(row.paper_validation)).removesuffix("0"),
        measured(as_float(row.validation)),
        printed(paper).removesuffix("0"),
        measured(ours),
        signed(ours - paper, ours),
    ]


def write_report(path: str | os.PathLike[str], report: Report) -> Path:
    """Writes the page to `path`, completely or not at all."""
    target = Path(path)
    write_text(target, render(report))
    return target


def inline_svg(figure: Figure, identity: str) -> str:
    """The content of `<svg>` for a figure, in the colours of the page's scheme.

    `identity` makes its ids different from those of other figures in the page.
    """
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": identity, "path.simplify": True}):
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing, transparent=True)
    text = buffer.getvalue()
    body = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    for pattern, replacement in (
        # matplotlib's rule for `*` would affect the whole page; it is in style.css instead.
        (r"<defs>\s*<style.*?</style>\s*</defs>", ""),
        (r"(<g) id=\"[^\"]*\"", r"\1"),
        # Use the page's font instead of matplotlib's.
        (r"font: [^;\"]*?([\d.]+px)[^;\"]*", r"font-size: \1"),
        (r"font-family: [^;\"]*;?\s*", ""),
        (r' transform="rotate\(-0 [^"]*"', ""),
        (r"\s*\n\s*", " "),
        (r'(?<=[ "])(-?\d+\.\d{2})\d+(?=[ "])', r"\1"),
        (r"> <", "><"),
    ):
        body = re.sub(pattern, replacement, body, flags=re.DOTALL)
    return re.sub(r"#[0-9a-f]{6}\b", lambda found: paint(found[0]), body)


def _style() -> str:
    sheet = files(__package__).joinpath("style.css").read_text("utf-8")
    return sheet.replace("/* light */", css_variables(False)).replace("/* dark */", css_variables(True))
