"""Configurations of ELMo, and of taggers on its states or on context-independent word vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from torch import Tensor

from regard.errors import SettingError
from regard.models.char_cnn import CharCNN, WordTable, WordVectors
from regard.models.elmo import BiLSTMStack, ELMo, Tagger

InputName = Literal["tokens", "characters"]


@dataclass(frozen=True, eq=False)
class WordVocabulary:
    """A vocabulary: its size, its unknown token, and the characters of each word (V, C), for character inputs; see
    text/tokenizers/char_ids.py."""

    size: int
    unknown: int
    spellings: Tensor | None = field(default=None, repr=False)

    def vectors(self, source: InputName, width: int) -> WordVectors:
        """Word vectors from an embedding table, or from characters."""
        if source == "tokens":
            return WordTable(self.size, width, self.unknown)
        if self.spellings is None:
            raise SettingError("input = 'characters' needs the spellings of the vocabulary", where="model.input")
        return CharCNN(self.spellings, width, self.unknown)


@dataclass(frozen=True, kw_only=True)
class ELMoConfig:
    """Two stacks of `layers` LSTMs, one in each direction, `width` wide each.

    `input`: word vectors from a table, or from characters, so that words outside the vocabulary have one too.
    """

    vocabulary: WordVocabulary
    input: InputName = "tokens"
    width: int = 128
    layers: int = 2
    dropout: float = 0.1

    def build(self) -> ELMo:
        return ELMo(self.vocabulary.vectors(self.input, self.width), self.layers, self.dropout)


@dataclass(frozen=True, kw_only=True)
class ELMoTaggerConfig:
    """A tagger on the mixed layers of an ELMo; `finetune`: whether the ELMo is trained with the task."""

    UNUSED: ClassVar[tuple[str, ...]] = ("pretrained",)  # settings of [model] about initial weights

    vocabulary: WordVocabulary
    classes: int
    finetune: bool = True
    input: InputName | None = None
    width: int | None = None
    layers: int | None = None
    dropout: float = 0.1

    def build(self) -> Tagger:
        words = self.vocabulary.vectors(self.input or ELMoConfig.input, self.width or ELMoConfig.width)
        encoder = BiLSTMStack(words, ELMoConfig.layers if self.layers is None else self.layers, self.dropout)
        return Tagger(encoder, self.classes, self.dropout, self.finetune)


@dataclass(frozen=True, kw_only=True)
class WordTaggerConfig:
    """A tagger with one vector for each word, without context: the baseline."""

    vocabulary: WordVocabulary
    classes: int
    input: InputName = "tokens"
    width: int = 128
    dropout: float = 0.1

    def build(self) -> Tagger:
        return Tagger(
            BiLSTMStack(self.vocabulary.vectors(self.input, self.width), layers=0), self.classes, self.dropout
        )
