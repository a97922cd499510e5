"""How long a step takes on a GPU and how much memory it needs; on a machine without one it runs, to see it run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor


def milliseconds(step: Callable[[], object]) -> float:
    """The median time of one step, the cache full of something else at its start."""
    step()  # compiles
    if not torch.cuda.is_available():
        start = time.perf_counter()
        step()
        return 1e3 * (time.perf_counter() - start)
    step()
    times = []
    for _ in range(12):
        _sweeper().zero_()
        torch.cuda._sleep(8_000_000)  # the host gets ahead by 4 ms, so that launches are not what is timed
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def in_a_row(step: Callable[[], object], times: int = 20) -> float:
    """Milliseconds of a step among many, by the clock on the wall."""
    if not torch.cuda.is_available():
        return 0.0
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        step()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / times


@cache
def _sweeper() -> Tensor:
    return torch.empty(2**26, device="cuda")  # 256 MB, five times the cache


def peak(step: Callable[[], object]) -> float:
    """Bytes at the peak over what is held before."""
    if not torch.cuda.is_available():
        step()
        return 0.0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated() - before)
