"""Configurations of BERT, bare, as it is pre-trained, and with the head of a task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from torch import nn

from regard.models.bert import FEEDFORWARDS, SIZES, Bert, BertSize, MaskedLM
from regard.models.bert_heads import BertFeatures, Pooling, SequenceClassifier, SpanPredictor, TokenClassifier
from regard.models.blocks import BERT

SizeName = Literal["tiny", "mini", "small", "medium", "base"]
BertActivation = Literal["gelu", "gelu_new", "relu"]
BertLayer = int | Literal["mix"] | None


@dataclass(frozen=True, kw_only=True)
class _BertSize:
    """A published size by name; `layers`, `width` and `heads` override it.

    `max_positions`: how many positions are learned. `feedforward_dim`: width of the feed-forward layers, by default
    4 x width. `segments`: how many segment embeddings. `eps`: of the layer norms.
    """

    vocabulary: int
    size: SizeName = "tiny"
    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    max_positions: int = 128
    dropout: float = 0.1
    feedforward_dim: int | None = None
    activation: BertActivation = "gelu"
    segments: int = 2
    eps: float = 1e-12

    def _bert(self) -> Bert:
        named = SIZES[self.size]
        size = BertSize(self.layers or named.layers, self.width or named.width, self.heads, self.feedforward_dim)
        block = replace(BERT, norm=partial(nn.LayerNorm, eps=self.eps), feedforward=FEEDFORWARDS[self.activation])
        return Bert.of(
            self.vocabulary,
            size,
            max_positions=self.max_positions,
            segments=self.segments,
            dropout=self.dropout,
            block=block,
        )


@dataclass(frozen=True, kw_only=True)
class BertConfig(_BertSize):
    """The BERT encoder alone."""

    def build(self) -> Bert:
        return self._bert()


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig(_BertSize):
    """BERT for pre-training: with the heads of masked language modelling and next-sentence prediction."""

    def build(self) -> MaskedLM:
        return MaskedLM(self._bert())


@dataclass(frozen=True, kw_only=True)
class _FinetunedBert(_BertSize):
    """BERT under a task head.

    `finetune`: whether BERT is trained with the task; if not, its states are features. `layer`: which
    layer's states, by default the last; 0 are the embeddings, "mix" is a learned average of all layers.
    """

    UNUSED: ClassVar[tuple[str, ...]] = ("pretrained",)  # settings of [model] about initial weights

    finetune: bool = True
    layer: BertLayer = None

    def _features(self, pooler: bool = False) -> BertFeatures:
        return BertFeatures(self._bert(), self.layer, self.finetune, pooler)


@dataclass(frozen=True, kw_only=True)
class SequenceClassifierConfig(_FinetunedBert):
    """BERT for sequence classification: a linear classifier on one vector of the text.

    `pooling`: "pooler" is tanh(W [CLS] + b), as published and of the last layer alone; or the state of [CLS], the mean
    of all states, or attention pooling with a learned query.
    """

    classes: int
    pooling: Pooling = "pooler"

    def build(self) -> SequenceClassifier:
        features = self._features(pooler=self.pooling == "pooler")
        return SequenceClassifier(features, self.classes, self.pooling, self.dropout)


@dataclass(frozen=True, kw_only=True)
class TokenClassifierConfig(_FinetunedBert):
    """BERT for token classification: a linear classifier on the state of each word's first piece."""

    classes: int

    def build(self) -> TokenClassifier:
        return TokenClassifier(self._features(), self.classes, self.dropout)


@dataclass(frozen=True, kw_only=True)
class SpanPredictorConfig(_FinetunedBert):
    """BERT for extractive question answering: logits of the start and the end of the answer."""

    def build(self) -> SpanPredictor:
        return SpanPredictor(self._features(), self.dropout)
