"""Compiles the kernels when they are first needed, and keeps the result on disk where it can."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

# The files that kernels are made of.
_PARTS = (
    "adjoint", "backward_pass", "forward_pass", "functions", "layout", "one_sample", "packing", "products", "steps",
    "vectors",
)  # fmt: skip


class Kernel:
    """A numba function that is not in the way when its cache is: no writable folder, or no room on the disk."""

    def __init__(self, function: Callable[..., None], stamp: str) -> None:
        self.function = function
        self.call = self._cached(stamp)

    def __call__(self, *args: Any) -> None:
        try:
            self.call(*args)
        except OSError:  # from writing the cache: the kernels themselves open no file
            self.call = self._plain()
            self.call(*args)

    def _plain(self) -> Any:
        from numba import njit

        return njit(nogil=True)(self.function)

    def _cached(self, stamp: str) -> Any:
        from numba import njit

        try:
            dispatcher = njit(nogil=True, cache=True)(self.function)
        except (RuntimeError, OSError):  # "no locator available": neither here nor in the home folder
            return self._plain()
        # numba looks at the file of the function alone. A kernel is also made of the files it calls into.
        store: Any = getattr(dispatcher, "_cache", None)
        index_key = getattr(store, "_index_key", None)
        if index_key is not None:
            store._index_key = lambda *args: (*index_key(*args), stamp)
        return dispatcher


def _sources() -> str:
    from .vectors import REGISTER_BYTES, REGISTERS

    digest = hashlib.sha256(f"{REGISTERS} registers of {REGISTER_BYTES}".encode())
    for name in _PARTS:
        digest.update(Path(__file__).with_name(f"{name}.py").read_bytes())
    return digest.hexdigest()


class Kernels:
    def __init__(self) -> None:
        from .backward_pass import backward
        from .forward_pass import forward
        from .one_sample import one_sample
        from .packing import collect, constants, constants_back, pack

        stamp = _sources()
        self.pack = Kernel(pack, stamp)
        self.forward = Kernel(forward, stamp)
        self.backward = Kernel(backward, stamp)
        self.one_sample = Kernel(one_sample, stamp)
        self.collect = Kernel(collect, stamp)
        self.constants = Kernel(constants, stamp)
        self.constants_back = Kernel(constants_back, stamp)


@cache
def kernels() -> Kernels:
    return Kernels()
