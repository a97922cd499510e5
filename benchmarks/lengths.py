"""Why attention exists: BLEU by the length of the sentence, with a bottleneck, with Bahdanau's and Luong's attention.

    python benchmarks/lengths.py [--runs runs] [--steps N] [--out docs/figures/lengths.png]

Trains the recipes seq2seq, bahdanau and luong (those that are not in the folder of runs yet), lets each translate the
same held-out sentences of the built-in corpus, prints BLEU by length with sacrebleu's signature, and draws it.
Writes benchmarks/results/lengths.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from run_record import run_record

from regard.cli.process_tuning import prepare_machine
from regard.decoding.beam import Beam, LengthPenalty
from regard.inspection.alignment.evaluate import evaluate_translator
from regard.runs import Run
from regard.text import grammar
from regard.training import read_log, read_recipe, train
from regard.training.tasks import TASKS

SYSTEMS = {"seq2seq": "bottleneck", "bahdanau": "Bahdanau", "luong": "Luong, global, fed"}
EDGES = (5, 10, 15, 20, 25, 30, 35, 40, 45)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("docs/figures/lengths.png"))
    told = parser.parse_args()
    prepare_machine()
    pairs = list(grammar.GeneratedCorpus(grammar.translation, told.sentences, "test"))
    found = {}
    for name in SYSTEMS:
        run = told.runs / name
        if not (run / "model.safetensors").exists():
            sets = [] if told.steps is None else [f"train.steps={told.steps}", f"evaluate.every={told.steps}"]
            train(read_recipe(name, sets, tasks=TASKS), run)
        got = evaluate_translator(Run.open(run).translator(), pairs, Beam(5, LengthPenalty(0.6)), EDGES)
        seconds = [line["seconds"] for line in read_log(run / "log.jsonl") if line["event"] == "ended"]
        aer = None if got.agreement is None else got.agreement.aer
        found[name] = {"bleu": got.bleu.value, "by_length": got.by_length, "aer": aer, "training_seconds": seconds[-1]}
        print(f"{name:<10} BLEU {got.bleu.value:5.1f}  AER {'none' if aer is None else f'{aer:.1%}'}", flush=True)
        print("   " + "  ".join(f"{words}: {value:.1f}" for words, value in got.by_length.items()))
    print(got.bleu.signature)
    results = Path("benchmarks/results/lengths.json")
    results.write_text(
        json.dumps(
            {"machine": run_record("sacrebleu", seeds=[0]), "signature": got.bleu.signature, "found": found}, indent=2
        )
        + "\n"
    )
    draw(found, told.out)


def draw(found: dict[str, dict], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, got in found.items():
        axes.plot(list(got["by_length"]), list(got["by_length"].values()), marker="o", label=SYSTEMS[name])
    axes.set_xlabel("words in the source")
    axes.set_ylabel("BLEU")
    axes.set_ylim(0, 102)
    axes.tick_params(axis="x", rotation=30)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower left")
    figure.savefig(path, dpi=150)
    print(path)


if __name__ == "__main__":
    main()
