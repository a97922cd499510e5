"""What every benchmark keeps beside its figures: the machine, versions, commit and seeds of the run, and the spread of
a figure over its rounds."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

Row = dict[str, Any]


def run_record(*packages: str, seeds: Sequence[int] = (), rounds: int | None = None) -> Row:
    """The machine and the run; with the versions of these packages beside torch's. Needs no torch.

    `seeds`: every seed that weights, data and batches were drawn with; `rounds`: how often each figure was measured.
    """
    found: Row = {
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
    }
    found |= {name: _version(name) for name in ("torch", *packages)}
    if (torch := sys.modules.get("torch")) is not None:
        found |= {"torch": torch.__version__, "threads": torch.get_num_threads()}
        if torch.cuda.is_available():
            found |= {"gpu": torch.cuda.get_device_name(), "triton": _version("triton")}
    found |= {"commit": commit(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    found |= {"command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]), "seeds": list(seeds)}
    return found if rounds is None else found | {"rounds": rounds}


def commit() -> str:
    """REGARD_COMMIT, for a machine that has no checkout; else git's, with "-dirty" where files differ from it."""
    if told := os.environ.get("REGARD_COMMIT"):
        return told
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def spread(values: Sequence[float]) -> Row:
    """The median over rounds, the lower and upper quartile, and every round.

    >>> spread([3.0, 1.0, 2.0])
    {'median': 2.0, 'quartiles': [1.0, 3.0], 'rounds': [3.0, 1.0, 2.0]}
    """
    low, _, high = quantiles(values, n=4) if len(values) > 2 else (min(values), None, max(values))
    return {"median": median(values), "quartiles": [low, high], "rounds": list(values)}


def ratios(above: Sequence[float], below: Sequence[float]) -> Row:
    """The spread of one series over another, round by round: what is slow in a round is slow for both."""
    return spread([a / b for a, b in zip(above, below, strict=True)])


def shown(found: Row, form: str = ".2f") -> str:
    """1.25 (0.95 to 1.41): the median and the quartiles."""
    low, high = found["quartiles"]
    return f"{found['median']:{form}} ({low:{form}} to {high:{form}})"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """The model of the processor, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
