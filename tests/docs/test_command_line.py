"""The page of the command line says what the command says."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest

from eirehn.cli import COMMANDS, main
from eirehn.ops.dispatch import BACKENDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api" / "command-line.md").read_text("utf-8")
SHOWN = dict(re.findall(r"^```console\n\$ eirehn ([^\n]*)\n(.*?)^```$", PAGE, re.M | re.S))


def test_every_command_has_a_section() -> None:
    assert set(re.findall(r"^## ([a-z]+)$", PAGE, re.M)) == set(COMMANDS)
    assert {line.split()[0] for line in SHOWN} == {"--help", *COMMANDS}


@pytest.mark.parametrize("line", SHOWN)
def test_help_is_what_the_command_prints(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with suppress(SystemExit):
        main(line.split())
    assert SHOWN[line].split() == capsys.readouterr().out.split()  # versions of Python break lines elsewhere


def test_every_environment_variable_is_listed() -> None:
    sources = (path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    assert {name for text in sources for name in re.findall(r"EIREHN_[A-Z_]+\b", text)} == set(
        re.findall(r"^\| `(EIREHN_[A-Z_]+)`", PAGE, re.M)
    )
    assert all(f"`{backend}`" in PAGE for backend in BACKENDS)
