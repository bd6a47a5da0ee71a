"""Our own threads. The kernels let go of the interpreter's lock, so plain Python threads run them side by side.

numba's parallel loops are not used: its OpenMP layer dies after a fork, its own layer aborts when two Python
threads call at once. Here a forked child makes new threads, and any number of threads may call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

_executor: ThreadPoolExecutor | None = None
_threads = 0


def _forget() -> None:
    """Threads do not survive a fork: the child makes its own, when it first needs them."""
    global _executor, _threads
    _executor, _threads = None, 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _executor_of(threads: int) -> ThreadPoolExecutor:
    global _executor, _threads
    executor = _executor
    if executor is None or threads > _threads:
        # Two callers may both come here; the executor that loses finishes its jobs and is collected.
        executor = ThreadPoolExecutor(threads, thread_name_prefix="eirehn")
        _executor, _threads = executor, threads
    return executor


def run(jobs: list[Callable[[], None]]) -> None:
    """Runs all jobs, the first in the calling thread, and returns when all have ended."""
    futures: list[Future[None]] = []
    if len(jobs) > 1:
        executor = _executor_of(len(jobs) - 1)
        for job in jobs[1:]:
            try:
                futures.append(executor.submit(job))
            except RuntimeError:  # the interpreter is shutting down
                job()
    try:
        jobs[0]()
    finally:
        # Not before the others have ended may the caller let go of the memory they write to.
        errors = [future.exception() for future in futures]
    for error in errors:
        if error is not None:
            raise error
