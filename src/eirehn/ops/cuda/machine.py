"""What a kernel is built for and runs on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import torch

from . import nvrtc

Kernel = Callable[[int, ctypes.Structure], None]  # of the number of blocks and the argument


class Machine(Protocol):
    """processors: blocks that run at once; memory: bytes of shared memory each may have; threads: of a block."""

    @property
    def processors(self) -> int: ...
    @property
    def memory(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def hardware(self) -> str:
        """The source of what pieces.cu is built on."""

    def build(self, source: str, name: str, memory: int) -> Kernel: ...
    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class Chip:
    """A CUDA device."""

    index: int
    processors: int
    memory: int
    architecture: str
    threads: int = 512

    @property
    def hardware(self) -> str:
        return text("hardware")

    def build(self, source: str, name: str, memory: int) -> Kernel:
        image = nvrtc.compiled(source, self.architecture)
        with torch.cuda.device(self.index):
            return nvrtc.Kernel(image, name, self.threads, memory)


@lru_cache
def chip(index: int) -> Chip | None:
    """None for devices before Hopper, and without CUDA's compiler."""
    properties = torch.cuda.get_device_properties(index)
    if properties.major < 9 or not nvrtc.available():
        return None
    return Chip(
        index,
        properties.multi_processor_count,
        nvrtc.shared_memory(index),
        f"sm_{properties.major}{properties.minor}",
    )


# By the type of a tensor's device, with its index.
MACHINES: dict[str, Callable[[int], Machine | None]] = {"cuda": chip}


def machine_of(device: torch.device) -> Machine | None:
    find = MACHINES.get(device.type)
    return None if find is None else find(device.index or 0)


def text(name: str) -> str:
    return (Path(__file__).parent / f"{name}.cu").read_text(encoding="utf-8")


def declared(constants: Mapping[str, int | bool]) -> str:
    """What a kernel is compiled for, as its source says it."""
    return "\n".join(
        f"constexpr {'bool' if isinstance(value, bool) else 'int'} {key} = {str(value).lower()};"
        for key, value in constants.items()
    )
