"""The CUDA kernels on a CPU: compiled by g++ against an emulation of the chip, a thread for each of theirs."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from eirehn.ops.cuda.machine import Kernel

HERE = Path(__file__).parent / "emulation"
COMPILER = shutil.which("g++")


@dataclass(frozen=True)
class Emulated:
    folder: Path
    processors: int = 3
    memory: int = 1 << 18
    threads: int = 128

    @property
    def hardware(self) -> str:
        return (HERE / "hardware.h").read_text()

    def build(self, source: str, name: str, memory: int) -> Kernel:
        source += f"\n#define PASS {name}\n" + (HERE / "run.h").read_text()
        path = self.folder / hashlib.sha1(source.encode()).hexdigest()
        if not path.exists():
            path.with_suffix(".cpp").write_text(source)
            options = ["-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-pthread"]
            subprocess.run([str(COMPILER), *options, str(path.with_suffix(".cpp")), "-o", str(path)], check=True)
        library = ctypes.CDLL(str(path))
        return lambda blocks, arguments: library.run(ctypes.byref(arguments), blocks, memory)
