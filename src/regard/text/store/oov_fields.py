"""Fields with the spelling of out-of-vocabulary (OOV) words, for models that read characters.

A row of the field OOV is the UTF-8 of the row's unknown words, one for each unknown token, separated by zero bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from regard.text.examples import Document, Tagged
from regard.text.store.columns import Columns, RaggedArray
from regard.text.store.fields import DocumentFields, TaggedFields
from regard.text.tokenizers.oov import encode_with_oov
from regard.text.tokenizers.tokenizer import Tokenizer

OOV = "outside"  # the name of the field
SEPARATOR = "\0"


class OovDocumentFields(DocumentFields):
    """DocumentFields with the spelling of OOV words."""

    def encode(self, examples: Sequence[Document]) -> Columns:
        sentences = [sentence for one in examples for sentence in one.sentences]
        return _with_oov_words(super().encode(examples), sentences, self.tokenizer)

    @property
    def identity(self) -> dict[str, str]:
        return {**super().identity, OOV: "spelled"}


class OovTaggedFields(TaggedFields):
    """TaggedFields with the spelling of OOV words."""

    def encode(self, examples: Sequence[Tagged]) -> Columns:
        return _with_oov_words(super().encode(examples), [" ".join(one.words) for one in examples], self.tokenizer)

    @property
    def identity(self) -> dict[str, str]:
        return {**super().identity, OOV: "spelled"}


def oov_words(columns: Columns, row: int) -> list[str]:
    """The words behind the unknown tokens of a row, in order."""
    text = bytes(columns[OOV][row].astype(np.uint8)).decode()
    return text.split(SEPARATOR) if text else []


def _with_oov_words(columns: Columns, texts: Sequence[str], tokenizer: Tokenizer) -> Columns:
    words = []
    for ids, spellings in encode_with_oov(tokenizer, texts):
        found = (spellings[number].replace(SEPARATOR, " ") for number in ids if number in spellings)
        words.append(SEPARATOR.join(found).encode())
    return Columns({**columns.fields, OOV: RaggedArray.of(words, np.uint8)}, columns.documents)
