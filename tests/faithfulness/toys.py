"""Adapters of models small enough to compute by hand, and one whose probabilities are given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.adapters.case import Case, Example, InputRow
from regard.adapters.causal_lm import CausalLMAdapter
from regard.adapters.encoder import ClassifierAdapter, MaskedLMAdapter
from regard.adapters.translator import TranslatorAdapter
from regard.attention.scores import Score
from regard.decoding.translate import Translator
from regard.faithfulness.adversary import AdversarySearch
from regard.faithfulness.decision_scores import AuditSettings
from regard.models.bert import Bert, BertSize, MaskedLM
from regard.models.bert_heads import BertFeatures, SequenceClassifier
from regard.models.blocks import BlockConfig, gelu_feedforward
from regard.models.decoders import Bahdanau
from regard.models.embedding import WordEmbedding as Vectors
from regard.models.gpt import GPT
from regard.models.pointer import PointerGenerator
from regard.models.pooling import BiRNN, PoolingClassifier
from regard.models.rnn_encoder import BiRNNEncoder
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import TransformerSize as Sizes, build_transformer
from regard.text.corpora.labels import Labels
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import WordLevel

M = TypeVar("M", bound=nn.Module)
TEXTS = ["the film was not very good", "a dull cat", "she saw the long black film and he did not", "it was bad"]
TOKENIZER = Tokenizer.train(WordLevel(60), TEXTS)
SIZE = len(TOKENIZER)
QUICK = AuditSettings(
    permutations=2, random_orders=1, search=AdversarySearch(starts=1, steps=2), bootstrap_samples=50, batch_size=2
)
PAIRS = [("the film was bad", "a cat saw it"), ("she saw the dull cat", "he did"), ("a film", "not the long film")]


def lively(model: M, size: float = 0.6) -> M:
    """Fixed weights that are large enough to make a difference."""
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn(weight.shape, generator=rng) * size)
            if "norm" in name and name.endswith("weight"):
                weight.add_(1.0)
    return model.eval()


def classifier(classes: int = 3, score: Score | None = None, reads: bool = False) -> ClassifierAdapter:
    """Attention pooling over embeddings, or over the states of a BiRNN."""
    model = PoolingClassifier(SIZE, classes, 6, score, encoder=BiRNN(6) if reads else None)
    labels = Labels(tuple(f"c{number}" for number in range(classes)))
    return ClassifierAdapter(lively(model, 1.0), TOKENIZER, "toy", labels=labels)


def bert(pooling: str = "cls", layers: int = 2) -> ClassifierAdapter:
    """Several heads and layers; the class is read from [CLS], from the mean, or by attention pooling."""
    inner = Bert.of(SIZE, BertSize(layers, 8, heads=2), max_positions=24, dropout=0.0)
    model = SequenceClassifier(BertFeatures(inner, pooler=pooling == "pooler"), 3, pooling)  # type: ignore[arg-type]
    return ClassifierAdapter(lively(model), TOKENIZER, "bert")


def filler() -> MaskedLMAdapter:
    inner = Bert.of(SIZE, BertSize(2, 8, heads=2), max_positions=24, dropout=0.0)
    return MaskedLMAdapter(lively(MaskedLM(inner)), TOKENIZER, "filler")


def language_model() -> CausalLMAdapter:
    return CausalLMAdapter(lively(GPT(SIZE, 8, 2, 2, 24)), TOKENIZER, "gpt")


def translating(kind: str = "bahdanau") -> TranslatorAdapter:
    """A translator of the toy vocabulary."""
    words = [Vectors(SIZE, 6, TOKENIZER.special.unknown) for _ in range(2)]
    model = {
        "bahdanau": lambda: Seq2Seq(BiRNNEncoder(words[0], 8), Bahdanau(6, 8, 8), words[1]),
        "pointer": lambda: PointerGenerator(BiRNNEncoder(words[0], 8), Bahdanau(6, 8, 8), words[1]),
        "transformer": lambda: build_transformer(
            SIZE, Sizes(2, 8, 2, 12), BlockConfig(feedforward=gelu_feedforward)
        ),  # smooth, so that few steps integrate it
    }[kind]()
    return TranslatorAdapter(
        Translator(lively(model, 0.4 if kind == "transformer" else 0.6), TOKENIZER, TOKENIZER), kind
    )


def cases(adapter: object, *examples: Example) -> list[Case]:
    """The decisions on these examples."""
    return [
        case
        for number, example in enumerate(examples)
        for case in adapter.make_cases(example, number, Random(number))  # type: ignore[attr-defined]
    ]


def rows(adapter: object, *examples: Example) -> list[InputRow]:
    return [case.row for case in cases(adapter, *examples)]


def row(*ids: int) -> InputRow:
    """These tokens, all removable, without special tokens."""
    return InputRow(ids, (True,) * len(ids), (0,) * len(ids))


class Known:
    """An adapter with given p (C,) for every set of tokens; counts the rows that it was run on."""

    name, decision = "known", "class"

    def __init__(self, p: Callable[[frozenset[int]], Sequence[float]]) -> None:
        self.p, self.asked, self.model = p, 0, nn.Module()

    def log_probs(self, rows: Sequence[InputRow]) -> Tensor:
        self.asked += len(rows)
        return torch.tensor([self.p(frozenset(row.ids)) for row in rows], dtype=torch.float64).log()
