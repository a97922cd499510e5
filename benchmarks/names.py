"""Names that no training has seen: how often a translator says them right, with and without pointing at the source.

    python benchmarks/names.py [--runs runs]

Trains the recipes bahdanau and pointer (those that are not in the folder of runs yet), lets each translate sentences of
the split `names`, whose family names and towns occur in no other split, and counts which of those names are in the
translation. Writes benchmarks/results/names.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from run_record import run_record

from regard.cli.process_tuning import prepare_machine
from regard.decoding.beam import Beam, LengthPenalty
from regard.runs import Run
from regard.text import grammar
from regard.text.grammar.nouns import HELD_OUT_NAMES
from regard.training import read_recipe, train
from regard.training.metrics import bleu
from regard.training.tasks import TASKS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--sentences", type=int, default=1000)
    told = parser.parse_args()
    prepare_machine()
    pairs = list(grammar.GeneratedCorpus(grammar.translation, told.sentences, "names"))
    found: dict[str, Any] = {"machine": run_record("sacrebleu", seeds=[0])}
    for name in ("bahdanau", "pointer"):
        run = told.runs / name
        if not (run / "model.safetensors").exists():
            train(read_recipe(name, tasks=TASKS), run)
        texts = [
            best.text
            for best, *_ in Run.open(run).translator()([pair.source for pair in pairs], Beam(5, LengthPenalty(0.6)))
        ]
        asked = right = 0
        for pair, text in zip(pairs, texts, strict=True):
            names = [word for word in pair.target.split() if word in HELD_OUT_NAMES]
            asked += len(names)
            right += sum(word in text.split() for word in names)
        grade = bleu(texts, [pair.target for pair in pairs])
        found[name] = {"names": asked, "right": right, "accuracy": right / asked, "bleu": grade.value}
        print(f"{name:<10} {right:,} of {asked:,} unseen names right ({right / asked:.1%}); BLEU {grade.value:.1f}")
    Path("benchmarks/results/names.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
