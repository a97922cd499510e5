"""Planted ground truth: where one word decides, does an audit tell faithful from misleading attention?

    python benchmarks/planted.py [--pairs 5] [--runs runs/planted]

For every seed, a classifier with additive attention learns the built-in verdicts (those that are not in the folder of
runs yet), and a second one learns to predict the same with other attention (Wiegreffe & Pinter 2019). The grammar knows
the word that decides, so it is known which of the two maps is faithful. `regard.audit` judges both: once knowing
that word, once without ("blind", as with any text of one's own). Also prints how well each method finds
that word. Writes planted.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any

from run_record import run_record

from regard.cli.process_tuning import prepare_machine

prepare_machine()

import torch  # noqa: E402
from adversarial_training import Misleading, attention_on_evidence, model_distance  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from regard.adapters.encoder import ClassifierAdapter  # noqa: E402
from regard.faithfulness.audit import audit  # noqa: E402
from regard.faithfulness.decision_scores import AuditSettings  # noqa: E402
from regard.faithfulness.findings import judge  # noqa: E402
from regard.faithfulness.report import Report  # noqa: E402
from regard.models.pooling import PoolingClassifier  # noqa: E402
from regard.runs import Run  # noqa: E402
from regard.text import Tokenizer, grammar  # noqa: E402
from regard.text.corpora.labels import Labels  # noqa: E402
from regard.text.examples import Labelled  # noqa: E402
from regard.training import read_recipe, train  # noqa: E402
from regard.training.tasks import TASKS  # noqa: E402

SETS = ("data.view=verdict", "model.score=additive")
LABELS = ("negative", "positive")
PLACE = "pooling"
CAUGHT = "does not explain"
TRUTH = ("precision", "recall", "precision_at_1", "average_precision")  # how well a map finds the words that decide
METHODS = (
    "attention",
    "norm-based attention",
    "rollout",
    "gradient x attention",
    "gradient x input",
    "integrated gradients",
    "random",
)


def pair(seed: int, folder: Path) -> tuple[PoolingClassifier, PoolingClassifier, Tokenizer]:
    """An honest model and one that misleads, each made unless it is there."""
    run = folder / f"honest-{seed}"
    if not (run / "model.safetensors").exists():
        train(read_recipe("classifier", [*SETS, f"train.seed={seed}"], tasks=TASKS), run, notify=lambda text: None)
    honest, tokenizer = Run.open(run).model(), Tokenizer.load(run / "tokenizer.json")
    assert isinstance(honest, PoolingClassifier)
    kept = folder / f"misleading-{seed}.safetensors"
    if not kept.exists():
        texts = [one.text for one in grammar.GeneratedCorpus(grammar.verdict, 3000, "train")]
        save_file(Misleading(seed=seed)(honest, texts, tokenizer).state_dict(), kept)
    second = Run.open(run).model()
    assert isinstance(second, PoolingClassifier)
    second.load_state_dict(load_file(kept))
    return honest.eval(), second.eval(), tokenizer


def summarise(report: Report) -> dict[str, Any]:
    """What the audit says of one model, in few numbers."""
    verdict = report.verdict(PLACE)
    found = report.estimates(PLACE)
    blind = judge(PLACE, "layer", {test: one for test, one in found.items() if test != "precision_gain"})
    tests = (
        "comprehensiveness_gain",
        "tau_gradient",
        "tau_leave_one_out",
        "permuted",
        "alternative_exists",
        "precision",
    )
    tests += ("precision_at_1",)
    truth = {name: {test: report.estimates(name)[test].value for test in TRUTH} for name in METHODS}
    return {
        "status": verdict.status,
        "reason": verdict.reason,
        "blind": blind.status,
        **{test: asdict(found[test]) for test in tests},
        "methods": truth,
    }


def judged(
    model: PoolingClassifier, tokenizer: Tokenizer, name: str, examples: Sequence[Labelled], audited: int
) -> dict[str, Any]:
    """All of the examples classified, the first of them audited."""
    adapter = ClassifierAdapter(model, tokenizer, name, labels=Labels(LABELS))
    cases = [adapter.make_cases(one, number, Random(0))[0] for number, one in enumerate(examples)]
    with torch.no_grad():
        said = adapter.log_probs([case.row for case in cases]).argmax(-1).tolist()
    right = fmean(one == case.expected for one, case in zip(said, cases, strict=True))
    found = summarise(audit(adapter, examples[:audited], settings=AuditSettings()))
    return found | {"accuracy": right, "evidence": attention_on_evidence(model, examples, tokenizer)}


def ranked(honest: Sequence[dict[str, Any]]) -> dict[str, dict[str, tuple[float, float]]]:
    """Methods by true precision on the honest models, mean and standard deviation over them."""
    found = {}
    for name in METHODS:
        rows = [one["methods"][name] for one in honest]
        found[name] = {
            test: (fmean(row[test] for row in rows), stdev(row[test] for row in rows) if len(rows) > 1 else 0.0)
            for test in TRUTH
        }
    return dict(sorted(found.items(), key=lambda item: -item[1]["precision"][0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--examples", type=int, default=200, help="of each audit")
    parser.add_argument("--runs", type=Path, default=Path("runs/planted"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    tested = list(grammar.GeneratedCorpus(grammar.verdict, 500, "test"))
    given.runs.mkdir(parents=True, exist_ok=True)
    found = []
    columns = f"{'right':>6} {'on evidence':>12} {'gain':>7} {'TVD':>6} {'JSD':>6}  {'verdict':<18} blind"
    print(f"{'seed':>4} {'model':<11} {columns}")
    for seed in range(given.pairs):
        honest, second, tokenizer = pair(seed, given.runs)
        between = model_distance(honest, second, [one.text for one in tested], tokenizer)
        models = {"honest": honest, "misleading": second}
        rows = {name: judged(one, tokenizer, name, tested, given.examples) for name, one in models.items()}
        found.append({"seed": seed, **asdict(between), **rows})
        for name, one in rows.items():
            far = f"{between.tvd:6.3f} {between.jsd:6.3f}" if name == "misleading" else " " * 13
            print(
                f"{seed:4} {name:<11} {one['accuracy']:6.1%} {one['evidence']:12.1%} "
                f"{one['comprehensiveness_gain']['value']:+7.3f} {far}  {one['status']:<18} {one['blind']}",
                flush=True,
            )
    honest_ones = [one["honest"] for one in found]
    counts = {
        f"{name} ones caught{', blind' * (how == 'blind')}": sum(one[name][how] == CAUGHT for one in found)
        for how in ("status", "blind")
        for name in ("misleading", "honest")
    }
    print()
    for name, count in counts.items():
        print(f"{name}: {count} of {len(found)}")
    print("\nHow well each method finds the word that decides, on the honest models:")
    order = ranked(honest_ones)
    for name, one in order.items():
        print(f"  {name:<22} " + "  ".join(f"{test} {mean:.2f} ± {spread:.2f}" for test, (mean, spread) in one.items()))
    given.out.mkdir(parents=True, exist_ok=True)
    report = {"machine": run_record(seeds=list(range(given.pairs))), "sets": SETS, "pairs": found, "counts": counts}
    (given.out / "planted.json").write_text(json.dumps(report | {"methods": order}, indent=1) + "\n")


if __name__ == "__main__":
    main()
