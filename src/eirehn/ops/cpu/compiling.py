"""What happens while kernels are compiled: a line on stderr says so, and a second process compiles those of the
backward pass into numba's cache, since numba compiles with one thread at a time in a process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

TEXT = "eirehn: compiling CPU kernels for the first call (cached afterwards) ..."
HERE = ("constants", "pack", "forward", "collect", "one_sample")
BACKWARD = ("backward", "constants_back")
"""What a companion compiles."""

backward_follows: str | None = None
"""The dtype of a forward pass whose backward pass will be called. A second thread may replace it: then the backward
pass is compiled when it is called."""
_companions: dict[str, threading.Thread] = {}


def listen(kernels: dict[Any, str]) -> None:
    """Watches numba compile these dispatchers, given with their names."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            name = kernels.get(event.data["dispatcher"])
            if name is not None:
                _message.begin()
            if name in ("pack", "forward") and backward_follows is not None:
                start_companion(backward_follows)

        def on_end(self, event: Any) -> None:
            if event.data["dispatcher"] in kernels:
                _message.end()

    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call]  # numba's own


def start_companion(dtype: str) -> None:
    """Another process compiles the kernels of the backward pass. Without one, as in a program that is not Python
    itself, they are compiled when they are called."""
    if dtype in _companions or not _is_python():
        return
    command = [sys.executable, "-P", "-m", f"{__package__}.ahead", dtype]
    folders = (each for each in sys.path if isinstance(each, str) and each)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    silent: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    try:
        process = subprocess.Popen(command, env=environment, **silent)
    except (OSError, ValueError):
        return
    _companions[dtype] = threading.Thread(target=process.wait, daemon=True)
    _companions[dtype].start()


def _is_python() -> bool:
    """Whether this program is the interpreter: a frozen or embedding one would start itself once more."""
    name = os.path.basename(sys.executable or "").lower()
    return name.startswith(("python", "pypy")) and not getattr(sys, "frozen", False)


def has_companion(dtype: str) -> bool:
    thread = _companions.get(dtype)
    return thread is not None and thread.is_alive()


def wait_for_companion(dtype: str) -> None:
    if has_companion(dtype):
        with _message.shown():
            _companions[dtype].join()


class _Message:
    """On a terminal a line that moves and then goes away; else one line for compilations that follow each other."""

    def __init__(self) -> None:
        self.ended = -float("inf")
        self.stop: Callable[[], None] | None = None

    def begin(self) -> None:
        stream = sys.stderr
        if (
            self.stop is not None
            or stream is None
            or getattr(stream, "closed", False)
            or os.environ.get("EIREHN_QUIET")
        ):
            return
        if stream.isatty() and stream is sys.__stderr__:
            done = threading.Event()
            thread = threading.Thread(target=_spin, args=(done,), daemon=True)
            thread.start()

            def stop() -> None:
                done.set()
                thread.join()

            self.stop = stop
        elif time.monotonic() - self.ended > 1:
            with suppress(OSError):  # nobody reads it any more
                print(TEXT, file=stream, flush=True)

    def end(self) -> None:
        self.ended = time.monotonic()
        if self.stop is not None:
            self.stop()
            self.stop = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        finally:
            self.end()


def _spin(done: threading.Event) -> None:
    began = time.monotonic()
    with suppress(OSError):
        while not done.wait(0.1):
            seconds = time.monotonic() - began
            print(f"\r{TEXT} {'|/-'[int(8 * seconds) % 3]} {seconds:.0f} s", end="", file=sys.stderr, flush=True)
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


_message = _Message()


def _forget() -> None:
    """A forked child has neither the threads nor the companions of its parent."""
    _companions.clear()
    _message.stop = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
