"""A process that runs GPU tests for run.py, some at a time: a line of test names comes in, a line goes out for each
outcome and at the end of each batch. It lives on from batch to batch: torch is imported once, and so are kernels."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from typing import IO, Any

import pytest
import torch

Send = Callable[[dict[str, Any]], None]


class Outcomes:
    """Sends what came of each test as soon as it is known."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of its setup if a test went no further, else of its call; a teardown can still fail it."""
        if report.failed and report.nodeid not in self.failed:
            self.failed.add(report.nodeid)
            self._tell(report, "failed", str(report.longrepr)[-4000:])
        elif report.skipped:
            self._tell(report, "skipped", str(report.longrepr)[-500:])
        elif report.when == "call" and report.passed:
            self._tell(report, "passed", "")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.send({"broken": str(report.longrepr)[-4000:]})

    def _tell(self, report: pytest.TestReport, outcome: str, said: str) -> None:
        self.send({"name": report.nodeid, "outcome": outcome, "seconds": round(report.duration, 2), "said": said})


def serve(batches: IO[str], send: Send, options: list[str]) -> None:
    for line in batches:
        pytest.main([*options, "-q", "--tb=short", *json.loads(line)], plugins=[Outcomes(send)])
        gc.collect()
        if torch.cuda.is_available():
            try:
                torch.cuda.synchronize()
            except RuntimeError as error:  # a kernel has broken this process's context: another process goes on
                send({"broken": str(error)[:500]})
                return
            torch.cuda.empty_cache()  # others work on the same device
        send({"done": True})


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what tests print goes elsewhere

    def send(told: dict[str, Any]) -> None:
        print(json.dumps(told), file=out, flush=True)

    serve(sys.stdin, send, sys.argv[1:])


if __name__ == "__main__":
    main()
