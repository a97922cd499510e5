"""Every architecture that transformers registers, tiny and random, under attn_implementation="regard" beside eager.

    python benchmarks/zoo.py                       # all of them (about half an hour on two cores)
    python benchmarks/zoo.py bloom gpt_oss         # some
    python benchmarks/zoo.py --table               # docs/models.md anew, from the kept JSON

Each class is compared call by call: outputs, the same bits while listening, every layer's weights, padding on either
side, later tokens, gradients, generation and beams. `zoo_checks.py` tells what the verdicts mean. Model types are
checked in worker processes with limits of time and memory, so that one that runs away is a line of the table.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import threading
import warnings
from collections import Counter
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from run_record import run_record
from zoo_table import write_table

HERE = Path(__file__).parent
RESULT = HERE / "results/zoo.json"
OLDEST = HERE / "results/zoo-oldest.json"  # of a run with the oldest transformers that is supported, by --out
TABLE = HERE.parent / "docs/models.md"
GIB = 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kinds", nargs="*", help="model types; all that transformers registers, if none is named")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=240, help="for one model type")
    parser.add_argument("--memory", type=float, default=7, help="GiB for one worker")
    parser.add_argument("--out", type=Path, default=RESULT, help="where all model types are kept as JSON")
    parser.add_argument("--table", action="store_true", help="write docs/models.md from the kept JSON, and stop")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        return work(asked.memory)
    if not asked.table:
        kept = run(asked.kinds or registered(), asked)
        print_counts(kept["classes"])
        if asked.kinds:
            return None
        asked.out.write_text(json.dumps(kept, indent=1) + "\n")
    if asked.table or asked.out == RESULT:
        write_table(TABLE, json.loads(RESULT.read_text()), json.loads(OLDEST.read_text()))
    return None


def registered() -> list[str]:
    """The model types with a base model, or with any model at all."""
    from transformers.models.auto import modeling_auto as auto

    names = [name for name in sorted(vars(auto)) if name.startswith("MODEL_") and name.endswith("_MAPPING_NAMES")]
    return sorted({kind for name in names for kind in getattr(auto, name)})


def run(kinds: list[str], asked: Any) -> dict[str, Any]:
    """Check model types in worker processes; what transformers and torch they were."""
    import torch
    import transformers

    waiting: Queue[str] = Queue()
    for kind in kinds:
        waiting.put(kind)
    found: dict[str, list[dict[str, Any]]] = {}
    threads = [threading.Thread(target=_serve, args=(waiting, found, asked)) for _ in range(asked.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    versions: dict[str, Any] = {"transformers": transformers.__version__, "torch": torch.__version__}
    versions["machine"] = run_record(seeds=[0])
    return versions | {"classes": [one for kind in sorted(found) for one in found[kind]]}


def _serve(waiting: Queue[str], found: dict[str, list[dict[str, Any]]], asked: Any) -> None:
    """Hand model types to one worker process at a time; one that dies or takes too long is replaced."""
    worker: subprocess.Popen[str] | None = None
    while True:
        try:
            kind = waiting.get_nowait()
        except Empty:
            break
        if worker is None or worker.poll() is not None:
            worker = _worker(asked.memory)
        found[kind] = _asked_of(worker, kind, asked.seconds)
        for one in found[kind]:
            print(f"{one['verdict']:>22}  {kind} {one['name']}  {one['why']}", flush=True)
    if worker is not None and worker.stdin is not None:
        worker.stdin.close()
        worker.wait()


def _worker(memory: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", __file__, "--worker", "--memory", str(memory)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def _asked_of(worker: subprocess.Popen[str], kind: str, seconds: float) -> list[dict[str, Any]]:
    """What a worker says of a model type, or that it ran out of time or memory."""
    assert worker.stdin is not None and worker.stdout is not None
    late = threading.Timer(seconds, worker.kill)
    late.start()
    try:
        worker.stdin.write(kind + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
    except BrokenPipeError:
        line = ""
    in_time = late.is_alive()
    late.cancel()
    if line:
        answer: list[dict[str, Any]] = json.loads(line)
        return answer
    worker.kill()
    worker.wait()
    why = f"its process died ({worker.returncode})" if in_time else f"not finished in {seconds:g} s"
    return [{"kind": kind, "name": "", "verdict": "not built", "why": why, "checked": [], "heard": 0, "unheard": {}}]


def work(memory: float) -> None:
    """A worker: a model type a line in, what came of its classes a line out."""
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory * GIB), int(memory * GIB)))
    warnings.simplefilter("ignore")
    import torch
    from transformers.utils import logging
    from zoo_checks import check_kind

    from regard import hub

    torch.set_num_threads(1)
    logging.set_verbosity_error()
    hub.enable()
    answers, sys.stdout = sys.stdout, sys.stderr  # models may print
    for line in sys.stdin:
        print(json.dumps([one.as_dict() for one in check_kind(line.strip())]), file=answers, flush=True)


def print_counts(classes: list[dict[str, Any]]) -> None:
    worst = Counter(one["verdict"] for one in classes)
    kinds = len({one["kind"] for one in classes})
    print(
        f"\n{kinds} model types, {len(classes)} classes: " + ", ".join(f"{n} {name}" for name, n in worst.most_common())
    )


if __name__ == "__main__":
    main()
