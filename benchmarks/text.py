"""What the text room costs: tokenizing beside the bare `tokenizers` library, the memory of a large store, batches.

    python benchmarks/text.py [--quick] [--out out/bench]

Every contender runs once a round, side by side in one process, on the same lines with the same tokenizer; the table
shows best time over best time, and the median over rounds of the ratio within a round. The store of the large file is
built by a process of its own, whose whole tree is watched. Batches of every kind, the padding of buckets, and how
quickly the built-in corpus is drawn come after. Writes text.json. The text is made here, from syllables with Zipf's
frequencies: no data is needed; where REGARD_DATA names a folder with multi30k, its lengths are measured too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import tokenizers
from run_record import run_record

from regard.text import TextDocuments
from regard.text.grammar.corpus_files import write_corpus
from regard.text.grammar.generated_corpus import CHUNK_SIZE, chunk, translation
from regard.text.store.fields import DocumentFields
from regard.text.store.store import Store
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import BPE

PIECES = 8000
MEMORY_GOAL = 400  # megabytes, for the whole process tree
RATE_GOAL = 0.8  # of the bare library's rate
Run = Callable[[], object]


def lines(seed: int = 0) -> Iterator[str]:
    """Endless lines of made-up words, commas and points; words have Zipf's frequencies."""
    draw = random.Random(seed)
    syllables = [first + vowel for first in "bcdfghjklmnprstv" for vowel in ("a", "e", "i", "o", "u", "é", "ou")]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(50_000)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    while True:
        drawn = draw.choices(words, weights, k=20 * 1000)
        for at in range(0, len(drawn), 20):
            sentence = drawn[at : at + draw.randint(5, 20)]
            yield f"{' '.join(sentence[:4])}, {' '.join(sentence[4:])} .".capitalize()


def write_text(path: Path, megabytes: int) -> None:
    """A file of so many megabytes: 20 of them distinct, a blank line after every thirtieth line."""
    distinct = list(islice(lines(), 150_000))
    size = 0
    with open(path, "w", encoding="utf-8") as stream:
        for number, line in enumerate(cycle(distinct)):
            size += stream.write(line + "\n" + "\n" * (number % 30 == 29))
            if size >= megabytes * 1_000_000:
                return


def contenders(folder: Path, path: Path, tokenizer: Tokenizer) -> dict[str, dict[str, Run]]:
    """Each task with the bare library's way first; both read the same lines."""
    tokenizer.save(folder / "tokenizer.json")
    bare = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = path.read_text(encoding="utf-8").splitlines()

    def bare_file() -> int:
        """What one writes today: read lines, encode them in batches, keep the ids."""
        count = 0
        with open(path, encoding="utf-8") as stream:
            while batch := [line.rstrip("\n") for line in islice(stream, 1000)]:
                count += sum(len(one.ids) for one in bare.encode_batch_fast(batch, add_special_tokens=False))
        return count

    def store(workers: int) -> None:
        shutil.rmtree(folder / "store", ignore_errors=True)
        Store.build(folder / "store", TextDocuments(path), DocumentFields(tokenizer), workers=workers)

    return {
        "encode": {
            "bare encode_batch": lambda: [one.ids for one in bare.encode_batch(texts, add_special_tokens=False)],
            "Tokenizer.encode_batch": lambda: [one.ids for one in tokenizer.encode_batch(texts)],
        },
        "ids": {
            "bare encode_batch_fast": lambda: [
                one.ids for one in bare.encode_batch_fast(texts, add_special_tokens=False)
            ],
            "Tokenizer.ids_batch": lambda: tokenizer.ids_batch(texts),
        },
        "store": {
            "bare: file, encode_batch_fast": bare_file,
            "Store.build, 1 worker": lambda: store(1),
            "Store.build, 2 workers": lambda: store(2),
        },
    }


def measure(runs: dict[str, Run], megabytes: float, rounds: int) -> dict[str, dict[str, float]]:
    """Rate in megabytes a second, and as a share of the first contender's: best, and median over rounds."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    first = next(iter(times.values()))
    return {
        name: {
            "rate": megabytes / min(taken),
            "best": min(first) / min(taken),
            "median": statistics.median(a / b for a, b in zip(first, taken, strict=True)),
        }
        for name, taken in times.items()
    }


def memory(folder: Path, megabytes: int, workers: int) -> dict[str, float]:
    """Peak memory of building a store from a large file: the shares (PSS) of the whole process tree, summed."""
    path = folder / "large.txt"
    write_text(path, megabytes)
    command = [sys.executable, __file__, "--alone", str(folder), "--workers", str(workers)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(_share, _tree(process.pid))))
        time.sleep(0.5)
    if process.returncode != 0:
        raise SystemExit(f"building the store failed with exit code {process.returncode}")
    assert process.stdout is not None
    told: dict[str, float] = json.loads(process.stdout.read())
    return {"megabytes": megabytes, "peak": peak / 1024, "seconds": time.perf_counter() - start, **told}


def build_alone(folder: Path, workers: int) -> dict[str, float]:
    """Build the store of the large file; this process's own peak and its largest child's, as the system counts them."""
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    store = Store.build(
        folder / "large.store", TextDocuments(folder / "large.txt"), DocumentFields(tokenizer), workers=workers
    )
    status = Path("/proc/self/status").read_text().splitlines()
    own = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))  # ru_maxrss counts our parent too
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {"tokens": store.manifest.tokens["text"], "largest_self": own / 1024, "largest_child": child / 1024}


def _tree(root: int) -> list[int]:
    """A process and everything below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we looked
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def _share(process: int) -> int:
    """A process's share of memory in kilobytes; pages used by several count in part for each."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)


def table(results: dict[str, dict[str, dict[str, float]]]) -> str:
    rows = [f"{'':32}  {'MB/s':>6}  times bare: best (median)"]
    for task in results.values():
        for name, one in task.items():
            rows.append(f"{name:32}  {one['rate']:6.2f}  {one['best']:.2f} ({one['median']:.2f})")
    return "\n".join(rows)


def drawing(pairs: int, rounds: int) -> dict[str, list[float]]:
    """Sentence pairs of the built-in corpus a second, in each round: drawn in one process, and written by two."""
    rates: dict[str, list[float]] = {"drawn, 1 process": [], "regard corpus, 2 processes": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for part in range(5):
                start = time.perf_counter()
                for number in range(10):
                    chunk(translation, part, number)
                rates["drawn, 1 process"].append(10 * CHUNK_SIZE / (time.perf_counter() - start))
            start = time.perf_counter()
            written = write_corpus(Path(folder), pairs, workers=2, replace=True)
            rates["regard corpus, 2 processes"].append(written.drawn / (time.perf_counter() - start))
    return rates


def goals(result: dict[str, Any]) -> list[str]:
    """Each goal with the figure beside it."""
    tokenizing, memory = result["tokenizing"], result["memory"]
    encode, store = tokenizing["encode"]["Tokenizer.encode_batch"], tokenizing["store"]["Store.build, 2 workers"]
    said = [
        f"encode_batch:     {encode['best']:.2f}x the bare library's rate  (goal >= {RATE_GOAL})",
        f"store, 2 workers: {store['best']:.2f}x the bare library's rate  (goal >= {RATE_GOAL})",
        f"peak memory:      {memory['peak']:.0f} MB, whole tree, for a store of {memory['megabytes']:.0f} MB of text"
        f"  (goal <= {MEMORY_GOAL})",
    ]
    for name, waste in result["padding"].items():
        goal = "" if "one side" in name else "  (goal <= 5%)"
        size = "" if "a batch" in name else " at 4,096 tokens"
        said.append(f"padding:          {waste:.1%} of {name}{size}{goal}")
    for name, rates in result["drawing"].items():
        best, median = max(rates), statistics.median(rates)
        said.append(f"built-in corpus:  {best:,.0f} pairs/s, best ({median:,.0f} median), {name}  (goal > 20,000)")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small files and two rounds: to see it run")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2, help=argparse.SUPPRESS)
    parser.add_argument("--alone", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.alone:
        print(json.dumps(build_alone(asked.alone, asked.workers)))
        return
    small, large, rounds = (2, 10, 2) if asked.quick else (8, 500, asked.rounds)
    result: dict[str, Any] = {"machine": run_record("tokenizers", seeds=[0], rounds=rounds), "megabytes": small}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_text(folder / "text.txt", small)
        tokenizer = Tokenizer.train(BPE(PIECES), islice(lines(), 30_000))
        print(f"{small} MB of text, {len(tokenizer)} pieces, {os.cpu_count()} cores, {rounds} rounds", flush=True)
        tasks = contenders(folder, folder / "text.txt", tokenizer)
        result["tokenizing"] = {task: measure(runs, small, rounds) for task, runs in tasks.items()}
        print(table(result["tokenizing"]), flush=True)
        result["memory"] = memory(folder, large, asked.workers)
    import batches  # here, because worker processes import this file too, and need no torch

    result["batches"] = batches.batches(asked.quick)
    batches.show(result["batches"])
    result["padding"] = batches.padding()
    result["drawing"] = drawing(10_000 if asked.quick else 100_000, rounds)
    print(*goals(result), sep="\n")
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "text.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"written: {asked.out / 'text.json'}")


if __name__ == "__main__":
    main()
