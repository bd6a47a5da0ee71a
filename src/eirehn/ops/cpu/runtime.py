"""Memory, threads and compilation of the kernels, which happens at the first call.

The kernels release the GIL, so plain Python threads run them in parallel. numba's parallel loops are not used: its
OpenMP layer crashes after a fork, its own layer aborts when two Python threads call at once. Here a forked child
makes new threads, and any number of threads may call. Jobs and results go through `SimpleQueue`s, which take a few
microseconds, a tenth of the time of an executor's futures.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from . import compiling

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_ALIGNMENT = 64  # bytes: a register read across two cache lines costs two reads
_KEPT_BYTES = 1 << 23  # larger pieces go back to the system after the call
_KEPT = 8  # pieces of each size

poison = False
"""Tests set it, to find reads of what was never written."""
# Pieces by the logarithm of their size. Operations of a deque are atomic, without a lock that a fork could leave
# locked.
_kept: dict[int, deque[Bytes]] = {}


def empty(shape: Any, dtype: Any) -> Array:
    array = np.empty(shape, dtype)
    if poison:
        array.fill(np.nan if array.dtype.kind == "f" else -(2**40))
    return array


def take(size: int, dtype: np.dtype[Any]) -> tuple[Bytes, Array]:
    """`size` elements of scratch memory, and what to pass to `give` when done. Allocation takes longer than most
    calls."""
    needed = size * dtype.itemsize
    power = needed.bit_length()
    try:
        raw = _kept[power].pop()
    except LookupError:
        raw = _aligned(1 << power)
    view: Array = raw[:needed].view(dtype)
    if poison:
        view.fill(np.nan)
    return raw, view


def give(raw: Bytes) -> None:
    if raw.size <= _KEPT_BYTES:
        _kept.setdefault(raw.size.bit_length() - 1, deque(maxlen=_KEPT)).append(raw)


def _aligned(size: int) -> Bytes:
    raw = np.empty(size + _ALIGNMENT, np.uint8)
    skip = -raw.ctypes.data % _ALIGNMENT
    return raw[skip : skip + size]


Job = Callable[[], None]
Ends = SimpleQueue[BaseException | None]

_jobs: SimpleQueue[tuple[Job, Ends]] = SimpleQueue()
_threads = 0
_growing = threading.Lock()


def _forget() -> None:
    """Threads do not survive a fork: the child makes its own at its first call."""
    global _jobs, _threads, _growing
    _jobs, _threads, _growing = SimpleQueue(), 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _work(jobs: SimpleQueue[tuple[Job, Ends]]) -> None:
    while True:
        job, ends = jobs.get()
        try:
            job()
        except BaseException as error:  # it is raised again in the caller
            ends.put(error)
        else:
            ends.put(None)
        del job, ends  # or the memory of a job would stay until the next one


def _enough(threads: int) -> bool:
    """Makes the threads that are missing; False if no more can be made, as when the interpreter shuts down."""
    global _threads
    if _threads >= threads:
        return True
    with _growing:
        while _threads < threads:
            try:
                threading.Thread(target=_work, args=(_jobs,), name=f"eirehn-{_threads}", daemon=True).start()
            except RuntimeError:
                return False
            _threads += 1
    return True


def run_shared(job: Job, helping: list[Job], done: Callable[[], bool]) -> None:
    """Runs `job` here, the `helping` ones in other threads, and returns when the work they share is `done`.

    A thread that comes too late to help is not waited for: its job must find that there is nothing left to do.
    """
    if not helping or not _enough(len(helping)):
        job()
        return
    ends: Ends = SimpleQueue()
    for each in helping:
        _jobs.put((each, ends))
    job()
    while not done():
        error = ends.get()
        if error is not None:
            raise error


# The source files of the kernels.
_PARTS = ("backward", "compiler", "forward", "functions", "layout", "pack", "products", "simd", "stream")


def compile_for(dispatcher: Any, *args: Any) -> None:
    dispatcher.compile(tuple(dispatcher.typeof_pyval(each) for each in args))


class Kernel:
    """A numba function that is not in the way when its cache is: no writable folder, or no room on the disk."""

    def __init__(self, function: Callable[..., None], stamp: str) -> None:
        self.function = function
        self.call = self.dispatcher = self._cached(stamp)

    def __call__(self, *args: Any) -> None:
        try:
            self.call(*args)
        except OSError:  # from writing the cache: the kernels themselves open no file
            self.call = self._plain()
            self.call(*args)

    def compile(self, *args: Any) -> None:
        """Compiles it for these arguments, without running it."""
        with suppress(OSError):  # from writing the cache: a call does without
            compile_for(self.dispatcher, *args)

    def folder(self) -> Path | None:
        """Where it is stored, None if it cannot be."""
        path = getattr(getattr(self.dispatcher, "_cache", None), "cache_path", None)
        return None if path is None else Path(path)

    def _plain(self) -> Any:
        from numba import njit

        return njit(nogil=True)(self.function)

    def _cached(self, stamp: str) -> Any:
        from numba import njit

        try:
            dispatcher = njit(nogil=True, cache=True)(self.function)
        except (RuntimeError, OSError):  # "no locator available": neither here nor in the home folder
            return self._plain()
        # numba checks the file of the function alone; a kernel also depends on the files of the functions that it
        # calls.
        store: Any = getattr(dispatcher, "_cache", None)
        index_key = getattr(store, "_index_key", None)
        if index_key is not None:
            store._index_key = lambda *args: (*index_key(*args), stamp)
        return dispatcher


def _sources() -> str:
    from .simd import REGISTER_BYTES, REGISTERS

    digest = hashlib.sha256(f"{REGISTERS} registers of {REGISTER_BYTES}".encode())
    for name in _PARTS:
        digest.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    return digest.hexdigest()


@cache
def kernels() -> SimpleNamespace:
    """All kernels by their names."""
    from .backward import backward
    from .forward import forward
    from .pack import collect, constants, constants_back, pack
    from .stream import one_sample

    stamp = _sources()
    functions = (pack, forward, backward, one_sample, collect, constants, constants_back)
    found = {each.__name__: Kernel(each, stamp) for each in functions}
    compiling.listen({kernel.call: name for name, kernel in found.items()})
    return SimpleNamespace(**found)
