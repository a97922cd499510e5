"""How long a shipped translation recipe takes as a user runs it, and how well it then translates.

    python benchmarks/recipe.py [--recipe transformer] [--seeds 0 1] [--set SECTION.KEY=VALUE ...] [--test 500]

Each seed is one `regard train` in a process of its own: wall clock and user time of the whole command, corpus and
evaluations included, and the median time of a step, which a busy machine disturbs less. BLEU on the validation
sentences is the command's own. With --test N, greedy translations of N sentences of the test split are scored at the
end. Writes recipe-NAME.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from run_record import run_record

from regard.decoding import Greedy
from regard.runs import Run
from regard.training.metrics import bleu
from regard.training.tasks.translation.data import BuiltInPairs


def trained(name: str, seed: int, sets: list[str], folder: Path) -> dict[str, Any]:
    """Train by the recipe in a process of its own: what that took, and what it reports."""
    given = [part for one in [f"train.seed={seed}", *sets] for part in ("--set", one)]
    command = [sys.executable, "-m", "regard", "train", name, "--out", str(folder), "--json", *given]
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    logged = [one for one in events if one["event"] == "trained"]
    steps = [(b["seconds"] - a["seconds"]) / (b["step"] - a["step"]) for a, b in pairwise(logged)]
    return {
        "seed": seed,
        "wall_seconds": time.perf_counter() - begun,
        "user_seconds": after.ru_utime - before.ru_utime,
        "loop_seconds": ended["seconds"],
        "median_step_seconds": median(steps),
        "steps": ended["step"],
        "tokens": logged[-1]["tokens"],
        "threads": next(one["facts"]["threads"] for one in events if one["event"] == "started"),
        "validation": ended["metrics"],
    }


def test_bleu(folder: Path, count: int, data: BuiltInPairs) -> float:
    """BLEU of greedy translations of the first sentences of the test split."""
    pairs = list(data.generate("test", count))
    translate = Run.open(folder).translator()
    found = translate([pair.source for pair in pairs], Greedy())
    return bleu([best.text for best, *_ in found], [pair.target for pair in pairs]).value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="transformer")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--test", type=int, default=0, help="sentences of the test split to translate (default: none)")
    parser.add_argument("--keep", type=Path, help="keep the runs in this folder")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    given = parser.parse_args()
    machine = run_record(seeds=given.seeds)
    result: dict[str, Any] = {"machine": machine, "recipe": given.recipe, "sets": given.sets, "runs": []}
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for seed in given.seeds:
            run = (given.keep or Path(folder)) / f"{given.recipe}-{seed}"
            found = trained(given.recipe, seed, given.sets, run)
            if given.test:
                found |= {"test_bleu": test_bleu(run, given.test, BuiltInPairs()), "test_sentences": given.test}
            result["runs"].append(found)
            print(json.dumps(found, indent=2), flush=True)
            path = given.out / f"recipe-{given.recipe}.json"
            path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
