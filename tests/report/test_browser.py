"""The page in headless Chromium, over the DevTools protocol: its complaints, its requests, its width."""

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

import pytest
from helpers.classified_sample import classified_report
from helpers.language_sample import language_report
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
# The texts of a figure that lie on each other.
OVERLAPPING = """
[...document.querySelectorAll('svg.plot')].flatMap(plot => {
  const texts = [...plot.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  return texts.flatMap(([a, p], i) => texts.slice(i + 1).filter(([, q]) =>
    p.left + 1 < q.right && q.left + 1 < p.right && p.top + 1 < q.bottom && q.top + 1 < p.bottom
  ).map(([b]) => a + ' on ' + b));
})
"""
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


TIMEOUT = 60.0
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
# Chromium reads commands from descriptor 3 and answers on 4.
START = """
import os, sys
commands, answers, *program = sys.argv[1:]
os.dup2(int(commands), 3)
os.dup2(int(answers), 4)
os.execv(program[0], program)
"""


class Browser:
    def __init__(self, program):
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._write = os.pipe()
        self._read, answers = os.pipe()
        # The pair that Chromium gets must not lie on 3 and 4 itself, where one dup2 would overwrite the other.
        pair = [os.dup(descriptor) for descriptor in (commands, answers)]
        arguments = [program, *FLAGS, f"--user-data-dir={self._folder.name}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", START, *map(str, pair), *arguments],
            pass_fds=pair,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for descriptor in (commands, answers, *pair):
            os.close(descriptor)
        self._buffer, self._number, self._session, self.events = b"", 0, {}, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {
            "sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        }
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def call(self, method, **parameters):
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, path, width, *, dark=False, media=""):
        """Shows a file in a window of this many CSS pixels and waits until it is loaded."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme], media=media)
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))")

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        return result["result"].get("value")

    def complaints(self):
        """Errors and warnings of the console, exceptions, and what the browser itself logged."""
        found = []
        for event in self.events:
            method, given = event["method"], event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(given["exceptionDetails"].get("text")))
            elif method == "Runtime.consoleAPICalled" and given["type"] in ("error", "warning", "assert"):
                found.append(" ".join(str(part.get("value")) for part in given["args"]))
            elif method == "Log.entryAdded" and given["entry"]["level"] in ("error", "warning"):
                found.append(given["entry"]["text"])
        return found

    def requests(self):
        asked = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith("data:")]

    def _next(self):
        until = time.monotonic() + TIMEOUT
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser did not answer")
            part = os.read(self._read, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)


@pytest.fixture(scope="module")
def browser():
    program = next(filter(None, map(shutil.which, NAMES)), None)
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
    # The reader's font may be wider than that of this machine.
    browser.evaluate(
        "document.head.insertAdjacentHTML('beforeend', '<style>.plot text {letter-spacing: .12em}</style>')"
    )
    assert browser.evaluate(OVERLAPPING) == []
    browser.open(page_file, 718, media="print")  # A4 with Chromium's margins
    assert browser.evaluate(WIDTH) <= 718


def test_browser_test_sees_faults(browser, tmp_path):
    path = tmp_path / "broken.html"
    faults = "<script>console.error('broken'); throw new Error('thrown')</script>"
    path.write_text(f'{faults}<div style="width: 700px">wide</div><img src="missing.png" alt="">', "utf-8")
    browser.open(path, 390)
    complaints = " ".join(browser.complaints())
    assert all(fault in complaints for fault in ("broken", "Uncaught", "ERR_FILE_NOT_FOUND"))
    assert browser.evaluate(WIDTH) >= 700
    assert len(browser.requests()) == 2
