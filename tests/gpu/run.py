"""Everything that needs a GPU, with whatever Python has one: several pytest processes share the work, most of which is
compiling; then a table, and all outcomes as JSON.

    python3 tests/gpu/run.py [--out out/gpu-tests.json] [--processes 8] [-k EXPRESSION]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


class Outcome(NamedTuple):
    """What came of one test."""

    file: str
    name: str
    outcome: str  # passed, failed or skipped
    seconds: float
    said: str


def collected(expression: str) -> list[str]:
    """The tests, by the names that pytest gives them."""
    done = subprocess.run(
        [*_pytest(), "--collect-only", "-q", "-k", expression, str(HERE)],
        env=_environment(), cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    names = [line for line in done.stdout.splitlines() if "::" in line]
    if not names:
        sys.exit(f"no tests were found:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return names


def run(names: list[str], processes: int) -> list[Outcome]:
    """Each process takes every so manyth test; a test that a process did not come to has failed."""
    with tempfile.TemporaryDirectory() as folder:
        reports = [Path(folder) / f"{number}.xml" for number in range(processes)]
        shares = [names[number::processes] for number in range(processes)]
        work = [
            subprocess.Popen(
                [*_pytest(), "-q", "--tb=short", f"--junitxml={report}", *share],
                env=_environment(), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT,
            )
            for report, share in zip(reports, shares, strict=True) if share
        ]  # fmt: skip
        for one in work:
            one.wait()
        found = [outcome for report in reports if report.exists() for outcome in _read(report)]
    missing = len(names) - len(found)
    return [*found, *[Outcome("?", "a test that was not reached", "failed", 0.0, "its process died")] * max(0, missing)]


def _read(report: Path) -> list[Outcome]:
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        wrong = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        outcome = "passed" if wrong is None else "skipped" if wrong.tag == "skipped" else "failed"
        file = case.get("classname", "").rsplit(".", 1)[-1]
        said = "" if wrong is None else (wrong.text or wrong.get("message") or "")
        found.append(Outcome(file, case.get("name", ""), outcome, float(case.get("time", 0)), said))
    return found


def _pytest() -> list[str]:
    return [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(ROOT), "-p", "no:cacheprovider"]


def _environment() -> dict[str, str]:
    paths = [str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/gpu-tests.json"))
    parser.add_argument("--processes", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="only tests whose names match, as pytest has it")
    chosen = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        sys.exit("there is no CUDA device here")
    found = run(collected(chosen.k), chosen.processes)
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name()}")
    for file in sorted({one.file for one in found}):
        counts = Counter(one.outcome for one in found if one.file == file)
        seconds = sum(one.seconds for one in found if one.file == file)
        told = "".join(f"{counts[outcome]:6d} {outcome}" for outcome in ("passed", "failed", "skipped"))
        print(f"{file:28s}{told}{seconds:8.0f} s")
    for one in found:
        if one.outcome == "failed":
            print(f"\n{one.file}::{one.name}\n{one.said[-1500:]}")
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps([one._asdict() for one in found], indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten to {chosen.out}")
    sys.exit(any(one.outcome == "failed" for one in found))


if __name__ == "__main__":
    main()
