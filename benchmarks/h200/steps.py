"""How long a step takes on a GPU, how much memory it needs, and a command that shows such figures and keeps them; on a
machine without a GPU steps run, to see them run."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

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


def compile_together(file: str, processes: int = 12) -> None:
    """Processes that run `file --warm i n`, each its share of what there is to compile; caches on the disk keep it."""
    count = min(processes, os.cpu_count() or 1)
    helpers = [subprocess.Popen([sys.executable, file, "--warm", str(i), str(count)]) for i in range(count)]
    for helper in helpers:
        helper.wait()


def show(
    run: Callable[..., list[dict[str, Any]]],
    told: str | None,
    seconds: float,
    warm: Callable[[int, int], None] | None = None,
) -> None:
    """The command: run(report, tiny=, seconds=) reports line by line, and gives back all its figures. warm(i, n)
    compiles the i-th share of n."""
    parser = argparse.ArgumentParser(description=told, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="small sizes, in Triton's interpreter")
    parser.add_argument("--seconds", type=float, default=seconds, help="no new tiling is tried after so long")
    parser.add_argument("--out", type=Path, help="where to write all figures as JSON")
    parser.add_argument("--warm", nargs=2, type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.warm and warm:
        warm(*asked.warm)
        return
    where = "the interpreter" if asked.tiny else torch.cuda.get_device_name()
    print(f"torch {torch.__version__} on {where}")
    started = time.perf_counter()
    if warm and not asked.tiny:
        compile_together(sys.argv[0])
    rows = run(lambda line: print(line, flush=True), tiny=asked.tiny, seconds=asked.seconds)
    print(f"\n{time.perf_counter() - started:.0f} s")
    if asked.out:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps(rows, indent=1) + "\n")
