import math
import os
import re
import stat

import pytest
from helpers.page import OVERLAPPING, Page
from helpers.quick import quick
from helpers.sample import bare_report, curves, full_report, results

from eirehn.files import RunError
from eirehn.report.content import Curve, DepthHistogram, EarlyCurve, Example, Report, Saving, TrueDepth
from eirehn.report.html import render, write_report

SECTIONS = {
    "curves": "training",
    "histograms": "depth",
    "examples": "examples",
    "savings": "savings",
    "early": "early",
    "true_depth": "true-depth",
}


@pytest.fixture(scope="module")
def full():
    return render(full_report())


@pytest.fixture(scope="module")
def page_file(full, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(full, "utf-8")
    return path


def test_table_has_ours_the_paper_s_and_the_floor():
    stored = results()
    row = next(row for row in stored["rows"] if (row["model"], row["hidden"]) == ("EIREHN", 20))
    row.update(values=[0.00050, 0.00052], mean=0.00051, std=0.00001, final_mean=0.00056)
    page = Page(render(bare_report(results=stored)))
    assert page.row("model")[1:6] == ["ours", "paper", "ours − paper", "over the floor", "last epoch"]
    assert page.row("EI-REHN-20")[1:7] == [
        "0.510 ± 0.010",
        "0.47",
        "+0.040 (+9 %), worse",
        "+0.083",
        "0.560",
        "2 862",
    ]
    assert page.row("ACT-20")[2:4] == ["–", "–"]
    assert "better" in page.row("RNN-20")[3]


def test_best_of_ours_and_of_the_paper_s_is_bold():
    text = render(bare_report())
    bold = re.findall(r"<strong>(.*?)</strong>", text)
    assert len(bold) == 2
    assert bold[1] == "0.47"


def test_rows_of_a_model_stand_together():
    stored = results()
    stored["rows"] = stored["rows"][::2] + stored["rows"][1::2]
    page = Page(render(bare_report(results=stored)))
    models = [row[0].rsplit("-", 1)[0] for row in page.rows[1:]]
    assert len([m for m, before in zip(models, [None, *models], strict=False) if m != before]) == len(set(models))


def test_diverged_seed_is_named_and_never_the_best():
    stored = results()
    row = stored["rows"][0]
    row.update(values=[1e-6, math.nan, 3e-6], mean=2e-6, std=1e-6)
    text = render(bare_report(results=stored))
    page = Page(text)
    assert "3, 1 diverged" in page.row("RNN-20")
    assert "<strong>0.002" not in text
    row.update(mean=None, std=None)
    page = Page(render(bare_report(results=stored)))
    assert page.row("RNN-20")[1] == "divergedthe others 0.002 ± 0.001"
    assert page.row("RNN-20")[3] == "–"
    row.update(values=[None, math.inf], mean=math.nan)
    page = Page(render(bare_report(results=stored)))
    assert page.row("RNN-20")[1] == "diverged"
    assert "nan" not in page.text
    assert "inf" not in page.text.replace("information", "")


def test_all_text_is_escaped():
    evil = '<script>alert("x")</script> & $\\frac{$ \'"'
    stored = results()
    for key in ("command", "commit", "machine", "experiment"):
        stored[key] = evil
    stored["versions"] = {evil: evil}
    stored["rows"][0].update(model=evil, recipe=evil, weight_update=evil)
    report = Report(
        title=evil,
        summary=evil,
        results=stored,
        notice=evil,
        metric_name=evil,
        metric_unit=evil,
        figure1=False,
        curves=[Curve(evil, [1, 2], [[1e-3, 1e-3]], [[2e-3, 1e-3]], [[1, 2]])],
        histograms=[DepthHistogram(evil, [0, 3])],
        examples=[Example([[0.0, 1.0]], [1], [2], [0.1])],
        savings=[Saving(evil, "fixed", None, 1, 1, 1e-3), Saving(evil, "elastic", 1e-3, 2, 1, 2e-3)],
        early=[EarlyCurve(evil, [1, 2], [1e-3, 2e-3])],
        true_depth=[TrueDepth(evil, [1, 2], [1, 2], [0, 0], [30, 3])],
    )
    text = render(report)
    page = Page(text)
    assert "<script" not in text
    assert page.text.count(evil) > 20
    assert all("script" not in tag for tag, _, _ in page.attributes)


@pytest.mark.slow
@pytest.mark.parametrize("name", SECTIONS)
def test_each_section_stands_alone(name):
    full = full_report()
    page = Page(render(bare_report(**{name: getattr(full, name)})))
    assert {"results", SECTIONS[name], "repeat"} <= set(page.ids)
    others = set(SECTIONS.values()) - {SECTIONS[name]}
    assert not others & set(page.ids)


def test_page_without_any_section():
    page = Page(render(Report("Title", "", {}, figure1=False)))
    assert "Title" in page.text
    assert page.ids == []


@pytest.mark.slow
def test_notice_and_how_to_repeat(full):
    page = Page(full)
    assert "not comparable with the paper" in page.text
    for fact in (results()["command"], results()["commit"], results()["machine"], "torch 2.13.0", "0.056"):
        assert fact in page.text


def test_quick_run_says_so_unasked():
    assert 'class="notice"' not in render(bare_report())
    assert "Quick run" in Page(render(bare_report(results={**results(), "quick": True}))).text


def test_savings_are_joined_within_a_family():
    labels = ["RHN-20, depth 1", "RHN-20 depth 2", "RHN-10, depth 1", "EI-REHN-20", "EI-REHN-20 (price 1e-3)"]
    labels += ["EI-REHN-20, 2 layers", "EI-REHN-20, 2 layers, price 1e-3"]
    text = render(bare_report(savings=[Saving(label, "fixed", None, 1, 1, 1e-3) for label in labels]))
    page = Page(text)
    for name in ("RHN-20", "RHN-10", "EI-REHN-20", "EI-REHN-20, 2 layers"):
        assert page.text.count(f"{name}, fixed depth") == 1


def test_values_are_scaled_and_higher_may_be_better():
    stored = results()
    stored["bayes_floor"] = None
    for row in stored["rows"]:
        row.update(mean=0.90 + row["hidden"] / 1000, std=0.005, values=[0.9, 0.91], paper=0.915, final_mean=None)
    shown = {"scale": 100.0, "metric_name": "accuracy", "metric_unit": "%", "lower_is_better": False}
    page = Page(render(bare_report(results=stored, curves=curves()[:2], **shown)))
    assert page.row("model")[1:5] == ["ours", "paper", "ours − paper", "parameters"]
    assert page.row("RNN-40")[1:4] == ["94.00 ± 0.50", "91.50", "+2.50, better"]  # points, not percent of percent
    assert "floor" not in page.text


def test_page_needs_nothing_else(full):
    page = Page(full)
    assert "http" not in full
    assert "@import" not in full
    links = [
        (tag, value) for tag, name, value in page.attributes if name in ("src", "href", "xlink:href", "srcset")
    ]
    assert [value for _, value in links if not value.startswith("#")] == ["data:,"]
    assert not {tag for tag, _, _ in page.attributes} & {"script", "iframe", "img", "object", "embed"}


def test_ids_are_unique_and_every_reference_is_met(full):
    page = Page(full)
    assert len(page.ids) == len(set(page.ids))
    asked = {value[1:] for _, name, value in page.attributes if name == "href" and value.startswith("#")}
    asked |= set(re.findall(r"url\(#([^)]*)\)", full))
    assert len(asked) > 100
    assert asked <= set(page.ids)


def test_every_figure_says_in_words_what_it_shows(full):
    page = Page(full)
    plots = [name for name, value in ((t, v) for t, n, v in page.attributes if n == "class") if value == "plot"]
    labels = [value for tag, name, value in page.attributes if tag == "svg" and name == "aria-label"]
    assert len(labels) == len(plots) > 20
    assert all(len(label) > 30 and "nan" not in label for label in labels)
    assert full.count("<figure") == full.count("<figcaption")


@pytest.mark.slow
def test_same_report_same_page(full):
    assert render(full_report()) == full


def test_page_is_small(full):
    assert len(full.encode()) < 1_000_000


def test_curves_of_all_kinds():
    nan = math.nan
    odd = [
        Curve("one epoch", [1], [[1e-3]], [[1e-3]]),
        Curve("all diverged", [1, 2], [[nan, nan]], [[nan, None]], [[nan, nan]]),
        Curve("not positive", [1, 2], [[0.0, -1.0]], [[0.0, 0.0]]),
        Curve("long", range(1, 2001), [[1 / e for e in range(1, 2001)]], [[1 / e for e in range(1, 2001)]]),
    ]
    text = render(bare_report(results={}, curves=odd))
    assert "1 of 1 seeds diverged" in Page(text).text
    assert len(text) < 100_000
    Page(render(bare_report(results={}, curves=odd[1:2])))


def test_long_examples_and_single_points():
    report = bare_report(
        results={},
        examples=[Example([[0.1, 0.2]] * 128, [3] * 128), Example([[0.0, 0.0]], [0], [0], [math.nan])],
        savings=[Saving("diverged", "fixed", None, 0, 0, math.nan)],
        early=[EarlyCurve("one", [1], [math.nan], [math.nan])],
        true_depth=[TrueDepth("one", [1], [math.nan], [math.nan], [0])],
        histograms=[DepthHistogram("deep", [0] * 40 + [7])],
    )
    page = Page(render(report))
    assert "nan" not in page.text
    assert page.row("diverged")[-1] == "diverged"


def test_letters_that_matplotlib_s_font_lacks():
    stored = results()
    stored["rows"][0]["model"] = "模型"
    assert "模型-20" in Page(render(bare_report(results=stored))).text


def test_file_is_written_whole(tmp_path):
    path = tmp_path / "new folder" / "report.html"
    assert write_report(path, bare_report()) == path
    first = path.read_text("utf-8")
    assert first == render(bare_report())
    assert os.listdir(path.parent) == ["report.html"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failed_write_leaves_the_old_page_and_nothing_else(tmp_path, monkeypatch, step):
    path = tmp_path / "report.html"
    path.write_text("old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(RunError, match=r"cannot write .*report.html: disk full"):
        write_report(path, bare_report())
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["report.html"]


def test_sync_comes_before_the_rename(tmp_path, monkeypatch):
    steps = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, name=name, real=real: (steps.append(name), real(*a))[1])
    write_report(str(tmp_path / "report.html"), bare_report())
    assert steps == ["fsync", "replace", "fsync"]  # the page, its place, and the folder that says so


@pytest.mark.parametrize("dark", quick(False, of=[False, True]))
@pytest.mark.parametrize("width", quick(390, 1280, of=[390, 820, 1280]))
def test_browser_shows_the_page_without_complaint(browser, page_file, width, dark):
    browser.open(page_file, width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == [page_file.resolve().as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("innerWidth") == width
    hidden = "[...document.querySelectorAll('svg.plot')].filter(p => p.getBoundingClientRect().height < 60).length"
    assert browser.evaluate(hidden) == 0


def test_texts_of_a_figure_do_not_lie_on_each_other(browser, page_file):
    browser.open(page_file, 1280)
    assert browser.evaluate(OVERLAPPING) == []


def test_dark_scheme_and_print(browser, page_file):
    ground = "getComputedStyle(document.body).backgroundColor"
    browser.open(page_file, 1280)
    light = browser.evaluate(ground)
    browser.open(page_file, 1280, dark=True)
    assert browser.evaluate(ground) != light
    assert browser.print_width(page_file, 718) <= 718  # A4 with Chromium's margins


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("<script>console.error('broken')</script>", "broken"),
        ("<script>throw new Error('thrown')</script>", "Uncaught"),
        ("<script>undefined_name()</script>", "Uncaught"),
        ('<img src="missing.png" alt="">', "ERR_FILE_NOT_FOUND"),
    ],
)
def test_browser_test_sees_faults(browser, full, tmp_path, fault, complaint):
    path = tmp_path / "broken.html"
    path.write_text(full.replace("</body>", f"{fault}</body>"), "utf-8")
    browser.open(path, 390)
    assert complaint in " ".join(browser.complaints())


def test_browser_test_sees_overflow_and_requests(browser, full, tmp_path):
    path = tmp_path / "wide.html"
    wide = '<div style="width: 700px">wide</div><img src="http://127.0.0.1:9/x.png" alt="">'
    path.write_text(full.replace("</body>", f"{wide}</body>"), "utf-8")
    browser.open(path, 390)
    assert browser.evaluate("document.documentElement.scrollWidth") >= 700
    assert "http://127.0.0.1:9/x.png" in browser.requests()
