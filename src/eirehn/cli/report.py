"""`eirehn report`: an HTML report of trained runs."""

from __future__ import annotations

import sys
from pathlib import Path

from .._internal.extras import need
from .common import as_command, check_apart, check_can_be_written
from .parser import make_parser, parse


def report(given: list[str]) -> None:
    """Writes a report of trained runs as one self-contained HTML file."""
    parser = make_parser(report)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument(
        "--out", type=Path | None, help="HTML file to write; default report.html in the folder of the first run"
    )
    asked = parse(parser, given)
    out = asked.out or asked.runs[0] / "report.html"
    check_can_be_written("--out", asked.out)
    check_apart("--out", asked.out, *asked.runs)
    need("jinja2", "matplotlib")
    from ..experiments.reproduce import report_on

    def tell(line: str) -> None:
        print(f"eirehn: {line} …", file=sys.stderr)

    print(f"report: {report_on(asked.runs, out, command=as_command(['report', *given]), tell=tell)}")
