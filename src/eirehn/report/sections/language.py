"""Language: the depth spent on words by how common they are and where they stand, and on those of a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from ..content import Report
from ..elements import escape, figure_block, fold, key, ramp_key, table, tint
from ..language import Passage, TableRow, WordGroups
from ..numbers import MISSING, as_float, count, measured, printed, signed, with_spread
from ..palette import INK, MUTED, Palette
from ..panels.depth import FEW
from ..panels.words import NEXT, OPEN, word_panels

FAINT, STRONG = 0.04, 0.5
"""Ink stays readable on the strongest tint, in both schemes."""
STEPS = 7
"""Tints that a key shows of a scale that is not of whole numbers."""
OPENNESS = (
    "the dotted one the effective number of them: how far each unit's gate was open, summed over inner steps, mean "
    "over units, where the count is that of the unit that goes deepest"
)
SAME = 0.05
"""Inner steps that a reader would not tell apart."""


def frequencies(report: Report, palette: Palette) -> str:
    lead = (
        "Words by how often they stand in the text trained on; the number beneath is the least of a group, which "
        "reaches to the next."
    )
    return _groups("frequency", report.frequencies, lead, "times in the text trained on", report, palette)


def positions(report: Report, palette: Palette) -> str:
    lead = (
        "Words by their place in the sentence, from its first word on; the number beneath is the first place of a "
        "group, and ¶ the end of the sentence, which is to be told like a word."
    )
    return _groups("position", report.positions, lead, "place in the sentence", report, palette)


def _groups(
    identity: str, parts: Sequence[WordGroups], lead: str, xlabel: str, report: Report, palette: Palette
) -> str:
    opened = [part for part in parts if part.effective is not None]
    caption = (
        f"{lead} Above, the inner steps spent on reading a word: the stronger a field, the more words of the group "
        "took so many; the line is their mean, the strokes one standard deviation"
        + (f"; {OPENNESS}" if opened else "")
        + ". Beneath, how well the model "
        "told the words themselves, and how well what follows them. "
        + " ".join(filter(None, (_extremes(part) for part in parts)))
        + (f" Hollow marks rest on fewer than {FEW} words." if any(min(p.words) < FEW for p in parts) else "")
        + _measured_on(report, max(part.layers for part in parts))
    )
    rows = [
        [
            f"{part.label}: {name}",
            with_spread(float(mean), float(std)),
            *([MISSING if wide is None else f"{wide:.3f}"] if opened else []),
            measured(as_float(own)),
            measured(as_float(follows)),
            count(words),
        ]
        for part in parts
        for name, mean, std, wide, own, follows, words in zip(
            part.names,
            part.mean,
            part.std,
            part.effective if part.effective is not None else len(part.names) * [None],
            part.perplexity,
            part.next_perplexity,
            part.words,
            strict=True,
        )
    ]
    effective = ["effective"] if opened else []
    head = ["group", "inner steps", *effective, "perplexity", "of what follows", "words"]
    data = fold("The points as a table", table(head, rows, f"Depth and perplexity by {xlabel}"))
    keys = [
        key("mean inner steps", INK, marker="o"),
        *([key("effective", INK, dash=OPEN)] if opened else []),
        key("perplexity of the word", palette[parts[0].label].colour, marker=palette[parts[0].label].marker),
        key("of what follows it", MUTED, dash=NEXT, marker="o"),
    ]
    panels = word_panels(parts, xlabel, palette)
    layout = "one" if len(panels) == 1 else "two"
    return figure_block(identity, panels, caption.strip(), keys=keys, data=data, layout=layout)


def _extremes(part: WordGroups) -> str:
    sure = [i for i, words in enumerate(part.words) if words >= FEW]
    if len(sure) < 2:
        return ""
    low, high = min(sure, key=lambda i: part.mean[i]), max(sure, key=lambda i: part.mean[i])
    if part.mean[high] - part.mean[low] < SAME:
        return f"{part.label} spends all but the same on each group, {part.mean[high]:.2f}" + _effective(part, sure)
    return (
        f"{part.label} spends from {part.mean[low]:.2f} ({part.names[low]}) to {part.mean[high]:.2f} "
        f"({part.names[high]})."
    )


def _effective(part: WordGroups, sure: Sequence[int]) -> str:
    """The end of a sentence."""
    if part.effective is None:
        return "."
    found = {index: float(part.effective[index]) for index in sure}
    low, high = min(sure, key=found.__getitem__), max(sure, key=found.__getitem__)
    return f", and effectively from {found[low]:.2f} ({part.names[low]}) to {found[high]:.2f} ({part.names[high]})."


def passages(report: Report, palette: Palette) -> str:
    """The text itself, not a figure: it wraps, can be searched, and is read out with its numbers."""
    depths = [float(depth) for passage in report.passages for depth in passage.depth]
    low, high = min(depths), max(depths)
    labels = " and ".join(dict.fromkeys(passage.label for passage in report.passages))
    spaced = all(passage.spaced for passage in report.passages)
    token = "word" if spaced else "character"
    taken = next((passage.taken for passage in report.passages if passage.taken is not None), None)
    lead = f"Pieces of the test text as {labels} reads them. The stronger the tint of a {token}, "
    if taken is None:
        lead += "the more inner steps it took" + (", and the small number says how many" if spaced else "")
    else:
        lead += "the further the gates of the units were open for it, summed over its inner steps" + (
            ", as the small number says" if spaced else ""
        )
        lead += f": each {token} took {taken:.3g} by count, which is that of the unit that goes deepest"
    lead += (
        "; ¶ is the end of a line. Rest the pointer on one to see what chance the model had given it before it "
        "came."
    )
    if taken is None and high - low < SAME:
        lead += f" It spends the same on all of them, {high:.3g}; a larger price on depth makes a model choose."
    lead += _measured_on(report)
    whole = all(depth == int(depth) for depth in depths)
    scale = range(int(low), int(high) + 1) if whole else [low + (high - low) * i / STEPS for i in range(STEPS + 1)]
    shades = [_shade(depth, low, high, labels, palette) for depth in scale]
    shown = "depth" if taken is None else "effective depth"
    keys = f'<ul class="keys">{ramp_key(shown, shades, float(f"{low:.3g}"), float(f"{high:.3g}"))}</ul>'
    texts = "".join(_passage(passage, low, high, palette) for passage in report.passages)
    return f"<p>{escape(lead)}</p>{keys}{texts}"


def _shade(depth: float, low: float, high: float, label: str, palette: Palette) -> str:
    share = (depth - low) / (high - low) if high > low else 0.5
    return tint(palette[label].colour, FAINT + (STRONG - FAINT) * share)


def _passage(passage: Passage, low: float, high: float, palette: Palette) -> str:
    pieces = []
    for token, depth, chance in zip(passage.tokens, passage.depth, passage.chance, strict=True):
        shade = _shade(float(depth), low, high, passage.label, palette)
        ends = token == passage.end
        shown = "¶" if ends else "·" if not passage.spaced and token == " " else token
        number = f"{depth:.2g}" if passage.taken is None else f"{depth:.2f}"
        number = f"<sub>{number}</sub>" if passage.spaced else ""
        said = f"{'end of the line' if ends else token}: {depth:.3g} inner step{'' if depth == 1 else 's'}"
        said += "" if passage.taken is None else f" of {passage.taken:.3g}"
        said += "" if chance is None else f", expected with {_chance(chance)}"
        pieces.append(f'<span style="background: {shade}" title="{escape(said)}">{escape(shown)}{number}</span>')
        pieces.append("<br>" if ends else " " if passage.spaced else "<wbr>" if token == " " else "")
    pieces.pop()
    text = f'<p class="passage{"" if passage.spaced else " letters"}">{"".join(pieces)}</p>'
    if passage.spaced:
        return text
    listed = " ".join(
        f"{repr(token)[1:-1]} {depth:.2g}" for token, depth in zip(passage.tokens, passage.depth, strict=True)
    )
    return text + fold("The depths as numbers", f"<p>{escape(listed)}</p>")


def _chance(chance: float) -> str:
    return f"{100 * chance:.2g} %" if chance >= 1e-4 else "less than 0.01 %"


def tables(report: Report, palette: Palette) -> str:
    """The paper's tables, all their rows, with ours beside them where there are any."""
    lead = (
        "All rows that the paper prints, also those that were not trained here, with our perplexities beside them; "
        "lower is better. What the paper says of models of others is what their authors found."
    )
    head = [
        "model",
        "parameters",
        "paper, validation",
        "ours, validation",
        "paper, test",
        "ours, test",
        "ours − paper",
    ]
    page = f"<p>{escape(lead)}</p>"
    for name, rows in groupby(report.tables, key=lambda row: row.table):
        lines = [_table_row(row) for row in rows]
        filled = [column for column in range(len(head)) if any(line[column] != MISSING for line in lines)]
        lines = [[line[column] for column in filled] for line in lines]
        page += f'<h3 class="table">{escape(name)}</h3>' + table([head[column] for column in filled], lines, name)
    return page


def _table_row(row: TableRow) -> list[str]:
    paper, ours = as_float(row.paper_test), as_float(row.test)
    return [
        row.model,
        MISSING if row.millions is None else f"{row.millions:.3g} M",
        _figure(row.paper_validation),
        measured(as_float(row.validation)),
        _figure(row.paper_test),
        measured(ours),
        signed(ours - paper, ours) if math.isfinite(ours - paper) else MISSING,
    ]


def _figure(value: float | None) -> str:
    return MISSING if value is None else printed(float(value)).removesuffix("0")


def _measured_on(report: Report, layers: int = 1) -> str:
    several = " Where a network has several layers, each counts by itself." if layers > 1 else ""
    return several + (f" {report.measured_on}" if report.measured_on else "")
