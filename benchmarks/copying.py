"""Who can say a name that no training ever saw? Copying against attention alone, no attention, and a neural cache.

    python benchmarks/copying.py [--steps 600] [--stories 300] [--threads 2] [--out benchmarks/results]

Models of the recipes recurrent-lm, attentive-lm and copying-lm, trained alike, read stories whose family names and
towns are in no other split. Asked is every place where such a name comes that has been in the story before. `says it`:
the likeliest next word is the name; `of words`: it is so once the unknown token, which is no word, is left out.
`perplexity` is of held-out stories, with all words outside the vocabulary taken as one, so that all models compare. The
cache needs no training; its flatness and share are the best of a few on held-out stories. Writes copying.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from run_record import run_record
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.models.neural_cache import NeuralCache
from regard.runs.weights import load_weights
from regard.text import grammar
from regard.text.examples import IGNORED
from regard.text.grammar.nouns import HELD_OUT_NAMES
from regard.text.tokenizers.oov import compact_oov, encode_with_oov, oov_id
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training.config.recipes import read_recipe
from regard.training.distributed import World
from regard.training.loop import Loop
from regard.training.objectives.stateful_lm import closed_vocabulary_nll
from regard.training.run_writer import RunWriter
from regard.training.tasks import TASKS

WAYS = {
    "recurrent": ("recurrent-lm", []),
    "attentive": ("attentive-lm", []),
    "copying: average": ("copying-lm", ["model.copying=average"]),
    "copying: gate": ("copying-lm", ["model.copying=gate"]),
    "copying: sentinel": ("copying-lm", ["model.copying=sentinel"]),
}
CACHES = list(product((0.1, 0.3, 1.0), (0.05, 0.1, 0.2, 0.3)))  # flatness, share
ROWS = 32


class Asked(NamedTuple):
    """Stories side by side: inputs and targets (B, T), and the places where a name comes again."""

    inputs: Tensor
    targets: Tensor
    again: Tensor


def trained(name: str, sets: list[str], folder: Path) -> tuple[nn.Module, Tokenizer]:
    """The model of a recipe with its best weights."""
    recipe = read_recipe(name, [*sets, "evaluate.samples=0"], tasks=TASKS)
    folder.mkdir()
    made = recipe.prepare(folder)
    assert isinstance(recipe.train.steps, int)
    loop = Loop(made, recipe.train.steps, World(), RunWriter(folder, World(), recipe))
    loop.start()
    loop.run()
    load_weights(made.model, folder)
    return made.model.eval(), made.objective.tokenizer


def stories(tokenizer: Tokenizer, split: str, count: int) -> Iterator[Asked]:
    """Stories of a split, each read by itself from the token that opens it."""
    end, size = tokenizer.special.need("end"), len(tokenizer)
    names = torch.tensor([oov_id(name, size) for name in HELD_OUT_NAMES])
    told = [" ".join(story.sentences) for story in grammar.GeneratedCorpus(grammar.document, count, split)]
    texts = [torch.tensor([end, *one.ids]) for one in encode_with_oov(tokenizer, told)]
    for at in range(0, count, ROWS):
        rows = texts[at : at + ROWS]
        inputs = pad_sequence([row[:-1] for row in rows], batch_first=True)
        targets = pad_sequence([row[1:] for row in rows], batch_first=True, padding_value=IGNORED)
        places = torch.arange(inputs.size(1))
        before = (targets.unsqueeze(-1) == inputs.unsqueeze(1)) & (places <= places.unsqueeze(-1))  # (B, T, T)
        yield Asked(inputs, targets, before.any(-1) & torch.isin(targets, names))


@torch.no_grad()
def perplexity(model: nn.Module, batches: list[Asked], unknown: int) -> float:
    total = sum(closed_vocabulary_nll(model(one.inputs)[0], one.targets, unknown).double().sum() for one in batches)
    return float((total / sum(int((one.targets != IGNORED).sum()) for one in batches)).exp())


@torch.no_grad()
def accuracy(model: nn.Module, batches: list[Asked], size: int, unknown: int) -> dict[str, float]:
    """The share of the names that come again that the model would say."""
    right, words, count = 0, 0, 0
    for one in batches:
        both, _ = compact_oov(torch.stack((one.inputs, one.targets)), size)
        said = model(both[0])[0].log_probs()
        for_words = said.clone()
        for_words[..., unknown] = -torch.inf
        right += int(((said.argmax(-1) == both[1]) & one.again).sum())
        words += int(((for_words.argmax(-1) == both[1]) & one.again).sum())
        count += int(one.again.sum())
    return {"names": count, "says it": right / count, "of words": words / count}


def best_cache(model: nn.Module, batches: list[Asked], unknown: int) -> tuple[NeuralCache, dict[str, float]]:
    caches = [NeuralCache(model, 500, flatness, share).eval() for flatness, share in CACHES]
    found = [perplexity(cache, batches, unknown) for cache in caches]
    best = found.index(min(found))
    return caches[best], dict(zip(("flatness", "share"), CACHES[best], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, help="of training, where the recipe's are too many")
    parser.add_argument("--stories", type=int, default=300)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    results: dict[str, Any] = {"machine": run_record(seeds=[0])}
    steps = [] if arguments.steps is None else [f"train.steps={arguments.steps}"]
    print(f"{'':28}{'perplexity':>12}{'says it':>10}{'of words':>10}")
    with tempfile.TemporaryDirectory() as folder:
        for number, (way, (name, sets)) in enumerate(WAYS.items()):
            model, tokenizer = trained(name, [*sets, *steps], Path(folder) / str(number))
            unknown, size = tokenizer.special.need("unknown"), len(tokenizer)
            held, asked = list(stories(tokenizer, "valid", 100)), list(stories(tokenizer, "names", arguments.stories))
            models = {way: (model, {})}
            if way == "recurrent":
                models["recurrent, neural cache"] = best_cache(model, held, unknown)
            for title, (one, settings) in models.items():
                got = {"perplexity": perplexity(one, held, unknown), **accuracy(one, asked, size, unknown), **settings}
                results[title] = got
                print(f"{title:28}{got['perplexity']:12.2f}{got['says it']:10.1%}{got['of words']:10.1%}", flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "copying.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
