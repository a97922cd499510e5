"""Configurations of ELMo and of the taggers on its states or on plain word vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from regard.errors import SettingError
from regard.models.char_cnn import Looked, Spelled, WordVectors
from regard.models.elmo import DeepReader, ELMo, Tagger

InputName = Literal["tokens", "characters"]


@dataclass(frozen=True, eq=False)
class WordVocabulary:
    """A vocabulary: its size, its token for unknown words, and how each word is spelled (V, C), for models that read
    characters; see text.tokenizers.spelling."""

    size: int
    unknown: int
    spellings: Tensor | None = None

    def vectors(self, source: InputName, width: int) -> WordVectors:
        """Where the vectors of words come from: a table of its own, or their characters."""
        if source == "tokens":
            return Looked(self.size, width, self.unknown)
        if self.spellings is None:
            raise SettingError("no spellings", "those of the vocabulary, to read characters", where="model.input")
        return Spelled(self.spellings, width, self.unknown)


@dataclass(frozen=True, kw_only=True)
class ELMoConfig:
    """Two stacks of `layers` LSTMs, one in each direction, `width` wide each.

    `input`: a vector for each token, or made of its characters, so that words outside the vocabulary have one too.
    """

    words: WordVocabulary
    input: InputName = "tokens"
    width: int = 128
    layers: int = 2
    dropout: float = 0.1

    def build(self) -> ELMo:
        return ELMo(self.words.vectors(self.input, self.width), self.layers, self.dropout)


@dataclass(frozen=True, kw_only=True)
class ELMoTaggerConfig:
    """A tagger on the mixed layers of an ELMo; `tuned`: whether the ELMo goes on learning."""

    UNUSED: ClassVar[tuple[str, ...]] = ("elmo",)  # settings of [model] that say how the weights were made

    words: WordVocabulary
    classes: int
    tuned: bool = True
    input: InputName | None = None
    width: int | None = None
    layers: int | None = None
    dropout: float = 0.1

    def build(self) -> Tagger:
        words = self.words.vectors(self.input or ELMoConfig.input, self.width or ELMoConfig.width)
        reader = DeepReader(words, ELMoConfig.layers if self.layers is None else self.layers, self.dropout)
        return Tagger(reader, self.classes, self.dropout, self.tuned)


@dataclass(frozen=True, kw_only=True)
class WordTaggerConfig:
    """A tagger that has one vector for each word, whatever its neighbours: the baseline for context."""

    words: WordVocabulary
    classes: int
    input: InputName = "tokens"
    width: int = 128
    dropout: float = 0.1

    def build(self) -> Tagger:
        return Tagger(DeepReader(self.words.vectors(self.input, self.width), layers=0), self.classes, self.dropout)
