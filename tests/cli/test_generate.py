"""`eirehn generate`."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from helpers.command import refused, started

from eirehn.cli import main


def test_text_by_command(language_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"generate {language_run} --tokens 30 --temperature 0.8 --prompt"
    words = [*line.split(), "w1 zebra w2 zebra"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert "<unk>" in err
    assert err.count("'zebra'") == 1
    assert out.split()[:4] == ["w1", "<unk>", "w2", "<unk>"]
    assert "\x1b" not in out
    assert main(words) == 0
    assert capsys.readouterr().out == out
    assert main([*words, "--show-depth"]) == 0
    with_depth = capsys.readouterr().out
    assert with_depth.split()[0] == "w1₂"
    assert with_depth.translate(str.maketrans("", "", "₂¶")).split() == out.split()
    for wrong in ("temperature -1", "seed -1", f"seed {2**63}", "tokens 0", "top-p 0"):
        name = wrong.split()[0].replace("-", "_")
        assert f"eirehn: {name} must be" in refused(f"{line} w1 --{wrong}", capsys)


@pytest.mark.slow
def test_writing_that_is_stopped_is_not_saved(language_run: Path, tmp_path: Path) -> None:
    """Only of what is saved it is said that it goes on."""
    process = started(f"generate {language_run} --tokens 100000000", tmp_path)
    assert process.stdout is not None
    process.stdout.read(200)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, "eirehn: stopped\n")
