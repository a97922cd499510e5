"""How right are word links that are read off attention? AER on the built-in gold, for every translation recipe.

    python benchmarks/aer.py [--runs runs] [--sentences 500]

Trains the recipes seq2seq, bahdanau, luong, pointer and transformer, and bahdanau the other way round (those that are
not in the folder of runs yet). Each is made to write the references of test pairs, and its links are read off: raw
weights or norms, in the step that writes a word or one later, words competing for each other or not. The two directions
of bahdanau are then made one. Writes aer.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from run_record import run_record

from regard.cli.process_tuning import prepare_machine

prepare_machine()

import torch  # noqa: E402

from regard.adapters import ModelAdapter, adapter  # noqa: E402
from regard.errors import PlaceError  # noqa: E402
from regard.inspection.alignment.align import AlignmentExtractor, symmetrize_aligned  # noqa: E402
from regard.inspection.alignment.evaluate import Agreement, Gold, evaluate_links  # noqa: E402
from regard.inspection.alignment.extract import (  # noqa: E402
    WEIGHTINGS,
    AlignmentSource,
    Pair,
    cross_attention_places,
    default_place,
    word_maps,
)
from regard.inspection.alignment.links import extract_links, sinkhorn, unnormalized  # noqa: E402
from regard.inspection.alignment.symmetrize import METHODS  # noqa: E402
from regard.text import grammar  # noqa: E402
from regard.text.examples import Links  # noqa: E402
from regard.training import read_recipe, train  # noqa: E402
from regard.training.tasks import TASKS  # noqa: E402

RECIPES = ("seq2seq", "bahdanau", "luong", "pointer", "transformer")
SHARES = {"competing": sinkhorn, "as they are": unnormalized}


def trained(name: str, runs: Path, back: bool = False) -> Path:
    run = runs / (f"{name}-back" if back else name)
    if not (run / "model.safetensors").exists():
        train(read_recipe(name, ["data.direction=fr-en"] if back else [], tasks=TASKS), run)
    return run


def told(got: Agreement) -> dict[str, float]:
    return {"precision": got.precision, "recall": got.recall, "aer": got.aer, **asdict(got)}


def read(found: ModelAdapter, pairs: list[Pair], gold: list[Gold]) -> dict[str, Any]:
    """Every reading of every place where this model looks across."""
    places = cross_attention_places(found, pairs[0])
    readings = [
        AlignmentSource(place, weighting=by, shift=shift)
        for place in places
        for by in WEIGHTINGS
        for shift in (False, True)
    ]
    rows = []
    for reading, maps in zip(readings, word_maps(found, pairs, readings), strict=True):
        for name, shares in SHARES.items():
            got = evaluate_links((extract_links(shares(matrix)) for matrix in maps), gold)
            rows.append(
                {"place": reading.place, "by": reading.weighting, "shift": reading.shift, "words": name, **told(got)}
            )
    return {"own place": default_place(found, places), "readings": rows}


def merged(forth: ModelAdapter, back: ModelAdapter, pairs: list[Pair], gold: list[Gold]) -> dict[str, dict[str, float]]:
    """Links of either direction, and of both made one."""
    there = AlignmentExtractor()(forth, pairs)
    other = AlignmentExtractor()(back, [(target, source) for source, target in pairs])
    turned: Iterable[Links] = [tuple((i, j) for j, i in one.links) for one in other]
    found = {
        "forth": told(evaluate_links([one.links for one in there], gold)),
        "back": told(evaluate_links(turned, gold)),
    }
    for method in METHODS:
        found[method] = told(evaluate_links([one.links for one in symmetrize_aligned(there, other, method)], gold))
    return found


def show(name: str, got: dict[str, Any]) -> None:
    for place in dict.fromkeys(row["place"] for row in got["readings"]):
        cells = [
            f"{row['aer']:6.1%}"
            for words in SHARES
            for by in WEIGHTINGS
            for shift in (False, True)
            for row in got["readings"]
            if (row["place"], row["words"], row["by"], row["shift"]) == (place, words, by, shift)
        ]
        mark = " *" if place == got["own place"] else ""
        print(f"{name:<12} {place + mark:<18} " + "  ".join(f"{cell:>13}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    drawn = list(grammar.GeneratedCorpus(grammar.translation, given.sentences, "test"))
    pairs = [(one.source, one.target) for one in drawn]
    gold = [Gold.of(one.links or ()) for one in drawn]
    heads = [f"{by}{', shifted' if shift else ''}" for by in WEIGHTINGS for shift in (False, True)]
    print("AER; * is where the model itself tells; words compete for each other (left) or do not (right)")
    print(f"{'':<12} {'place':<18} " + "  ".join(f"{head:>13}" for head in heads * 2))
    results: dict[str, Any] = {}
    for name in RECIPES:
        found = adapter(trained(name, given.runs))
        try:
            results[name] = read(found, pairs, gold)
        except PlaceError:
            results[name] = None
            print(f"{name:<12} looks at nothing: one vector holds the sentence", flush=True)
            continue
        show(name, results[name])
    both = [adapter(trained("bahdanau", given.runs, back)) for back in (False, True)]
    directions = merged(both[0], both[1], pairs, gold)
    print("\nbahdanau in both directions")
    for method, one in directions.items():
        print(f"{method:<20} precision {one['precision']:6.1%}  recall {one['recall']:6.1%}  AER {one['aer']:6.1%}")
    given.out.mkdir(parents=True, exist_ok=True)
    report = {"machine": run_record(seeds=[0]), "sentences": len(pairs), "recipes": results, "directions": directions}
    (given.out / "aer.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
