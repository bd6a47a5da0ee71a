"""Where results come from: the code, the machine and the versions."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("eirehn", "torch", "numpy", "numba", "pytorch-lightning", "triton")


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def provenance() -> dict[str, Any]:
    return {"commit": _commit(), "machine": machine(), "versions": versions()}


def machine() -> str:
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{cores()} cores of {name}{gpu}"


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str | None:
    """The commit of the checkout this code runs from, marked where files differ from it."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        asked = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True)
        return asked.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)  # not the repository an environment happens to lie in
        commit = git("rev-parse", "HEAD")
        return f"{commit} with changes" if git("status", "--porcelain", "--", str(here.parent)) else commit
    except (OSError, subprocess.CalledProcessError):
        return None
