"""Commands, in this process and as a person starts them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eirehn.cli import main

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def done(line: str) -> None:
    """Runs a command that ends well."""
    assert main(line.split()) == 0


def refused(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says that cannot be meant: one line, nothing else, and exit code 2."""
    capsys.readouterr()
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err[:8]) == ("", 1, "eirehn: "), err
    return err


def command(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, in this folder."""
    words = [sys.executable, "-W", "error::DeprecationWarning:eirehn", "-m", "eirehn", *line.split()]
    return subprocess.run(words, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)


def started(line: str, folder: Path) -> subprocess.Popen[str]:
    """The same, under way."""
    return subprocess.Popen(
        [sys.executable, "-m", "eirehn", *line.split()],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_ctrl_c,
    )


def hear_ctrl_c() -> None:
    """Where tests run in the background, Ctrl-C is ignored, and that would be inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
