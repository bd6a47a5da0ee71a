"""The table of results, as HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..content import Report
from ..elements import escape, glyph
from ..numbers import MISSING, count, duration, measured, signed, with_spread
from ..palette import Palette
from ..table import Row, difference_text, seeds_text, with_spread_as_printed

Column = tuple[str, Callable[[Row], str]]


def results(rows: Sequence[Row], floor: float, report: Report, palette: Palette) -> str:
    columns = _columns(rows, floor, report, palette)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name, _ in columns)
    body = ""
    for model in dict.fromkeys(row.model for row in rows):
        body += "<tbody>"
        for row in rows:
            if row.model == model:
                body += '<tr class="best">' if row.best else "<tr>"
                body += "".join(cell(row) for _, cell in columns) + "</tr>"
        body += "</tbody>"
    return (
        '<div class="scroll" role="region" aria-label="Results beside the paper’s" tabindex="0">'
        f'<table class="results"><thead><tr>{head}</tr></thead>{body}</table></div>'
    )


def _columns(rows: Sequence[Row], floor: float, report: Report, palette: Palette) -> list[Column]:
    """What is the same in all rows, or given in none, has no column."""
    scale = report.scale
    columns: list[Column] = [
        ("model", lambda row: f'<th scope="row">{glyph(palette[row.model])}{escape(row.label)}</th>'),
        ("ours", lambda row: _ours(row, scale)),
    ]
    if any(math.isfinite(row.paper) for row in rows):
        columns.append(("paper", lambda row: _paper(row, scale)))
        columns.append(("ours − paper", lambda row: _difference(row, report)))
    if math.isfinite(floor):
        columns.append(("over the floor", lambda row: _cell(signed(row.excess * scale, row.mean * scale))))
    if any(math.isfinite(row.final_mean) and not row.at_last_epoch for row in rows):
        columns.append(("last epoch", lambda row: _cell(measured(row.final_mean * scale))))
    columns.append(("parameters", lambda row: _cell(count(row.parameters))))
    columns.append(("seeds", lambda row: _cell(seeds_text(row), "bad" if row.diverged or row.stopped else "")))
    if any(row.max_depth is not None for row in rows):
        columns.append(("max. depth", lambda row: _cell(_or_missing(row.max_depth))))
    if any(row.layers not in (None, 1) for row in rows):
        columns.append(("layers", lambda row: _cell(_or_missing(row.layers))))
    if len({row.weight_update for row in rows} - {None}) > 1:
        columns.append(("weight update", lambda row: _cell(_or_missing(row.weight_update))))
    if len({row.recipe for row in rows}) > 1:
        columns.append(("recipe", lambda row: _cell(row.recipe or MISSING)))
    if any(math.isfinite(row.seconds) for row in rows):
        columns.append(("time", lambda row: _cell(duration(row.seconds))))
    return columns


def _cell(text: str, kind: str = "") -> str:
    return f'<td class="{kind}">{escape(text)}</td>' if kind else f"<td>{escape(text)}</td>"


def _ours(row: Row, scale: float) -> str:
    text = escape(with_spread(row.mean * scale, row.std * scale))
    if not math.isfinite(row.mean):
        mean, std = row.finite_mean
        text = "diverged"
        if math.isfinite(mean):
            text += f"<br><small>the others {escape(with_spread(mean * scale, std * scale))}</small>"
    values = ", ".join(measured(value * scale) if math.isfinite(value) else "diverged" for value in row.values)
    text = f"<strong>{text}</strong>" if row.best else text
    return f'<td title="{escape(f"by seed: {values}")}">{text}</td>'


def _paper(row: Row, scale: float) -> str:
    text = escape(with_spread_as_printed(row.paper * scale, row.paper_std * scale))
    return f"<td><strong>{text}</strong></td>" if row.paper_best else f"<td>{text}</td>"


def _difference(row: Row, report: Report) -> str:
    text = difference_text(row, report.scale, report.metric_unit)
    if not math.isfinite(row.difference) or row.difference == 0:
        return _cell(text)
    better = (row.difference < 0) == report.lower_is_better
    return (
        f'<td class="{"good" if better else "bad"}">{escape(text)}'
        f'<span class="unseen">, {"better" if better else "worse"}</span></td>'
    )


def _or_missing(value: object) -> str:
    return MISSING if value is None else str(value)
