"""The clocks of the benchmarks on a GPU: wall clock and device time, ways that take turns, ratios with their spread,
memory; and a command that shows such figures and keeps them. On a machine without a GPU steps run, to see them run.

    wall      calls one after another, then one wait for the device, divided by their number: what a user gets
    device    device_ms: CUDA events, the cache full of something else, the host ahead; or replays of a CUDA graph
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

sys.path.append(str(Path(__file__).parents[1]))  # last: some files there have the names of files here

from run_record import Row, ratios, run_record, spread as spread

Work = Callable[[], object]
Times = dict[str, list[float]]
ROUNDS = 5
SEED = 0


# --- clocks


def wall_ms(work: Work, least_ms: float = 20.0) -> float:
    """Milliseconds of one call among many in a row; of a single one, if that is long enough."""
    _wait()
    start = time.perf_counter()
    work()
    _wait()
    once = 1e3 * (time.perf_counter() - start)
    if once >= least_ms:
        return once
    times = max(2, min(200, int(least_ms / max(once, 1e-3))))
    start = time.perf_counter()
    for _ in range(times):
        work()
    _wait()
    return 1e3 * (time.perf_counter() - start) / times


def device_ms(work: Work, times: int = 5) -> float:
    """Milliseconds of the device for one call, a median: the cache full of something else at its start, launches not
    timed where they take less than 4 ms."""
    if not torch.cuda.is_available():
        start = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - start)
    found = []
    for _ in range(times):
        _sweeper().zero_()
        torch.cuda._sleep(8_000_000)  # the host gets ahead by 4 ms
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end))
    return median(found)


def host_us(work: Work, times: int = 60) -> float:
    """Microseconds until a call returns, the device far behind."""
    torch.cuda.synchronize()
    torch.cuda._sleep(100_000_000)  # some 60 ms
    start = time.perf_counter()
    for _ in range(times):
        work()
    took = 1e6 * (time.perf_counter() - start) / times
    torch.cuda.synchronize()
    return took


def graph_of(work: Work) -> torch.cuda.CUDAGraph:
    """The kernels of one call as a graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


def milliseconds(work: Work) -> float:
    """Device time of one call that was not made before, of many: for tilings, which are tried one by one."""
    work()  # compiles
    if torch.cuda.is_available():
        work()
    return device_ms(work, 12)


def peak(work: Work) -> float:
    """Bytes at the peak over what is held before."""
    if not torch.cuda.is_available():
        work()
        return 0.0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    work()
    torch.cuda.synchronize()
    return float(torch.cuda.max_memory_allocated() - before)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@cache
def _sweeper() -> Tensor:
    return torch.empty(2**26, device="cuda")  # 256 MB, five times the cache


# --- rounds


def in_turns(ways: dict[str, Work], clock: Callable[[Work], float], rounds: int = ROUNDS) -> Times:
    """Every way's times, the ways taking turns."""
    for work in ways.values():
        work()
        work()
    times: Times = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            times[name].append(clock(work))
    return times


def against(times: Times, base: str) -> dict[str, Row]:
    """For each way: milliseconds, and its multiple of the base, round by round, with quartiles."""
    found = {}
    for name, mine in times.items():
        over = ratios(mine, times[base])
        found[name] = {"ms": median(mine), "ratio": over["median"], "quartiles": over["quartiles"], "rounds": mine}
    return found


def both_clocks(ways: dict[str, Work], base: str, rounds: int = ROUNDS, least_ms: float = 20.0) -> dict[str, Row]:
    """Wall clock and device time of every way, as multiples of the base, with every round."""
    clocks: dict[str, Callable[[Work], float]] = {"wall": lambda work: wall_ms(work, least_ms), "device": device_ms}
    return {name: against(in_turns(ways, clock, rounds), base) for name, clock in clocks.items()}


def with_quartiles(one: Row) -> str:
    """0.56 (0.55 to 0.58): a ratio of `against`, with its quartiles."""
    low, high = one["quartiles"]
    return f"{one['ratio']:.2f} ({low:.2f} to {high:.2f})"


# --- records


def machine(*packages: str, rounds: int = ROUNDS) -> Row:
    """The first row of every JSON: what was measured, and where."""
    return {"what": "machine"} | run_record("triton", *packages, seeds=[SEED], rounds=rounds)


def compile_together(file: str, processes: int = 12) -> None:
    """Processes that run `file --warm i n`, each its share of what there is to compile; caches on the disk keep it."""
    count = min(processes, os.cpu_count() or 1)
    helpers = [subprocess.Popen([sys.executable, file, "--warm", str(i), str(count)]) for i in range(count)]
    for helper in helpers:
        helper.wait()


def show(
    run: Callable[..., list[Row]],
    words: str | None,
    seconds: float,
    warm: Callable[[int, int], None] | None = None,
) -> None:
    """The command: run(report, tiny=, seconds=) reports line by line, and gives back all its figures. warm(i, n)
    compiles the i-th share of n."""
    parser = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="small sizes, in Triton's interpreter")
    parser.add_argument("--seconds", type=float, default=seconds, help="no new tiling is tried after so long")
    parser.add_argument("--out", type=Path, help="where to write all figures as JSON")
    parser.add_argument("--warm", nargs=2, type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.warm and warm:
        warm(*asked.warm)
        return
    record = machine()
    print(record | ({"gpu": "the interpreter"} if asked.tiny else {}))
    started = time.perf_counter()
    if warm and not asked.tiny:
        compile_together(sys.argv[0])
    rows = [record, *run(lambda line: print(line, flush=True), tiny=asked.tiny, seconds=asked.seconds)]
    print(f"\n{time.perf_counter() - started:.0f} s")
    if asked.out:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
