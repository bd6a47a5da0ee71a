"""What is said while kernels are compiled."""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eirehn.ops.cpu import compiling
from eirehn.ops.cpu.runtime import Kernel

LINE = compiling.TEXT + "\n"


def kernel_of(path: Path, stamp: str, name: str = "kernel") -> Kernel:
    spec = importlib.util.spec_from_file_location("kernel_in_a_file", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # numba looks for it there
    spec.loader.exec_module(module)
    kernel = Kernel(module.kernel, stamp)
    compiling.listen({kernel.call: name})
    return kernel


def test_only_a_compilation_is_announced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "_message", compiling._Message())
    path, x = tmp_path / "kernel_in_a_file.py", np.zeros(1)
    path.write_text("def kernel(x):\n    x[0] += 2.0\n")
    said = []
    for stamp in ("first", "first", "follows at once"):
        kernel_of(path, stamp)(x)
        said.append(capsys.readouterr().err)
    monkeypatch.setattr(compiling._message, "ended", -10.0)
    kernel_of(path, "later")(x)
    said.append(capsys.readouterr().err)
    monkeypatch.setattr(compiling._message, "ended", -10.0)
    monkeypatch.setenv("EIREHN_QUIET", "1")
    kernel_of(path, "quiet")(x)
    assert (*said, capsys.readouterr().err, x[0]) == (LINE, "", "", LINE, "", 10.0)


def test_on_a_terminal_the_line_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal: Any = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "__stderr__", terminal)
    with compiling._Message().shown():
        time.sleep(0.25)
    assert f"\r{compiling.TEXT} | 0 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_companion_compiles_for_the_backward_pass_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    class Process:
        def __init__(self, command: list[str], **options: Any) -> None:
            commands.append(command)

        def wait(self) -> None:
            time.sleep(0.2)

    monkeypatch.setattr(subprocess, "Popen", Process)
    monkeypatch.setattr(compiling, "_companions", {})
    path, x = tmp_path / "kernel_in_a_file.py", np.zeros(1)
    path.write_text("def kernel(x):\n    x[0] += 2.0\n")
    for follows, name in (
        (None, "forward"),
        ("float32", "one_sample"),
        ("float32", "pack"),
        ("float32", "forward"),
    ):
        monkeypatch.setattr(compiling, "backward_follows", follows)
        kernel_of(path, f"{follows} {name}", name)(x)
    assert commands == [[sys.executable, "-P", "-m", "eirehn.ops.cpu.ahead", "float32"]]
    compiling.wait_for_companion("float32")
    assert not compiling._companions["float32"].is_alive()
