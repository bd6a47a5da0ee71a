import dataclasses
import math
import os
import re
import stat
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from helpers import classified_sample, language_sample
from helpers.classified_sample import classified_report
from helpers.language_sample import PENALISED, TEXT, language_report
from helpers.sample import bare_report, curves, full_report, results

from eirehn.report.content import (
    ClassDepth,
    Confusion,
    Curve,
    DepthHistogram,
    EarlyCurve,
    Example,
    Passage,
    Report,
    Saving,
    TableRow,
    TrueDepth,
    Window,
    WordGroups,
)
from eirehn.report.page import render, write_report

VOID = {"meta", "link", "br", "wbr"}
EVIL = '<script>alert("x")</script> & $\\frac{$ \'"'


class Page(HTMLParser):
    """What a page holds; fails where tags do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.attributes, self.rows, self.text = [], [], [], [], ""
        self.feed(text)
        assert self.open == []
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text += data
        if self.open and {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def row(self, label):
        return next(row for row in self.rows if row and row[0] == label)


@pytest.fixture(scope="module")
def full():
    return render(full_report())


def bare(**parts):
    return render(Report("t", "", {}, own=True, **parts))


def test_table_has_ours_the_paper_s_and_the_floor():
    stored = results()
    row = next(row for row in stored["rows"] if row["label"] == "EI-REHN-20")
    row.update(values=[0.00050, 0.00052], mean=0.00051, std=0.00001, final_mean=0.00056)
    text = render(bare_report(results=stored))
    page = Page(text)
    assert page.row("model")[1:6] == ["ours", "paper", "ours − paper", "over the floor", "last epoch"]
    ours = ["0.510 ± 0.010", "0.47", "+0.040 (+9 %), worse", "+0.083", "0.560", "2 862"]
    assert page.row("EI-REHN-20")[1:7] == ours
    assert page.row("ACT-20")[2:4] == ["–", "–"]
    assert "better" in page.row("RNN-20")[3]
    assert re.findall(r"<strong>(.*?)</strong>", text) == ["0.510 ± 0.010", "0.47"]  # the best of each


def test_diverged_seed_is_named_and_never_the_best():
    stored = results()
    row = stored["rows"][0]
    row.update(values=[1e-6, math.nan, 3e-6], mean=2e-6, std=1e-6)
    text = render(bare_report(results=stored))
    assert "3, 1 diverged" in Page(text).row("RNN-20")
    assert "<strong>0.002" not in text
    row.update(mean=None, std=None)
    page = Page(render(bare_report(results=stored)))
    assert page.row("RNN-20")[1] == "divergedthe others 0.00200 ± 0.00100"
    assert page.row("RNN-20")[3] == "–"
    row.update(values=[None, math.inf], mean=math.nan)
    page = Page(render(bare_report(results=stored)))
    assert page.row("RNN-20")[1] == "diverged"
    assert "nan" not in page.text
    assert "inf" not in page.text


def test_all_text_is_escaped():
    stored = results()
    for key in ("command", "commit", "machine", "experiment"):
        stored[key] = EVIL
    stored["versions"] = {EVIL: EVIL}
    stored["rows"][0].update(label=EVIL, model=EVIL, recipe=EVIL, weight_update=EVIL)
    groups = WordGroups(EVIL, [EVIL, "b"], [EVIL, "2"], [[1, 2], [3, 4]], [1.0, 2.0], [3.0, 4.0])
    report = Report(
        title=EVIL,
        summary=EVIL,
        results=stored,
        notice=EVIL,
        measured_on=EVIL,
        loss_name=EVIL,
        windows_chosen=EVIL,
        own=True,
        curves=[
            Curve(EVIL, [1, 2], [[1e-3, 1e-3]], [[2e-3, 1e-3]], [[1, 2]], seconds=[1, 2]),
            Curve(EVIL, [1], None, None, None, [[1.0]]),
        ],
        histograms=[DepthHistogram(EVIL, [0, 3])],
        examples=[Example([[0.0, 1.0]], [1], [2], [0.1])],
        savings=[Saving(EVIL, "fixed", None, 1, 1, 1e-3), Saving(EVIL, "elastic", 1e-3, 2, 1, 2e-3)],
        early=[EarlyCurve(EVIL, [1, 2], [1e-3, 2e-3])],
        true_depth=[TrueDepth(EVIL, [1, 2], [1, 2], [0, 0], [30, 3])],
        confusions=[Confusion(EVIL, [EVIL, "b"], [[[1, 2], [3, 4]]])],
        class_depths=[ClassDepth(EVIL, [EVIL, "b"], [0.5, 0.6], [1.0, 2.0], [3, 4])],
        windows=[Window(EVIL, [EVIL, "b"], [[0.0, 1.0]], [1.0], EVIL, "b", 0.5)],
        frequencies=[groups],
        positions=[groups],
        passages=[
            Passage(EVIL, [EVIL, '"><b>'], [1, 2], [0.1, 0.2]),
            Passage(EVIL, ["<"], [1], [0.1], spaced=False),
        ],
        tables=[TableRow(EVIL, EVIL, 1.0)],
    )
    text = render(report)
    page = Page(text)
    assert "<script" not in text
    assert "<b>" not in text
    assert page.text.count(EVIL) > 60
    assert all("script" not in tag for tag, _, _ in page.attributes)


def test_page_without_any_section():
    page = Page(render(Report("Title", "", {}, own=True)))
    assert page.text == "Title Title"
    assert page.ids == []


def test_notice_and_how_to_repeat(full):
    page = Page(full)
    assert "not comparable with the paper" in page.text
    for fact in (results()["command"], results()["commit"], results()["machine"], "torch 2.13.0", "0.056"):
        assert fact in page.text


def test_quick_run_says_so_unasked():
    assert 'class="notice"' not in render(bare_report())
    assert "Quick run" in Page(render(bare_report(results={**results(), "quick": True}))).text


def test_values_are_scaled_and_higher_may_be_better():
    stored = results()
    stored["bayes_floor"] = None
    for row in stored["rows"]:
        mean = 0.90 + int(row["label"][-2:]) / 1000
        row.update(metric="accuracy", mean=mean, std=0.005, values=[0.9, 0.91], paper=0.915, final_mean=None)
    page = Page(render(bare_report(results=stored, curves=curves()[:2])))
    assert page.row("model")[1:5] == ["ours", "paper", "ours − paper", "parameters"]
    assert page.row("RNN-40")[1:4] == ["94.00 ± 0.50", "91.50", "+2.50, better"]  # points, not percent of percent
    assert "floor" not in page.text


def test_page_needs_nothing_else(full):
    page = Page(full)
    assert "http" not in full
    assert "@import" not in full
    links = [value for _, name, value in page.attributes if name in ("src", "href", "xlink:href", "srcset")]
    assert [value for value in links if not value.startswith("#")] == ["data:,"]
    assert not {tag for tag, _, _ in page.attributes} & {"script", "iframe", "img", "object", "embed"}
    assert len(full.encode()) < 1_000_000


def test_ids_are_unique_and_every_reference_is_met(full):
    page = Page(full)
    assert len(page.ids) == len(set(page.ids))
    asked = {value[1:] for _, name, value in page.attributes if name.endswith("href") and value.startswith("#")}
    asked |= set(re.findall(r"url\(#([^)]*)\)", full))
    assert len(asked) > 100
    assert asked <= set(page.ids)


def test_every_figure_says_in_words_what_it_shows(full):
    page = Page(full)
    plots = [tag for tag, name, value in page.attributes if (name, value) == ("class", "plot")]
    labels = [value for tag, name, value in page.attributes if tag == "svg" and name == "aria-label"]
    assert len(labels) == len(plots) > 20
    assert all(len(label) > 30 and "nan" not in label for label in labels)
    assert full.count("<figure") == full.count("<figcaption")


def test_curves_of_all_kinds():
    nan = math.nan
    odd = [
        Curve("one epoch", [1], [[1e-3]], [[1e-3]]),
        Curve("all diverged", [1, 2], [[nan, nan]], [[nan, None]], [[nan, nan]]),
        Curve("not positive", [1, 2], [[0.0, -1.0]], [[0.0, 0.0]]),
        Curve("long", range(1, 2001), [[1 / e for e in range(1, 2001)]], [[1 / e for e in range(1, 2001)]]),
    ]
    text = bare(curves=odd)
    assert "1 of 1 seeds diverged" in Page(text).text
    assert len(text) < 100_000
    Page(bare(curves=odd[1:2]))


def test_long_examples_and_single_points():
    page = Page(
        bare(
            examples=[
                Example([[0.1, 0.2]] * 128, [3] * 128, [0] * 128, [0.0] * 128),
                Example([[0.0, 0.0]], [0], [0], [math.nan]),
            ],
            savings=[Saving("diverged", "fixed", None, 0, 0, math.nan)],
            early=[EarlyCurve("one", [1], [math.nan], [math.nan])],
            true_depth=[TrueDepth("one", [1], [math.nan], [math.nan], [0])],
            histograms=[DepthHistogram("deep", [0] * 40 + [7])],
            confusions=[Confusion("a", ["one", "two"], [[[3, 0], [0, 0]]])],
            class_depths=[ClassDepth("a", ["one", "two"], [1.0, math.nan], [2.0, math.nan], [3, 0])],
            windows=[Window("a", ["u"], [[math.nan]], [1], "one", "one", 1.0)],
        )
    )
    assert "nan" not in page.text
    assert page.row("diverged")[-1] == "diverged"
    of_class = [["–", "–", "–", "0"], ["0", "0"], ["–", "–", "0"]]  # metrics, counts, depth
    assert [row[1:] for row in page.rows if row[0] == "two"] == of_class


def test_letters_that_matplotlib_s_font_lacks():
    stored = results()
    stored["rows"][0]["label"] = "模型-20"
    assert "模型-20" in Page(render(bare_report(results=stored))).text


def test_words_have_their_depth_and_probability():
    text = bare(passages=[Passage("EI-REHN-9", ["a<b", "<eos>", "c"], [1, 4, 2], [None, 0.25, 1e-7])])
    spans = re.findall(r'<span style="background: ([^"]*)" title="([^"]*)">(.*?)</span>(<br>)?', text)
    assert [(title, shown, end) for _, title, shown, end in spans] == [
        ("a&lt;b: 1 inner step", "a&lt;b<sub>1</sub>", ""),
        ("end of the line: 4 inner steps, predicted with 25 %", "¶<sub>4</sub>", "<br>"),
        ("c: 2 inner steps, predicted with less than 0.01 %", "c<sub>2</sub>", ""),
    ]
    strength = [int(re.search(r"(\d+)%", colour)[1]) for colour, *_ in spans]
    assert strength[0] < strength[2] < strength[1]


def test_how_far_gates_were_open():
    text = bare(passages=[Passage("m", ["a", "b"], [1.234, 1.5], [None, 0.25], taken=4.0)])
    assert re.findall(r'title="([^"]*)">(.*?)</span>', text) == [
        ("a: 1.23 inner steps of 4", "a<sub>1.23</sub>"),
        ("b: 1.5 inner steps of 4, predicted with 25 %", "b<sub>1.50</sub>"),
    ]
    page = Page(text)
    assert "Counted, each word took 4 inner steps" in page.text
    assert "takes the same" not in page.text
    groups = ("m", ["a", "b"], ["1", "2"], [[0, 50], [0, 60]], [3.0, 4.0], [5.0, 6.0])
    page = Page(bare(frequencies=[WordGroups(*groups, effective=[0.625, 0.5])]))
    assert page.row("m: a") == ["m: a", "1.000 ± 0.000", "0.625", "3.000", "5.000", "50"]
    assert "effective" not in Page(bare(frequencies=[WordGroups(*groups)])).text


def test_letters_have_their_depth_in_a_list_and_one_depth_for_all_is_said():
    text = bare(passages=[Passage("m", ["a", " ", "\n"], [1, 1.5, 2], [None, 0.5, 0.5], "\n", spaced=False)])
    assert "a 1   1.5 \\n 2" in text
    assert "·" in Page(text).text
    assert "<sub>" not in text
    page = Page(bare(passages=[Passage("m", ["a", "b"], [3, 3], [0.1, 0.2])]))
    assert "takes the same number at each, 3; a larger depth penalty" in page.text


def test_tables_of_the_paper_have_the_difference():
    rows = [TableRow("Table 3", "RHN", 20.7, None, 73.4, 75.123, 74.1), TableRow("Table 4", "X", None)]
    page = Page(bare(tables=rows))
    assert page.rows[0] == ["model", "parameters", "ours, validation", "paper, test", "ours, test", "ours − paper"]
    assert page.row("RHN") == ["RHN", "20.7 M", "75.12", "73.4", "74.10", "+0.70"]
    assert page.row("X") == ["X"]  # what no row of a table has is no column


def test_depth_that_is_the_same_for_all_classes_is_said_and_not_drawn():
    report = dataclasses.replace(classified_report(), own=True, confusions=(), curves=(), windows=())
    page = Page(render(report))
    assert "Only in the table, as depth is the same for every class: EI-REHN-48." in page.text
    assert page.row("EI-REHN-48: laying")[2:] == ["4.000 ± 0.000", "537"]
    page = Page(render(dataclasses.replace(report, class_depths=report.class_depths[:1])))
    assert "EI-REHN-48 takes 4.00 inner steps for every class." in page.text


@pytest.mark.parametrize("validated", [True, False])
def test_page_of_classifiers(validated):
    text = render(classified_report(validated=validated))
    page = Page(text)
    sections = {"results", "training", "confusion", "depth", "class-depth", "windows", "savings", "early"}
    assert sections <= set(page.ids)
    assert {row[0] for row in page.rows} >= set(classified_sample.NAMES)
    for absent in ("nan", "floor", "only the training loss is known" if validated else "best validation"):
        assert absent not in page.text
    chosen = "epoch with the best validation result" if validated else "last epoch"
    assert f"each at the {chosen}. Higher is better" in page.text
    assert ("last epoch" in page.row("model")) == validated
    assert "With several layers, each is counted separately" in page.text


def test_what_depth_is_spent_on_comes_first_where_depth_differs():
    report = dataclasses.replace(bare_report(), own=False, windows=classified_report().windows)
    same = [dataclasses.replace(window, depth=[3.0] * len(window.depth)) for window in report.windows]
    flat = dataclasses.replace(report, windows=same)
    passage = Passage("EI-REHN-9", ["one", "two"], [1.2, 2.1], [None, 0.5])
    opened = dataclasses.replace(passage, taken=4.0)  # the openness of gates differs, not the inner steps
    for given, section, leads in (
        (report, "windows", True),
        (flat, "windows", False),
        (dataclasses.replace(flat, passages=[passage]), "passages", True),
        (dataclasses.replace(flat, passages=[opened]), "passages", False),
    ):
        ids = Page(render(given)).ids
        assert (ids.index(section) < ids.index("results")) == leads
        ids = Page(render(dataclasses.replace(given, own=True))).ids
        assert ids.index(section) < ids.index("results")


@pytest.mark.parametrize("letters", [False, True])
def test_page_of_language_models(letters):
    text = render(language_report(letters=letters))
    page = Page(text)
    assert {"tables", "training", "depth", "passages", "frequency", "position", "early"} <= set(page.ids)
    assert {row[0] for row in page.rows} >= {*language_sample.NAMES, PENALISED}
    assert page.text.count("Measured on the first 9 200 of 82 429 words") == 5
    assert "by training time" in page.text
    assert TEXT[0] in page.text


def test_tables_need_no_matplotlib():
    hidden = "import sys; sys.modules['matplotlib'] = sys.modules['jinja2'] = None; "
    code = hidden + "from eirehn.report.page import *; print('whole'); render(Report('t', '', {}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "whole\n"
    said = "ModuleNotFoundError: jinja2 is not installed: pip install 'eirehn[report]'"
    assert done.stderr.splitlines()[-1] == said


def test_file_is_written_whole_and_the_same_each_time(tmp_path):
    path = tmp_path / "new folder" / "report.html"
    assert write_report(path, bare_report()) == path
    assert path.read_text("utf-8") == render(bare_report())
    assert os.listdir(path.parent) == ["report.html"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
