"""The CUDA kernels on a CPU: compiled by g++ against an emulation of the chip, a thread for each of theirs."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import torch

from eirehn.ops.cuda.machine import MACHINES, CompileError, Kernel

HERE = Path(__file__).parent / "emulation"
COMPILER = shutil.which("g++")


@dataclass(frozen=True)
class Emulated:
    folder: Path
    processors: int = 3
    memory: int = 1 << 18
    threads: int = 128
    options: tuple[str, ...] = ()
    launched: list[str] = field(default_factory=list, compare=False)

    @property
    def hardware(self) -> str:
        return (HERE / "hardware.h").read_text()

    def build(self, source: str, name: str, memory: int) -> Kernel:
        source += f"\n#define PASS {name}\n" + (HERE / "run.h").read_text()
        path = self.folder / hashlib.sha1(source.encode()).hexdigest()
        if not path.exists():
            path.with_suffix(".cpp").write_text(source)
            options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-pthread", *self.options]
            subprocess.run([str(COMPILER), *options, str(path.with_suffix(".cpp")), "-o", str(path)], check=True)
        library = ctypes.CDLL(str(path))

        def launch(blocks: int, arguments: ctypes.Structure) -> None:
            self.launched.append(name)
            library.run(ctypes.byref(arguments), blocks, memory)

        return launch


def sanitizer(name: str) -> str | None:
    """g++'s library for it."""
    if COMPILER is None:
        return None
    asked = [COMPILER, f"-print-file-name=lib{name}.so"]
    path = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    return str(path.resolve()) if path.is_absolute() else None


@dataclass(frozen=True)
class Refusing(Emulated):
    error: type[Exception] = CompileError

    def build(self, source: str, name: str, memory: int) -> Kernel:
        raise self.error("not today")


def run_sanitized(kind: str, processors: int, memory: int, folder: str) -> None:
    """Both passes, with 16 units a block: where units do not fill a tile, products also read sums that others
    write, and nobody takes what they make of them."""
    os.environ.pop("LD_PRELOAD")  # not for the compiler
    machine = Emulated(Path(folder), processors, memory, options=("-g", "-fsanitize=thread"))
    MACHINES["cpu"] = lambda index: machine
    from helpers.gpu_problems import PHASES, Case, found, make

    options = {"launch": PHASES, "cuda": True, "dtype": torch.bfloat16}
    case = Case(kind=kind, H=48, Z=30, sizes=(3, 3, 2), masked=True, kept=True, **options)
    found(case, make(case, "cpu"))
    assert machine.launched == ["forward_pass", "backward_pass"]
