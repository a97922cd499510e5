"""Fields that also keep how words outside the vocabulary are spelled: "outside", for models that read letters.

A row of it is the UTF-8 of the row's unknown words, one for each unknown token, in order, a zero byte between them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.text.examples import Document, Tagged
from regard.text.store.columns import Columns, Flat
from regard.text.store.fields import DocumentFields, TaggedFields
from regard.text.tokenizers.oov import opened
from regard.text.tokenizers.tokenizer import Tokenizer

BETWEEN = "\0"


class SpelledDocuments(DocumentFields):
    """DocumentFields, and "outside"."""

    def encode(self, examples: Sequence[Document]) -> Columns:
        sentences = [sentence for one in examples for sentence in one.sentences]
        return _with_outside(super().encode(examples), sentences, self.tokenizer)

    @property
    def identity(self) -> dict[str, str]:
        return {**super().identity, "outside": "spelled"}


class SpelledTags(TaggedFields):
    """TaggedFields, and "outside"."""

    def encode(self, examples: Sequence[Tagged]) -> Columns:
        return _with_outside(super().encode(examples), [" ".join(one.words) for one in examples], self.tokenizer)

    @property
    def identity(self) -> dict[str, str]:
        return {**super().identity, "outside": "spelled"}


def outside_words(columns: Columns, row: int) -> list[str]:
    """The words that the unknown tokens of a row stand for, in order."""
    text = bytes(columns["outside"][row].astype(np.uint8)).decode()
    return text.split(BETWEEN) if text else []


def _with_outside(columns: Columns, texts: Sequence[str], tokenizer: Tokenizer) -> Columns:
    words = []
    for ids, spellings in opened(tokenizer, texts):
        found = (spellings[number].replace(BETWEEN, " ") for number in ids if number in spellings)
        words.append(BETWEEN.join(found).encode())
    return Columns({**columns.fields, "outside": Flat.of(words, np.uint8)}, columns.documents)
