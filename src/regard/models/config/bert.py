"""Configurations of BERT, bare, as it is pre-trained, and with the head of a task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from torch import nn

from regard.models.bert import FEEDS, SIZES, Bert, MaskedLM, Size
from regard.models.bert_heads import OnSpans, OnText, OnTokens, Pooling, Reading
from regard.models.blocks import BERT

SizeName = Literal["tiny", "mini", "small", "medium", "base"]
BertActivation = Literal["gelu", "gelu_new", "relu"]
LayerChoice = int | Literal["mix"] | None


@dataclass(frozen=True, kw_only=True)
class _BertSize:
    """A published size by name, where `layers`, `width` and `heads` do not say otherwise.

    `positions`: how many are learned. `hidden`: width of the feed-forward layers, by default 4 x width. `segments`: how
    many texts of a row are told apart. `eps`: of the layer norms.
    """

    vocabulary: int
    size: SizeName = "tiny"
    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    positions: int = 128
    dropout: float = 0.1
    hidden: int | None = None
    activation: BertActivation = "gelu"
    segments: int = 2
    eps: float = 1e-12

    def _bert(self) -> Bert:
        named = SIZES[self.size]
        size = Size(self.layers or named.layers, self.width or named.width, self.heads, self.hidden)
        style = replace(BERT, norm=partial(nn.LayerNorm, eps=self.eps), feed=FEEDS[self.activation])
        return Bert.of(
            self.vocabulary, size, positions=self.positions, segments=self.segments, dropout=self.dropout, style=style
        )


@dataclass(frozen=True, kw_only=True)
class BertConfig(_BertSize):
    """The encoder alone."""

    def build(self) -> Bert:
        return self._bert()


@dataclass(frozen=True, kw_only=True)
class MaskedLMConfig(_BertSize):
    """BERT with a vocabulary layer for masked tokens and a classifier of next sentences."""

    def build(self) -> MaskedLM:
        return MaskedLM(self._bert())


@dataclass(frozen=True, kw_only=True)
class _FinetunedBert(_BertSize):
    """BERT under a task head.

    `tune`: whether it goes on learning; where not, its states are features. `layer`: whose states, by default the last
    one's; 0 are the embeddings, "mix" is a learned average of all layers.
    """

    UNUSED: ClassVar[tuple[str, ...]] = ("start",)  # settings of [model] that say how the weights were made

    tune: bool = True
    layer: LayerChoice = None

    def _features(self, pooler: bool = False) -> Reading:
        return Reading(self._bert(), self.layer, self.tune, pooler)


@dataclass(frozen=True, kw_only=True)
class SequenceClassifierConfig(_FinetunedBert):
    """BERT and a linear classifier on one vector of the text.

    `pooling`: "pooler" is tanh(W [CLS] + b), as published and of the last layer alone; or the state of [CLS], the mean
    of all states, or attention pooling with a learned query.
    """

    classes: int
    pooling: Pooling = "pooler"

    def build(self) -> OnText:
        features = self._features(pooler=self.pooling == "pooler")
        return OnText(features, self.classes, self.pooling, self.dropout)


@dataclass(frozen=True, kw_only=True)
class TokenClassifierConfig(_FinetunedBert):
    """BERT and a linear classifier on the state of each word's first piece."""

    classes: int

    def build(self) -> OnTokens:
        return OnTokens(self._features(), self.classes, self.dropout)


@dataclass(frozen=True, kw_only=True)
class SpanPredictorConfig(_FinetunedBert):
    """BERT for extractive question answering: where the answer begins and where it ends."""

    def build(self) -> OnSpans:
        return OnSpans(self._features(), self.dropout)
