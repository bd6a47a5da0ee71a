"""Our own threads. The kernels let go of the interpreter's lock, so plain Python threads run them side by side.

numba's parallel loops are not used: its OpenMP layer dies after a fork, its own layer aborts when two Python
threads call at once. Here a forked child makes new threads, and any number of threads may call. Jobs and their ends
go through `SimpleQueue`s, which cost a few microseconds where an executor's futures cost ten times as many.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

Job = Callable[[], None]
Ends = SimpleQueue[BaseException | None]

_jobs: SimpleQueue[tuple[Job, Ends]] = SimpleQueue()
_threads = 0
_growing = threading.Lock()


def _forget() -> None:
    """Threads do not survive a fork: the child makes its own, when it first needs them."""
    global _jobs, _threads, _growing
    _jobs, _threads, _growing = SimpleQueue(), 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _work(jobs: SimpleQueue[tuple[Job, Ends]]) -> None:
    while True:
        job, ends = jobs.get()
        try:
            job()
        except BaseException as error:  # it is raised again where the job came from
            ends.put(error)
        else:
            ends.put(None)
        del job, ends  # or the memory a job writes to would stay until the next one comes


def _enough(threads: int) -> bool:
    """Makes the threads that are missing; False where no more can be had, as when the interpreter shuts down."""
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


def run(job: Job, helping: list[Job], done: Callable[[], bool]) -> None:
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
