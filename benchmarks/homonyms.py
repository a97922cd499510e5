"""Does a word's vector know which of its meanings is meant? A linear probe on every layer of ELMo.

    python benchmarks/homonyms.py [--run runs/elmo] [--examples 12000] [--out benchmarks/results]

Sentences of the built-in grammar hold a word of two or more meanings (he took a train, he likes to train); its French
counterpart says which. For each such word, as many sentences of each meaning are taken, and a logistic regression on
the word's vector learns to tell them apart, from other sentences than those it is asked about; ELMo has read none of
them. Layer 0 is the word by itself, the same vector everywhere, so it can only guess; what the other layers add is
context. Without --run, recipe `elmo` is trained first. Prints mean and standard deviation over five splits; writes
homonyms.json.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Set
from pathlib import Path
from typing import NamedTuple

import torch
from run_record import run_record
from torch import Tensor, nn

from regard.inspection.embeddings import Embedder
from regard.text import grammar
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.tasks.contextual import ContextualRecipe
from regard.training.train_run import load_recipe, train

SEEDS = 5
LEAST = 24  # sentences of a meaning, or it is left out
TESTED = 0.25  # share of the sentences that the probe is asked about
DECAY = 1e-2  # of the probe's weights


class Seen(NamedTuple):
    """A word of several meanings in one sentence; `vectors` (L, D): it in every layer."""

    text: str
    sense: str
    vectors: Tensor


class Score(NamedTuple):
    """Right answers of the probe of each layer, of always saying the commonest meaning, and how many were asked."""

    layers: list[int]
    majority: int
    asked: int


def seen(embedder: Embedder, count: int, read: Set[str]) -> dict[str, list[Seen]]:
    """Words with two or more meanings that occur often enough, in sentences that the model has not read."""
    examples = [one for one in grammar.GeneratedCorpus(grammar.sense, count) if one.text not in read]
    words: dict[str, list[Seen]] = defaultdict(list)
    for example, one in zip(examples, embedder.embed([one.text for one in examples], "all"), strict=True):
        words[example.word.lower()].append(Seen(example.text, example.sense, one.vectors[example.index]))
    common = {word: _common(found) for word, found in words.items()}
    return {word: found for word, found in sorted(common.items()) if len({one.sense for one in found}) > 1}


def _common(found: list[Seen]) -> list[Seen]:
    senses = [one.sense for one in found]
    return [one for one in found if senses.count(one.sense) >= LEAST]


def split(found: list[Seen], seed: int) -> tuple[list[Seen], list[Seen]]:
    """As many of each meaning, shuffled; no sentence is on both sides."""
    chance = random.Random(seed)
    by_sense: dict[str, list[Seen]] = defaultdict(list)
    for one in chance.sample(found, len(found)):
        by_sense[one.sense].append(one)
    least = min(map(len, by_sense.values()))
    tested = round(TESTED * least)
    asked = {one.text for some in by_sense.values() for one in some[:tested]}
    learned = [one for some in by_sense.values() for one in some[tested:least] if one.text not in asked]
    return learned, [one for some in by_sense.values() for one in some[:tested]]


def probe(x: Tensor, y: Tensor, classes: int) -> nn.Linear:
    """Logistic regression: the minimum of mean - ln p(y | x) + decay |W|^2 (it is convex)."""
    linear = nn.Linear(x.size(1), classes, dtype=x.dtype)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    optimiser = torch.optim.LBFGS(linear.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(linear(x), y) + DECAY * linear.weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    return linear


def score(found: list[Seen], seed: int) -> Score:
    learned, asked = split(found, seed)
    senses = sorted({one.sense for one in found})
    targets = [torch.tensor([senses.index(one.sense) for one in some]) for some in (learned, asked)]
    inputs = [torch.stack([one.vectors for one in some]).double() for some in (learned, asked)]  # (n, L, D)
    right = []
    for layer in range(inputs[0].size(1)):
        x, tested = inputs[0][:, layer], inputs[1][:, layer]
        mean, spread = x.mean(0), x.std(0).clamp(min=1e-6)
        linear = probe((x - mean) / spread, targets[0], len(senses))
        right.append(int((linear((tested - mean) / spread).argmax(-1) == targets[1]).sum()))
    commonest = int(targets[0].bincount().argmax())
    return Score(right, int((targets[1] == commonest).sum()), len(asked))


def told(scores: list[list[Score]]) -> dict[str, tuple[float, float]]:
    """Accuracies over all words of each seed: mean and standard deviation over seeds; scores[seed][word]."""
    names = ["majority", *(f"layer {number}" for number in range(len(scores[0][0].layers)))]
    shares = []
    for some in scores:
        asked = sum(one.asked for one in some)
        layers = zip(*(one.layers for one in some), strict=True)
        shares.append([sum(one.majority for one in some) / asked, *(sum(layer) / asked for layer in layers)])
    columns = zip(*shares, strict=True)
    return {name: (statistics.mean(one), statistics.stdev(one)) for name, one in zip(names, columns, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, help="a run of task contextual; trained first unless given")
    parser.add_argument("--examples", type=int, default=12000, help="sentences to draw")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        run = arguments.run or Path(temporary) / "elmo"
        if arguments.run is None:
            train(read_recipe("elmo", tasks=TASKS), run)
        recipe = load_recipe(run)
        assert isinstance(recipe, ContextualRecipe)
        read = set(recipe.data.training())
        words = seen(Embedder.of(run), arguments.examples, read)
    scores = {word: [score(found, seed) for seed in range(SEEDS)] for word, found in words.items()}
    results = {word: told([[one] for one in some]) for word, some in scores.items()}
    results["all"] = told([list(each) for each in zip(*scores.values(), strict=True)])
    print(f"{'':12} {'sentences':>9}  " + "".join(f"{name:>16}" for name in results["all"]))
    for word, found in results.items():
        count = sum(len(words[one]) for one in words) if word == "all" else len(words[word])
        cells = "".join(f"{f'{100 * mean:.1f} ± {100 * spread:.1f}':>16}" for mean, spread in found.values())
        print(f"{word:12} {count:9,}  {cells}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    report = {"machine": run_record(seeds=list(range(SEEDS))), "examples": arguments.examples, "seeds": SEEDS}
    report |= {"model": recipe.model.model_dump(), "accuracy": results}
    (arguments.out / "homonyms.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
