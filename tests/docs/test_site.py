"""The documentation site builds without a warning; every link within it and in the READMEs leads somewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = ("mkdocs", "material", "mkdocstrings_handlers", "mkdocs_jupyter")
MISSING = [name for name in PLUGINS if importlib.util.find_spec(name) is None]
LINKED = {"a": "href", "img": "src", "link": "href", "script": "src"}
MARKDOWN_LINK = re.compile(r"\]\(([^()\s]+)\)")
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


class Page(HTMLParser):
    """The targets of a page's links and images, and the anchors that a link can lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {"", "top"}
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        given = {name: value for name, value in attrs if value is not None}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if target := given.get(LINKED.get(tag, "")):
            self.links.append(target)


def broken(site: Path) -> list[str]:
    """The links of all pages of a built site that lead nowhere."""
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            folder = site if parts.path.startswith("/") else path.parent
            target = (folder / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            anchors = pages[target].anchors if target in pages else {""}
            if not target.is_file() or unquote(parts.fragment) not in anchors:
                found.append(f"{path.relative_to(site)}: {link}")
    return found


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (the docs extra)")
def test_the_site_builds_strictly_and_its_links_lead_somewhere(tmp_path):
    site = tmp_path.resolve() / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert (site / "deploying" / "index.html").is_file()
    assert broken(site) == []


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "guide").mkdir()
    (tmp_path / "guide" / "index.html").write_text('<h2 id="here">Here</h2><img src="../missing.png">')
    links = ["guide/", "guide/#here", "guide/#there", "/guide/", "missing/", "https://example.org/", "#top"]
    (tmp_path / "index.html").write_text("".join(f'<a href="{link}">.</a>' for link in links))
    assert broken(tmp_path) == [
        "guide/index.html: ../missing.png",
        "index.html: guide/#there",
        "index.html: missing/",
    ]


@pytest.mark.parametrize("name", ["README.md", "benchmarks/README.md"])
def test_files_that_a_readme_links_to_exist(name):
    page = ROOT / name
    links = MARKDOWN_LINK.findall(FENCED.sub("", page.read_text("utf-8")))
    assert links
    relative = [urlsplit(link).path for link in links if not urlsplit(link).scheme]
    assert [path for path in relative if path and not (page.parent / unquote(path)).exists()] == []
