import math
import re
from dataclasses import replace

import numpy as np
import pytest
from helpers.language_sample import NAMES, PRICED, TEXT, language_report
from helpers.page import OVERLAPPING, Page
from helpers.quick import quick

from eirehn.report.content import Curve, Report
from eirehn.report.html import render
from eirehn.report.language import Passage, TableRow, WordGroups

GROUPS = {"label": "m", "names": ["a", "b"], "ticks": ["1", "2"], "counts": [[1, 2, 3], [0, 0, 4]]}
GROUPS |= {"perplexity": [5.0, math.nan], "next_perplexity": [6.0, 7.0]}
PASSAGE = {"label": "m", "tokens": ["a", "<eos>"], "depth": [1, 2.5], "chance": [None, 0.5]}
# WCAG's contrast of every word of a passage with the tint beneath it, the least of them.
CONTRAST = """
(() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const light = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(
      v => v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  return Math.min(...[...document.querySelectorAll('.passage span')].map(span => {
    const style = getComputedStyle(span);
    const pair = [light(style.color), light(style.backgroundColor)].sort((a, b) => b - a);
    return (pair[0] + 0.05) / (pair[1] + 0.05);
  }));
})()
"""


def test_mean_and_deviation_of_groups():
    part = WordGroups(**GROUPS)
    first = np.repeat([0, 1, 2], [1, 2, 3])
    assert part.mean == pytest.approx([first.mean(), 2.0])
    assert part.std == pytest.approx([first.std(), 0.0])
    assert part.words == [6, 4]
    assert replace(part, layers=2).words == [3, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": " "}, r"WordGroups.label must be text"),
        ({"names": ["a", "a"]}, "WordGroups.names must differ"),
        ({"ticks": ["1"]}, "WordGroups.ticks must have one value for each of the 2 groups, got 1"),
        ({"counts": [[1, 2], [3]]}, r"WordGroups.counts\[1\] must have one value for each of the 2 depths, got 1"),
        ({"counts": [[1, -2], [3, 1]]}, r"WordGroups.counts\[0\] must hold whole numbers"),
        ({"counts": [[1, 2], [0, 0]]}, r"WordGroups.counts\[1\] must count at least one word, got none"),
        ({"perplexity": [1.0, -1.0]}, "WordGroups.perplexity must be a number of at least zero, got -1.0"),
        ({"next_perplexity": [1.0]}, "WordGroups.next_perplexity must have one value"),
        ({"effective": [1.0]}, "WordGroups.effective must have one value for each of the 2 groups, got 1"),
        ({"layers": 0}, "WordGroups.layers must be a whole number greater than zero, got 0"),
    ],
)
def test_groups_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        WordGroups(**{**GROUPS, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": ""}, "Passage.label must be text"),
        ({"tokens": "ab"}, "Passage.tokens must be a list of texts, got 'ab'"),
        ({"tokens": ["a", 3]}, "Passage.tokens must be text that is not empty"),
        ({"end": ""}, "Passage.end must be text that is not empty"),
        ({"depth": [1]}, "Passage.depth must have one value for each of the 2 tokens, got 1"),
        ({"depth": [1, math.nan]}, "Passage.depth must hold finite numbers of at least zero"),
        ({"chance": [0.5]}, "Passage.chance must have one value"),
        ({"chance": [0.5, 1.5]}, "Passage.chance must hold numbers from 0 to 1, got 1.5"),
    ],
)
def test_passages_that_cannot_be(changes, message):
    with pytest.raises(ValueError, match=message):
        Passage(**{**PASSAGE, **changes})


def test_other_content_that_cannot_be():
    with pytest.raises(ValueError, match=r"TableRow.table must be text"):
        TableRow("", "m", 1.0)
    with pytest.raises(ValueError, match=r"TableRow.test must hold numbers, got 'x'"):
        TableRow("t", "m", 1.0, test="x")
    with pytest.raises(ValueError, match=r"Curve.seconds must have one value for each of the 2 epochs, got 1"):
        Curve("m", [1, 2], None, [[1.0, 2.0]], seconds=[3.0])
    with pytest.raises(ValueError, match=r"Curve.seconds must be a finite number of at least zero, got -1"):
        Curve("m", [1, 2], None, [[1.0, 2.0]], seconds=[-1, 2])
    with pytest.raises(ValueError, match=r"Report.passages\[0\] must be a Passage, got: str"):
        Report("t", "", {}, passages=["text"])
    with pytest.raises(ValueError, match=r"Report.measured_on must be text, got: int"):
        Report("t", "", {}, measured_on=3)


def bare(**parts):
    return render(Report("t", "", {}, figure1=False, **parts))


def test_words_have_their_depth_and_chance():
    text = bare(passages=[Passage("EI-REHN-9", ["a<b", "<eos>", "c"], [1, 4, 2], [None, 0.25, 1e-7])])
    spans = re.findall(r'<span style="background: ([^"]*)" title="([^"]*)">(.*?)</span>(<br>)?', text)
    assert [(title, shown, end) for _, title, shown, end in spans] == [
        ("a&lt;b: 1 inner step", "a&lt;b<sub>1</sub>", ""),
        ("end of the line: 4 inner steps, expected with 25 %", "¶<sub>4</sub>", "<br>"),
        ("c: 2 inner steps, expected with less than 0.01 %", "c<sub>2</sub>", ""),
    ]
    strength = [int(re.search(r"(\d+)%", colour)[1]) for colour, *_ in spans]
    assert strength[0] < strength[2] < strength[1]
    assert "<eos>" not in text


def test_how_far_gates_were_open():
    """In place of a depth that all words have; and beside it in the figures of groups."""
    text = bare(passages=[Passage("m", ["a", "b"], [1.234, 1.5], [None, 0.25], taken=4.0)])
    spans = re.findall(r'title="([^"]*)">(.*?)</span>', text)
    assert spans == [
        ("a: 1.23 inner steps of 4", "a<sub>1.23</sub>"),
        ("b: 1.5 inner steps of 4, expected with 25 %", "b<sub>1.50</sub>"),
    ]
    page = Page(text)
    assert "each word took 4 by count" in page.text
    assert "spends the same" not in page.text
    groups = ("m", ["a", "b"], ["1", "2"], [[0, 50], [0, 60]], [3.0, 4.0], [5.0, 6.0])
    page = Page(bare(frequencies=[WordGroups(*groups, effective=[0.625, 0.5])]))
    assert "0.625" in page.text
    assert "on each group, 1.00, and effectively from 0.50 (b) to 0.62 (a)." in page.text
    assert "effective" not in Page(bare(frequencies=[WordGroups(*groups)])).text


def test_letters_have_their_depth_in_a_list():
    text = bare(passages=[Passage("m", ["a", " ", "\n"], [1, 1.5, 2], [None, 0.5, 0.5], "\n", spaced=False)])
    page = Page(text)
    assert "a 1   1.5 \\n 2" in page.text
    assert "·" in page.text
    assert "<sub>" not in text


def test_one_depth_for_all_is_said():
    page = Page(bare(passages=[Passage("m", ["a", "b"], [3, 3], [0.1, 0.2])]))
    assert "spends the same on all of them, 3" in page.text
    page = Page(
        bare(frequencies=[WordGroups("m", ["a", "b"], ["1", "2"], [[0, 50], [0, 60]], [3.0, 4.0], [5.0, 6.0])])
    )
    assert "m spends all but the same on each group, 1.00" in page.text


def test_tables_have_the_difference():
    page = Page(
        bare(tables=[TableRow("Table 3", "RHN", 20.7, None, 73.4, 75.123, 74.1), TableRow("Table 4", "X", None)])
    )
    assert page.rows[0] == ["model", "parameters", "ours, validation", "paper, test", "ours, test", "ours − paper"]
    assert page.row("RHN") == ["RHN", "20.7 M", "75.12", "73.4", "74.10", "+0.70"]
    assert page.row("X") == ["X"]  # what no row of a table has is no column


def test_text_is_escaped():
    evil = "<script>x</script> & $\\frac{$"
    text = bare(
        frequencies=[WordGroups(evil, [evil, "b"], [evil, "2"], [[1, 2], [3, 4]], [1.0, 2.0], [3.0, 4.0])],
        positions=[WordGroups(evil, [evil, "b"], [evil, "2"], [[1, 2], [3, 4]], [1.0, 2.0], [3.0, 4.0])],
        passages=[Passage(evil, [evil, '"><b>'], [1, 2], [0.1, 0.2])],
        tables=[TableRow(evil, evil, 1.0)],
        curves=[Curve(evil, [1, 2], None, [[3.0, 2.0]], seconds=[1, 2])],
        measured_on=evil,
    )
    assert "<script" not in text
    assert "<b>" not in text
    assert Page(text).text.count(evil) > 15


@pytest.fixture(scope="module", params=quick(False, of=[False, True]), ids=["words", "letters"])
def page_file(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(language_report(letters=request.param)), "utf-8")
    return path


def test_page_is_whole(page_file):
    text = page_file.read_text("utf-8")
    page = Page(text)
    assert {"tables", "training", "depth", "passages", "frequency", "position", "early"} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert "nan" not in re.sub(r"\bfinance|[a-z]nan", "", page.text)
    assert len(text.encode()) < 1_000_000
    labels = [value for tag, name, value in page.attributes if tag == "svg" and name == "aria-label"]
    assert all(len(label) > 30 and "nan" not in label for label in labels)
    assert {row[0] for row in page.rows} >= {*NAMES, PRICED}
    assert page.text.count("Measured on the first 9 200 of 82 429 words") == 5
    assert "by time of training" in page.text
    assert TEXT[0] in page.text


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 820, 1280])
def test_browser_shows_the_page_without_complaint(browser, page_file, width, dark):
    browser.open(page_file, width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == [page_file.resolve().as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    hidden = "[...document.querySelectorAll('svg.plot')].filter(p => p.getBoundingClientRect().height < 60).length"
    assert browser.evaluate(hidden) == 0
    assert browser.evaluate(CONTRAST) >= 4.5


def test_texts_of_a_figure_do_not_lie_on_each_other(browser, page_file):
    browser.open(page_file, 1280)
    assert browser.evaluate(OVERLAPPING) == []
    assert browser.print_width(page_file, 718) <= 718
