"""Compiling and launching kernels: the GPU, CUDA's runtime compiler and a few calls of its driver.

The compiler (NVRTC) comes with GPU builds of torch, the driver with the GPU. Both are called by way of ctypes.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

# The driver's numbers of a kernel's attribute, MAX_DYNAMIC_SHARED_SIZE_BYTES, and of a device's,
# MAX_SHARED_MEMORY_PER_BLOCK_OPTIN.
_MAX_DYNAMIC_SHARED = 8
_MAX_SHARED = 97


class CompileError(RuntimeError):
    """The compiler's log is the message."""


class DriverError(RuntimeError):
    """A call that the driver refused, and why."""


@lru_cache
def compiler() -> ctypes.CDLL | None:
    """CUDA's runtime compiler; None if it is not installed."""
    for path in _candidates():
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = c_char_p
        return library
    return None


def _candidates() -> list[Path | str]:
    """Torch's own directories, those of the packages it depends on, then the loader's."""
    beside = [Path(torch.__file__).parent / "lib"]
    beside += [folder for entry in sys.path for folder in sorted(Path(entry or ".").glob("nvidia/*/lib"))]
    found: list[Path | str] = [path for folder in beside for path in sorted(folder.glob("libnvrtc.so*"))]
    if torch.version.cuda is not None:
        found.append(f"libnvrtc.so.{torch.version.cuda.split('.')[0]}")
    return found


@lru_cache
def driver() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def compiled(source: str, architecture: str) -> bytes:
    """Machine code for `architecture`, such as "sm_90"."""
    nvrtc = compiler()
    if nvrtc is None:
        raise CompileError("CUDA's runtime compiler was not found")
    program = c_void_p()
    _compiler_call(nvrtc, nvrtc.nvrtcCreateProgram(byref(program), source.encode(), b"eirehn.cu", 0, None, None))
    try:
        options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
        code = nvrtc.nvrtcCompileProgram(program, len(options), (c_char_p * len(options))(*options))
        if code != 0:
            raise CompileError(_log(nvrtc, program))
        size = c_size_t()
        _compiler_call(nvrtc, nvrtc.nvrtcGetCUBINSize(program, byref(size)))
        image = ctypes.create_string_buffer(size.value)
        _compiler_call(nvrtc, nvrtc.nvrtcGetCUBIN(program, image))
        return image.raw
    finally:
        nvrtc.nvrtcDestroyProgram(byref(program))


def _log(nvrtc: ctypes.CDLL, program: c_void_p) -> str:
    size = c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, text)
    return text.value.decode(errors="replace")


def _compiler_call(nvrtc: ctypes.CDLL, code: int) -> None:
    if code != 0:
        raise CompileError(nvrtc.nvrtcGetErrorString(code).decode())


class Kernel:
    """A function of compiled code on the current device, all of whose blocks run at the same time."""

    def __init__(self, image: bytes, name: str, threads: int, memory: int) -> None:
        """memory: bytes of dynamic shared memory of a block."""
        self.threads, self.memory = threads, memory
        self._device = torch.cuda.current_device()
        self._module, self._function = c_void_p(), c_void_p()
        _enter_context()
        _call("cuModuleLoadData", byref(self._module), image)
        _call("cuModuleGetFunction", byref(self._function), self._module, name.encode())
        _call("cuFuncSetAttribute", self._function, c_int(_MAX_DYNAMIC_SHARED), c_int(memory))

    def __call__(self, blocks: int, arguments: ctypes.Structure) -> None:
        """On torch's current stream of the device."""
        parameters = (c_void_p * 1)(ctypes.addressof(arguments))
        shape = [c_uint(number) for number in (blocks, 1, 1, self.threads, 1, 1, self.memory)]
        with torch.cuda.device(self._device):
            _enter_context()
            stream = c_void_p(torch.cuda.current_stream().cuda_stream)
            _call("cuLaunchCooperativeKernel", self._function, *shape, stream, parameters)


def shared_memory(device: int) -> int:
    """Bytes a block may have at most."""
    handle, value = c_int(), c_int()
    _call("cuDeviceGet", byref(handle), c_int(device))
    _call("cuDeviceGetAttribute", byref(value), c_int(_MAX_SHARED), handle)
    return value.value


def _enter_context() -> None:
    """Torch's context of the device, in a thread that has made no call of its own yet."""
    context = c_void_p()
    _call("cuCtxGetCurrent", byref(context))
    if context.value is None:
        _call("cuDevicePrimaryCtxRetain", byref(context), c_int(torch.cuda.current_device()))
        _call("cuCtxSetCurrent", context)


def _call(name: str, *arguments: object) -> None:
    library = driver()
    if library is None:
        raise DriverError("the driver's library libcuda.so.1 was not found")
    code = getattr(library, name)(*arguments)
    if code != 0:
        text = c_char_p()
        library.cuGetErrorString(c_int(code), byref(text))
        raise DriverError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")


@dataclass(frozen=True)
class Chip:
    """A CUDA device. Tests replace it by one that runs on a CPU."""

    index: int
    processors: int  # blocks that run at once
    memory: int  # bytes of shared memory each may have
    architecture: str
    threads: int = 512  # of a block

    @property
    def hardware(self) -> str:
        """The source code that pieces.cu is built on."""
        return text("hardware")

    def build(self, source: str, name: str, memory: int) -> Kernel:
        image = compiled(source, self.architecture)
        with torch.cuda.device(self.index):
            return Kernel(image, name, self.threads, memory)


@lru_cache
def chip(index: int) -> Chip | None:
    """The GPU; None for devices before Hopper, and without CUDA's compiler."""
    properties = torch.cuda.get_device_properties(index)
    if properties.major < 9 or driver() is None or compiler() is None:
        return None
    return Chip(
        index,
        properties.multi_processor_count,
        shared_memory(index),
        f"sm_{properties.major}{properties.minor}",
    )


# By the type of a tensor's device, with its index.
MACHINES: dict[str, Callable[[int], Chip | None]] = {"cuda": chip}


def machine_of(device: torch.device) -> Chip | None:
    find = MACHINES.get(device.type)
    return None if find is None else find(device.index or 0)


def text(name: str) -> str:
    return (Path(__file__).parent / f"{name}.cu").read_text(encoding="utf-8")
