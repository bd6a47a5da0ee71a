"""Where results come from: the command, the code, the machine and the versions."""

from __future__ import annotations

import os
import platform
import re
import shlex
import subprocess
import sys
from contextlib import suppress
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


def command() -> str | None:
    """The `eirehn` command that this process carries out; None where other code trains."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.stem == "__main__" else program.stem
    return without_password(shlex.join(["eirehn", *sys.argv[1:]])) if name == "eirehn" else None


def without_password(text: str) -> str:
    """A text in which the passwords of URLs are hidden: commands are kept with their runs."""
    return re.sub(r"(?<=://)([^:/@\s]*):[^/\s]*@", r"\1:***@", text)


def machine() -> str:
    info = Path("/proc/cpuinfo")  # Linux only
    found = re.search(r"^model name\s*:(.*)$", info.read_text() if info.exists() else "", re.MULTILINE)
    name = found[1].strip() if found else platform.processor() or platform.machine()
    gpu = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{cores()} cores of {name}{gpu}"


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _commit() -> str | None:
    """The commit of the checkout that this code runs from, with a mark if files have changed since."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        asked = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True)
        return asked.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)  # not a repository that merely contains the environment
        commit = git("rev-parse", "HEAD")
        return f"{commit} with changes" if git("status", "--porcelain", "--", str(here.parent)) else commit
    except (OSError, subprocess.CalledProcessError):
        return None
