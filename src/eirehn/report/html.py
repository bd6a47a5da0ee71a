"""The report as one HTML file that needs nothing else: no network, no scripts, no fonts of its own."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from ..files import write_text
from .content import Report
from .elements import escape, section
from .palette import Palette, css_variables
from .sections.classes import class_depth, confusion, windows
from .sections.comparison import comparison, tiles
from .sections.depth import histogram, true_depth
from .sections.early import early
from .sections.examples import examples
from .sections.gate import gate
from .sections.language import frequencies, passages, positions, tables
from .sections.repeat import repeat
from .sections.savings import savings
from .sections.training import training
from .table import results_table

QUICK = "Quick run: not comparable with the paper."


def render(report: Report) -> str:
    """The page. The same report gives the same text."""
    with warnings.catch_warnings():
        # The browser draws the text, with fonts that have the letters matplotlib's lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        return _page(report)


def _page(report: Report) -> str:
    palette = Palette(_labels(report))
    parts = [
        ("results", "Ours beside the paper", comparison, bool(report.results.get("rows"))),
        ("tables", "Tables 3 and 4 of the paper", tables, bool(report.tables)),
        ("training", "Learning curves", training, bool(report.curves)),
        ("confusion", "What is taken for what", confusion, bool(report.confusions)),
        ("gate", "The elastic gate (Figure 1 of the paper)", gate, report.figure1),
        ("depth", "Depth spent", histogram, bool(report.histograms)),
        ("passages", "The text by depth", passages, bool(report.passages)),
        ("frequency", "Depth by how common a word is", frequencies, bool(report.frequencies)),
        ("position", "Depth by place in the sentence", positions, bool(report.positions)),
        ("class-depth", "Depth by class", class_depth, bool(report.class_depths)),
        ("examples", "Examples", examples, bool(report.examples)),
        ("windows", "Windows", windows, bool(report.windows)),
        ("savings", "What elastic depth saves", savings, bool(report.savings)),
        ("early", "Improving early", early, bool(report.early)),
        ("true-depth", "True depth against depth spent", true_depth, bool(report.true_depth)),
        ("repeat", "How to repeat", repeat, bool(report.results)),
    ]
    shown = [(name, heading, build) for name, heading, build, given in parts if given]
    contents = "".join(f'<li><a href="#{name}">{escape(_short(heading))}</a></li>' for name, heading, _ in shown)
    body = "".join(section(name, heading, build(report, palette)) for name, heading, build in shown)
    warning = report.notice or (QUICK if report.results.get("quick") else "")
    notice = f'<p class="notice" role="note">{escape(warning)}</p>' if warning else ""
    summary = f'<p class="summary">{escape(report.summary)}</p>' if report.summary else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(report.title)}</title>\n<style>\n{_style()}</style></head>\n<body>"
        f"<header><h1>{escape(report.title)}</h1>{summary}{notice}{tiles(report)}"
        f'<nav aria-label="Contents"><ul>{contents}</ul></nav></header>\n<main>{body}</main></body></html>\n'
    )


def write_report(path: str | os.PathLike[str], report: Report) -> Path:
    """Writes the page to `path`, all of it or nothing: no reader and no crash ever meets half a page."""
    target = Path(path)
    write_text(target, render(report))
    return target


def _style() -> str:
    sheet = files(__package__).joinpath("style.css").read_text("utf-8")
    return sheet.replace("/* light */", css_variables(False)).replace("/* dark */", css_variables(True))


def _labels(report: Report) -> Iterator[str]:
    yield from (row.model for row in results_table(report.results))
    for parts in (report.curves, report.histograms, report.savings, report.early, report.true_depth):
        yield from (part.label for part in parts)
    yield from (each.label for each in report.confusions)
    yield from (part.label for part in report.class_depths)
    for groups in (report.frequencies, report.positions, report.passages):
        yield from (part.label for part in groups)


def _short(heading: str) -> str:
    return heading.split(" (")[0]
