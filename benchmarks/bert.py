"""What BERT's reading is worth: with few labels, as frozen features of each layer, for words of two senses.

    python benchmarks/bert.py [--run runs/bert] [--labels 200] [--seeds 5] [--parts labels ...]

1. Labels: opinions of the built-in grammar, `--labels` of them to learn from, 500 others to be asked about. The same
   network, trained alike, begins with what the run knows, or with chance. Every seed draws other labels, other weights
   above and another order.
2. Layers: BERT stays as it is; a linear layer learns from the states of one layer, or of all of them, mixed: the
   opinions again, from their mean, and the part of speech of each word.
3. Senses: a linear probe tells the noun train from the verb (and so for other words) by the word's state in each layer.
   A static vector is the word's row of the same network's embedding, the same wherever it stands.

Without --run, recipe `bert` is trained first. Writes bert.json, to which a run of some `--parts` adds its own,
and, from all that it holds, bert-labels.png and bert-layers.png.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from homonyms import SEEDS as SPLITS, Seen, score, seen, told
from run_record import run_record

from regard.inspection.embeddings import Embedder
from regard.models.config import BertConfig
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.tasks.masked_lm import MaskedLMRecipe
from regard.training.train_run import load_recipe, train

Accuracies = dict[str, list[float]]  # by way of training, one a seed
Report = dict[str, Any]
PARTS = ("labels", "layers", "tags", "senses")


def trained(folder: Path, labels: int, seed: int, *sets: str) -> float:
    """The accuracy that recipe bert-classifier ends with, learning from so many labels."""
    common = [f"data.examples={labels}", f"data.seed={seed}", f"train.seed={seed}", f"name=seed-{seed}"]
    quiet = ["evaluate.samples=0", "train.threads=1", "checkpoint.every=100000"]
    recipe = read_recipe("bert-classifier", [*common, *quiet, *sets], tasks=TASKS)
    ended = train(recipe, folder, notify=lambda text: None)
    return float(ended.metrics["accuracy"])


def few_labels(run: Path, folder: Path, labels: int, seeds: int, steps: int) -> Accuracies:
    """With what the run knows, and the same network without."""
    theirs = load_recipe(run)
    assert isinstance(theirs, MaskedLMRecipe)
    size = [f"model.{name}={value}" for name, value in theirs.model.model_dump(exclude={"kind", "dropout"}).items()]
    same = [
        "tokenizer.kind=file",
        f"tokenizer.path={run / 'tokenizer.json'}",
        *(one for one in size if "None" not in one),
    ]
    ways = {"pre-trained": [f"model.pretrained={run}"], "from scratch": same}
    found: Accuracies = {name: [] for name in ways}
    for seed in range(seeds):
        for name, sets in ways.items():
            often = [f"train.steps={steps}", f"evaluate.every={steps}"]
            found[name].append(trained(folder / f"{name}-{seed}", labels, seed, *sets, *often))
            print(f"{labels} labels, seed {seed}, {name}: {found[name][-1]:.3f}", flush=True)
    return found


def by_layer(run: Path, folder: Path, labels: int, seeds: int, steps: int) -> Accuracies:
    """Opinions, from frozen features of each layer, and of their mix."""
    found: Accuracies = {}
    for layer in _layers(run):
        sets = [f"model.pretrained={run}", "model.finetune=false", f"model.layer={layer}"]
        sets += [f"train.steps={steps}", f"evaluate.every={steps}", "optimiser.learning_rate=1e-2", "model.dropout=0.0"]
        found[layer] = [trained(folder / f"layer-{layer}-{seed}", labels, seed, *sets) for seed in range(seeds)]
        print(f"frozen, layer {layer}: {statistics.mean(found[layer]):.3f}", flush=True)
    return found


def tags_by_layer(run: Path, folder: Path, sentences: int, seeds: int) -> Accuracies:
    """Parts of speech, from frozen features of each layer, and of their mix."""
    found: Accuracies = {}
    for layer in _layers(run):
        found[layer] = []
        for seed in range(seeds):
            sets = ["model.kind=bert", f"model.pretrained={run}", "model.finetune=false", f"model.layer={layer}"]
            sets += [f"data.examples={sentences}", f"data.seed={seed}", f"train.seed={seed}", "train.steps=300"]
            sets += ["evaluate.every=300", "evaluate.samples=0", "train.threads=1", "checkpoint.every=100000"]
            recipe = read_recipe(
                "elmo-tagger", [*sets, "optimiser.learning_rate=1e-2", "model.dropout=0.0"], tasks=TASKS
            )
            ended = train(recipe, folder / f"tags-{layer}-{seed}", notify=lambda text: None)
            found[layer].append(float(ended.metrics["accuracy"]))
        print(f"parts of speech, frozen, layer {layer}: {statistics.mean(found[layer]):.3f}", flush=True)
    return found


def _layers(run: Path) -> list[str]:
    theirs = load_recipe(run)
    assert isinstance(theirs, MaskedLMRecipe)
    bert = BertConfig(vocabulary=8, **theirs.model.model_dump(exclude={"kind"})).build()
    return [*map(str, range(bert.layers + 1)), "mix"]


def senses(run: Path, count: int) -> dict[str, dict[str, tuple[float, float]]]:
    """Right answers of a linear probe for each layer, for `train` and for all words of several senses together."""
    recipe = load_recipe(run)
    assert isinstance(recipe, MaskedLMRecipe)
    embedder = Embedder.of(run)
    words = seen(embedder, count, set(recipe.data.training()))
    static = {word: [_static(embedder, word, one) for one in found] for word, found in words.items()}
    results = {}
    for name, those in (("states", words), ("static", static)):
        scores = {word: [score(found, seed) for seed in range(SPLITS)] for word, found in those.items()}
        results[f"train, {name}"] = told([[one] for one in scores["train"]])
        results[f"all words, {name}"] = told([list(each) for each in zip(*scores.values(), strict=True)])
    return results


def _static(embedder: Embedder, word: str, one: Seen) -> Seen:
    """The same word with the vector that it has everywhere."""
    [number, *_] = embedder.adapter.tokenizer.ids_batch([word])[0]
    return one._replace(vectors=embedder.adapter.encoder.words[number].detach().unsqueeze(0))


def labels_drawn(report: Report, path: Path) -> None:
    """Bars with one standard deviation over seeds, and every seed as a dot."""
    figure, axes = _figure(3.6)
    for at, (_, ways) in enumerate(report["few labels"].items()):
        axes.bar(at, ways["mean"], 0.6, yerr=ways["stdev"], capsize=5, color="#9db8d9", ecolor="#26405e")
        axes.plot([at + 0.18] * len(ways["seeds"]), ways["seeds"], ".", color="#26405e", markersize=5)
    axes.set_xticks(range(len(report["few labels"])), list(report["few labels"]))
    axes.set_title(f"{report['labels']} labels, the same network", fontsize=10)
    figure.savefig(path, dpi=150)


def layers_drawn(report: Report, path: Path) -> None:
    """A line for each question, over the layers, with one standard deviation over seeds."""
    figure, axes = _figure(5.4)
    lines = {"opinions": report["frozen layers"], "parts of speech": report["tags"]}
    for (name, found), colour in zip(lines.items(), ("#26405e", "#c0632b"), strict=True):
        means, spreads = ([one[key] for one in found.values()] for key in ("mean", "stdev"))
        axes.errorbar(range(len(found)), means, spreads, marker="o", capsize=4, color=colour, label=name)
    probed = {place: pair for place, pair in report["senses"]["train, states"].items() if place.startswith("layer")}
    means, spreads = ([pair[at] for pair in probed.values()] for at in (0, 1))
    axes.errorbar(range(len(probed)), means, spreads, marker="o", capsize=4, color="#3d7a4f", label="senses of train")
    axes.set_xticks(range(len(report["tags"])), list(report["tags"]))
    axes.set_xlabel("layer (0: the embedded words)")
    axes.legend(fontsize=9, loc="center right")
    axes.set_title("what a linear layer reads off frozen states", fontsize=10)
    figure.savefig(path, dpi=150)


def _figure(width: float) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(width, 3.6), constrained_layout=True)
    axes.axhline(0.5, color="#888888", linewidth=0.8, linestyle="--")
    axes.set_ylim(0.4, 1.02)
    axes.set_ylabel("accuracy")
    return figure, axes


def summed(accuracies: Accuracies) -> dict[str, dict[str, object]]:
    return {
        name: {"mean": statistics.mean(some), "stdev": statistics.stdev(some) if len(some) > 1 else 0.0, "seeds": some}
        for name, some in accuracies.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, help="a run of task masked; trained first unless given")
    parser.add_argument("--labels", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600, help="of every fine-tuning")
    parser.add_argument("--examples", type=int, default=5000, help="sentences to draw for the senses")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--figures", type=Path, default=Path("docs/figures"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    kept = asked.out / "bert.json"
    report: Report = json.loads(kept.read_text()) if kept.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run = (asked.run or folder / "bert").resolve()
        if asked.run is None:
            train(read_recipe("bert", tasks=TASKS), run)
        report |= {"machine": run_record(seeds=list(range(asked.seeds))), "labels": asked.labels, "steps": asked.steps}
        report["model"] = load_recipe(run).model_dump(mode="json")["model"]
        if "labels" in asked.parts:
            report["few labels"] = summed(few_labels(run, folder, asked.labels, asked.seeds, asked.steps))
        if "layers" in asked.parts:
            report["frozen layers"] = summed(by_layer(run, folder, asked.labels, asked.seeds, asked.steps))
        if "tags" in asked.parts:
            report["tags"] = summed(tags_by_layer(run, folder, asked.labels, asked.seeds))
        if "senses" in asked.parts:
            report["senses"] = senses(run, asked.examples)
    kept.write_text(json.dumps(report, indent=1) + "\n")
    for name, found in report.get("senses", {}).items():
        print(f"{name:20}", "  ".join(f"{key} {100 * mean:.1f} ± {100 * s:.1f}" for key, (mean, s) in found.items()))
    asked.figures.mkdir(parents=True, exist_ok=True)
    if "few labels" in report:
        labels_drawn(report, asked.figures / "bert-labels.png")
    if {"frozen layers", "tags", "senses"} <= set(report):
        layers_drawn(report, asked.figures / "bert-layers.png")


if __name__ == "__main__":
    main()
