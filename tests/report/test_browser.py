import pytest
from helpers.browser import Browser, find_browser
from helpers.classified_sample import classified_report
from helpers.language_sample import language_report
from helpers.page import OVERLAPPING
from helpers.quick import quick
from helpers.sample import full_report

from eirehn.report.page import render

REPORTS = {
    "full": full_report,
    "language": language_report,
    "classified": classified_report,
    "letters": lambda: language_report(letters=True),
    "unvalidated": lambda: classified_report(validated=False),
}
HIDDEN = "[...document.querySelectorAll('svg.plot')].filter(p => p.getBoundingClientRect().height < 60).length"
WIDTH = "document.documentElement.scrollWidth"
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
  return Math.min(21, ...[...document.querySelectorAll('.passage span')].map(span => {
    const style = getComputedStyle(span);
    const pair = [light(style.color), light(style.backgroundColor)].sort((a, b) => b - a);
    return (pair[0] + 0.05) / (pair[1] + 0.05);
  }));
})()
"""


@pytest.fixture(scope="module")
def browser():
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium or Chrome on this machine")
    with Browser(program) as started:
        yield started


@pytest.fixture(scope="module", params=quick("full", "language", of=list(REPORTS)))
def page_file(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(REPORTS[request.param]()), "utf-8")
    return path


@pytest.mark.parametrize("dark", quick(False, of=[False, True]))
@pytest.mark.parametrize("width", quick(390, 1280, of=[390, 820, 1280]))
def test_browser_shows_the_page_without_complaint(browser, page_file, width, dark):
    browser.open(page_file, width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == [page_file.resolve().as_uri()]
    assert browser.evaluate(WIDTH) <= width
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate(HIDDEN) == 0
    assert browser.evaluate(CONTRAST) >= 4.5


def test_schemes_differ_and_texts_do_not_overlap(browser, page_file):
    ground = "getComputedStyle(document.body).backgroundColor"
    browser.open(page_file, 1280, dark=True)
    dark = browser.evaluate(ground)
    browser.open(page_file, 1280)
    assert browser.evaluate(ground) != dark
    assert browser.evaluate(OVERLAPPING) == []
    assert browser.print_width(page_file, 718) <= 718  # A4 with Chromium's margins


def test_browser_test_sees_faults(browser, tmp_path):
    path = tmp_path / "broken.html"
    faults = "<script>console.error('broken'); throw new Error('thrown')</script>"
    path.write_text(f'{faults}<div style="width: 700px">wide</div><img src="missing.png" alt="">', "utf-8")
    browser.open(path, 390)
    complaints = " ".join(browser.complaints())
    assert all(fault in complaints for fault in ("broken", "Uncaught", "ERR_FILE_NOT_FOUND"))
    assert browser.evaluate(WIDTH) >= 700
    assert len(browser.requests()) == 2
