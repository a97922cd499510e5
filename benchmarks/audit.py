"""What an audit costs: 200 examples of small models, every head, every test; and what it would without its economies.

    python benchmarks/audit.py [--runs DIR] [--examples 200]

Two classifiers of the built-in corpus are trained unless they are in the folder of runs: attention pooling over a
recurrent reader, and a BERT of two layers. The second half compares, on fewer examples and in turns, the audit as it is
with one that runs the whole model each time, though everything below the changed place stays as it was. Writes
results/audit.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

from run_record import run_record, shown, spread

from regard.cli.process_tuning import prepare_machine

prepare_machine()

from regard.faithfulness.audit import audit  # noqa: E402
from regard.faithfulness.counterfactual import ActivationCache  # noqa: E402
from regard.text import grammar  # noqa: E402
from regard.training import read_recipe, train  # noqa: E402
from regard.training.tasks import TASKS  # noqa: E402

RUNS = {"classifier": ["data.view=verdict", "model.score=additive"], "bert-classifier": ["data.view=verdict"]}
FEW, ROUNDS = 32, 3
RESULT = Path(__file__).parent / "results" / "audit.json"


def trained(name: str, folder: Path) -> Path:
    """A run of a recipe, made unless it is there."""
    run = folder / name
    if not (run / "model.safetensors").exists():
        train(read_recipe(name, RUNS[name], tasks=TASKS), run)
    return run


def seconds(run: Path, examples: int) -> tuple[float, int]:
    """How long an audit of so many examples takes, and how many maps it judges."""
    given = list(grammar.GeneratedCorpus(grammar.verdict, examples, "test"))
    begun = perf_counter()
    report = audit(run, given)
    return perf_counter() - begun, len(report.verdicts)


@contextmanager
def from_the_start() -> Iterator[None]:
    """Every run computes everything."""

    @contextmanager
    def run(self: ActivationCache) -> Iterator[None]:
        yield

    with patch.object(ActivationCache, "run", run):
        yield


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--runs", type=Path, default=Path("runs/audit"))
    asked.add_argument("--examples", type=int, default=200)
    given = asked.parse_args()
    found: dict[str, Any] = {"machine": run_record(seeds=[0], rounds=ROUNDS)}
    for name in RUNS:
        run = trained(name, given.runs)
        took, maps = seconds(run, given.examples)
        print(f"{name}: {given.examples} examples, {maps} maps judged, {took:.0f} s")
        ratios = []
        for _ in range(ROUNDS):
            own, _ = seconds(run, FEW)
            with from_the_start():
                whole, _ = seconds(run, FEW)
            ratios.append(whole / own)
        print(
            f"  running the whole model each time: {shown(spread(ratios))}x the time ({FEW} examples, {ROUNDS} rounds)"
        )
        found[name] = {"examples": given.examples, "maps": maps, "seconds": took, "whole model": spread(ratios)}
    RESULT.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
