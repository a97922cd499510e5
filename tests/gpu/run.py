"""Everything that needs a GPU, with whatever Python has one: worker processes share the tests, most of whose time is
compiling; then a table, the record of this run, and the report that says which kernels were tested.

    python3 tests/gpu/run.py [FILE ...] [-k EXPRESSION] [--workers 14] [--seconds 500] [--record out/gpu-tests.json]
    python3 tests/gpu/run.py --with first.json second.json

Files, an expression or --seconds make a slice of the tests. --with names the records of earlier slices: what has passed
there is not run again, and the report counts it. The report (tests/gpu/report.json) is written once all tests have an
outcome, or where --report names it. A slice must have tested the kernels as they are here. On a machine without .git,
REGARD_COMMIT says which commit this is.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain, zip_longest
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import kernel_report  # noqa: E402 (found by the line above)
from kernel_report import Record  # noqa: E402

BATCH = 6  # tests that a worker gets at once: neighbours, which share kernels


def collected(choice: list[str]) -> list[str]:
    """Tests by the names that pytest gives them; choice: files, or -k and an expression."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *_options(), "--collect-only", "-q", *choice],
        env=_environment(), cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    names = [line for line in done.stdout.splitlines() if "::" in line]
    if not names or done.returncode:
        sys.exit(f"tests cannot be collected:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return names


def batches_of(names: list[str]) -> list[list[str]]:
    """Some neighbours each, those of one function far apart, so that workers do not compile the same kernel at once."""
    functions: dict[str, list[str]] = {}
    for name in names:
        functions.setdefault(name.partition("[")[0], []).append(name)
    cut = [[of[at : at + BATCH] for at in range(0, len(of), BATCH)] for of in functions.values()]
    return [batch for batch in chain.from_iterable(zip_longest(*cut)) if batch]


class Workers:
    """Processes that take batches until none is left or time is up."""

    def __init__(self, names: list[str], count: int, seconds: float) -> None:
        self.batches: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        for batch in batches_of(names):
            self.batches.put(batch)
        self.until = time.monotonic() + seconds
        self.outcomes: list[dict[str, Any]] = []
        self.threads = [threading.Thread(target=self._work) for _ in range(count)]

    def run(self) -> list[dict[str, Any]]:
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join()
        return self.outcomes

    def _work(self) -> None:
        with TemporaryFile() as log:  # what the worker says, told if it dies
            self._serve(log)

    def _serve(self, log: IO[bytes]) -> None:
        worker: subprocess.Popen[str] | None = None
        while time.monotonic() < self.until:
            try:
                batch = self.batches.get_nowait()
            except queue.Empty:
                break
            if worker is None or worker.poll() is not None:
                log.seek(0)
                log.truncate()
                worker = subprocess.Popen(
                    [sys.executable, str(HERE / "worker.py"), *_options()], env=_environment(), cwd=ROOT, text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                )  # fmt: skip
            if not self._run(worker, batch, log):
                worker.wait()
                worker = None
        if worker is not None and worker.stdin is not None:
            worker.stdin.close()
            worker.wait()

    def _run(self, worker: subprocess.Popen[str], batch: list[str], log: IO[bytes]) -> bool:
        """Whether the worker can go on; if not, the first test that did not pass has failed, and those after it come
        again."""
        assert worker.stdin is not None and worker.stdout is not None
        worker.stdin.write(json.dumps(batch) + "\n")
        worker.stdin.flush()
        found: dict[str, dict[str, Any]] = {}
        why, done = "", False
        for line in worker.stdout:
            told = json.loads(line)
            if "name" in told:
                found[told["name"]] = told
            elif "broken" in told:
                why = told["broken"]
            else:
                done = True
                break
        if not done and not why:
            log.seek(0)
            why = f"its process died: {log.read().decode(errors='replace')[-1500:]}"
        bad = [name for name in batch if name not in found or found[name]["outcome"] == "failed"]
        again = [] if done else bad[1:]
        if again:
            self.batches.put(again)
        for name in batch:
            if name not in again:
                lost = {"name": name, "outcome": "failed", "seconds": 0.0, "said": why}
                self.outcomes.append(found.get(name, lost))
        return done


def _options() -> list[str]:
    return ["-c", os.devnull, "--rootdir", str(ROOT), "--noconftest", "-p", "no:cacheprovider"]


def _environment() -> dict[str, str]:
    paths = [str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def commit() -> str:
    """REGARD_COMMIT, or what git says, with a + where files differ from it."""
    if told := os.environ.get("REGARD_COMMIT"):
        return told
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return "unknown"
    changed = subprocess.run(["git", "status", "--porcelain", "src", "tests"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() + ("+" if changed.stdout.strip() else "")


def machine() -> dict[str, str]:
    import torch

    if not torch.cuda.is_available():
        sys.exit("there is no CUDA device here")
    import triton  # type: ignore[import-untyped]

    versions = {"torch": torch.__version__, "triton": triton.__version__, "python": sys.version.split()[0]}
    return {"gpu": torch.cuda.get_device_name(), "driver's cuda": str(torch.version.cuda), **versions}


def show(outcomes: list[dict[str, Any]]) -> None:
    for file in sorted({one["name"].partition("::")[0] for one in outcomes}):
        own = [one for one in outcomes if one["name"].partition("::")[0] == file]
        kinds = [one["outcome"] for one in own]
        told = "".join(f"{kinds.count(kind):6d} {kind}" for kind in ("passed", "failed", "skipped"))
        print(f"{Path(file).name:32s}{told}{sum(one['seconds'] for one in own):8.0f} s")
    for one in outcomes:
        if one["outcome"] == "failed":
            print(f"\n{one['name']}\n{one['said'][-1500:]}")


def earlier(files: list[Path]) -> Iterator[Record]:
    now = kernel_report.digests()
    for file in files:
        record: Record = json.loads(file.read_text(encoding="utf-8"))
        other = sorted({name for name, _ in set(record["kernels"].items()) ^ set(now.items())})
        if other:
            sys.exit(f"{file} tested other kernels than the ones here: {', '.join(other)}. Run its tests again.")
        yield record


def chosen() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="files of tests; all, if none is named")
    parser.add_argument("-k", metavar="EXPRESSION", help="only tests whose names match, as pytest has it")
    parser.add_argument("--workers", type=int, default=min(14, max(1, (os.cpu_count() or 1) - 2)))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no batch of tests is begun after so long")
    parser.add_argument("--with", dest="earlier", nargs="+", type=Path, default=[], metavar="RECORD")
    parser.add_argument("--record", type=Path, default=ROOT / "out" / "gpu-tests.json", help="outcomes of this run")
    parser.add_argument("--report", type=Path, help="written even if tests are left (default tests/gpu/report.json)")
    return parser.parse_args()


def main() -> None:
    asked = chosen()
    suite = collected([str(HERE)])
    narrow = [*(["-k", asked.k] if asked.k else []), *map(str, asked.files or [HERE])]
    names = suite if narrow == [str(HERE)] else collected(narrow)
    records = list(earlier(asked.earlier))
    known = {name for one in records for name, outcome in kernel_report.outcomes_of(one).items() if outcome != "failed"}
    left = [name for name in names if name not in known]
    if left:
        here = {"machine": machine(), "commit": commit(), "kernels": kernel_report.digests(), "suite": suite}
        outcomes = Workers(left, asked.workers, asked.seconds).run()
        record: Record = {**here, "date": datetime.now(UTC).isoformat(timespec="minutes"), "outcomes": outcomes}
        kernel_report.write(record, asked.record)
        records.append(record)
        show(outcomes)
    if not records:
        sys.exit("no test was chosen")
    report = kernel_report.merged(records)
    if asked.report or not report["not run"]:
        kernel_report.write(report, asked.report or kernel_report.REPORT)
        print(f"\nwritten to {asked.report or kernel_report.REPORT}")
    print(kernel_report.summary(report))
    sys.exit(bool(report["failed"]))


if __name__ == "__main__":
    main()
