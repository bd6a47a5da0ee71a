"""The last section: how to come to the same figures."""

from __future__ import annotations

from collections.abc import Mapping

from ..content import Report
from ..elements import escape
from ..palette import Palette


def repeat(report: Report, palette: Palette) -> str:
    results = report.results
    parts = []
    if results.get("command"):
        parts.append(f'<pre tabindex="0"><code>{escape(results["command"])}</code></pre>')
    facts: list[tuple[str, str]] = []
    for name in ("experiment", "commit", "machine"):
        if results.get(name):
            facts.append((name, _plain(results[name])))
    versions = results.get("versions")
    if isinstance(versions, Mapping):
        facts.append(("versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    elif versions:
        facts.append(("versions", _plain(versions)))
    if results.get("noise_std") is not None:
        facts.append(("noise", f"standard deviation {results['noise_std']:g}"))
    if results.get("quick"):
        facts.append(("kind", "quick run, not comparable with the paper"))
    parts.append(
        '<dl class="facts">' + "".join(f"<dt>{escape(n)}</dt><dd>{escape(t)}</dd>" for n, t in facts) + "</dl>"
    )
    return "".join(parts)


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return str(value)
