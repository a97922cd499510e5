"""Models small enough to work out by hand, the askers that ask them, and one whose answers are written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.adapters.case import Case, Example, Row
from regard.adapters.causal_lm import CausalLMAdapter
from regard.adapters.encoder import ClassifierAdapter, MaskedLMAdapter
from regard.adapters.translator import TranslatorAdapter
from regard.attention.scores import Score
from regard.decoding.translate import Translator
from regard.faithfulness.adversary import Search
from regard.faithfulness.run_tests import Settings
from regard.models.bert import Bert, MaskedLM, Size
from regard.models.bert_heads import OnText, Reading
from regard.models.blocks import Style, gelu
from regard.models.decoders import Bahdanau
from regard.models.embedding import Words as Vectors
from regard.models.gpt import GPT
from regard.models.pointer import PointerGenerator
from regard.models.pooling import BothWays, PoolingClassifier
from regard.models.rnn_encoder import Reader
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Size as Sizes, build_transformer
from regard.text.corpora.labels import Labels
from regard.text.tokenizers.kinds import Words
from regard.text.tokenizers.tokenizer import Tokenizer

M = TypeVar("M", bound=nn.Module)
TEXTS = ["the film was not very good", "a dull cat", "she saw the long black film and he did not", "it was bad"]
TOKENIZER = Tokenizer.train(Words(60), TEXTS)
SIZE = len(TOKENIZER)
QUICK = Settings(permutations=2, orders=1, search=Search(starts=1, steps=2), samples=50, chunk=2)
PAIRS = [("the film was bad", "a cat saw it"), ("she saw the dull cat", "he did"), ("a film", "not the long film")]


def lively(model: M, size: float = 0.6) -> M:
    """Weights that are large enough to tell something, the same each time."""
    chance = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn(weight.shape, generator=chance) * size)
            if "norm" in name and name.endswith("weight"):
                weight.add_(1.0)
    return model.eval()


def classifier(classes: int = 3, score: Score | None = None, reads: bool = False) -> ClassifierAdapter:
    """One question over the words as they are, or over states that have read the others."""
    model = PoolingClassifier(SIZE, classes, 6, score, states=BothWays(6) if reads else None)
    labels = Labels(tuple(f"c{number}" for number in range(classes)))
    return ClassifierAdapter(lively(model, 1.0), TOKENIZER, "toy", labels=labels)


def bert(pooling: str = "cls", layers: int = 2) -> ClassifierAdapter:
    """Heads, layers, and a class that is read from [CLS], from the mean, or by a question."""
    inner = Bert.of(SIZE, Size(layers, 8, heads=2), positions=24, dropout=0.0)
    model = OnText(Reading(inner, pooler=pooling == "pooler"), 3, pooling)  # type: ignore[arg-type]
    return ClassifierAdapter(lively(model), TOKENIZER, "bert")


def filler() -> MaskedLMAdapter:
    inner = Bert.of(SIZE, Size(2, 8, heads=2), positions=24, dropout=0.0)
    return MaskedLMAdapter(lively(MaskedLM(inner)), TOKENIZER, "filler")


def language_model() -> CausalLMAdapter:
    return CausalLMAdapter(lively(GPT(SIZE, 8, 2, 2, 24)), TOKENIZER, "gpt")


def translating(kind: str = "bahdanau") -> TranslatorAdapter:
    """A translator from and into the toys' words."""
    words = [Vectors(SIZE, 6, TOKENIZER.special.unknown) for _ in range(2)]
    model = {
        "bahdanau": lambda: Seq2Seq(Reader(words[0], 8), Bahdanau(6, 8, 8), words[1]),
        "pointer": lambda: PointerGenerator(Reader(words[0], 8), Bahdanau(6, 8, 8), words[1]),
        "transformer": lambda: build_transformer(
            SIZE, Sizes(2, 8, 2, 12), Style(feed=gelu)
        ),  # smooth, so that few steps integrate it
    }[kind]()
    return TranslatorAdapter(
        Translator(lively(model, 0.4 if kind == "transformer" else 0.6), TOKENIZER, TOKENIZER), kind
    )


def cases(asker: object, *examples: Example) -> list[Case]:
    """The decisions that these examples are good for."""
    return [
        case
        for number, example in enumerate(examples)
        for case in asker.cases(example, number, Random(number))  # type: ignore[attr-defined]
    ]


def rows(asker: object, *examples: Example) -> list[Row]:
    return [case.row for case in cases(asker, *examples)]


def row(*ids: int) -> Row:
    """These tokens and nothing around them, all free to be taken away."""
    return Row(ids, (True,) * len(ids), (0,) * len(ids))


class Known:
    """An adapter whose p (C,) of every set of tokens is written down; it counts how many rows it was asked about."""

    name, decides = "known", "class"

    def __init__(self, p: Callable[[frozenset[int]], Sequence[float]]) -> None:
        self.p, self.asked, self.model = p, 0, nn.Module()

    def log_probs(self, rows: Sequence[Row]) -> Tensor:
        self.asked += len(rows)
        return torch.tensor([self.p(frozenset(row.ids)) for row in rows], dtype=torch.float64).log()
