"""What the GPU benchmarks share: medians between CUDA events, and captured graphs."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch


def say(*words: object) -> None:
    print(*words, flush=True)


def milliseconds(work: Callable[[], object], repeats: int = 20) -> float:
    """Median time of one call between CUDA events, after a warm-up."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def captured(work: Callable[[], object]) -> Callable[[], object]:
    """`work` as a CUDA graph: the time of the kernels, without the host's launches."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay
