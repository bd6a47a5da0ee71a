"""`eirehn warmup`; what it compiles is tested with the kernels."""

from __future__ import annotations

import pytest

from eirehn.cli import main
from eirehn.ops.cpu import ahead


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--dtype float16", "--dtype must be float32, float64 or float32,float64, got 'float16'"),
        ("--dtyp float32", "unrecognized arguments: --dtyp float32 (eirehn warmup --help)"),
    ],
)
def test_mistakes(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["warmup", *words.split()]) == 2
    assert capsys.readouterr().err == f"eirehn: {message}\n"


def test_each_type_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[str] = []
    monkeypatch.setattr(ahead, "warm_up", lambda dtype: asked.append(dtype) or "some folder")
    assert main(["warmup", "--dtype", "float64,float32,float64"]) == 0
    assert asked == ["float64", "float32"]
    assert capsys.readouterr().out.endswith("they are in some folder\n")
