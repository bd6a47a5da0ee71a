"""Python anew: for what happens at import, after a fork, or on another processor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

FEATURES = {"avx512f avx": 64, "avx": 32, "": 16}
"""Of processors, with the bytes of a register."""


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script, which can import `helpers`."""
    paths = [str(Path(__file__).parent.parent), *sys.path]
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
    )  # fmt: skip


def in_new_python(script: str, **environment: str) -> str:
    """What `script` prints."""
    found = run(script, **environment)
    assert found.returncode == 0, found.stderr
    return found.stdout


def as_another(features: str, script: str) -> str:
    """What another processor would be given, on this one."""
    first = f"""
        import llvmlite.binding as llvm
        from numba import njit
        njit(lambda: 0)()  # numba asks, too, and is to be told the truth
        llvm.get_host_cpu_features = lambda: dict.fromkeys({features.split()}, True)
    """
    return in_new_python(textwrap.dedent(first) + textwrap.dedent(script))


def killed(script: str, **environment: str) -> None:
    """Runs a script that ends itself by `kill -9`."""
    found = run(script, **environment)
    assert found.returncode == -signal.SIGKILL, found.stderr
