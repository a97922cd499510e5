"""Fields: how the examples of each task are tokenized into columns of ids.

    columns = encode_columns(corpus, TranslationFields(tokenizer))        # columns["source"], columns["target"]

Columns hold no special tokens; collators add them. A store takes the same value (store.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from regard.errors import CorpusError
from regard.text.corpora.labels import Labels, Scale
from regard.text.examples import IGNORED, Answered, Document, Labelled, Tagged, Translation
from regard.text.store.columns import Columns, RaggedArray
from regard.text.tokenizers.oov import encode_with_oov
from regard.text.tokenizers.tokenizer import Encoding, Tokenizer
from regard.text.words import Splitter, word_indices

PORTION = 1 << 18  # characters tokenized at once: the library uses some 100 bytes for each
Item = TypeVar("Item")
Example_contra = TypeVar("Example_contra", contravariant=True)


class Fields(Protocol[Example_contra]):
    """How examples of the type `takes` are tokenized into columns."""

    takes: ClassVar[type]

    def encode(self, examples: Sequence[Example_contra]) -> Columns:
        """The columns of these examples."""

    def size(self, example: Example_contra) -> int:
        """The number of characters of an example."""

    @property
    def identity(self) -> dict[str, str]:
        """Everything that the ids depend on besides the text; a store with another identity is stale."""


@dataclass(frozen=True)
class TranslationFields:
    """ "source" and "target"; one tokenizer for both where `target` is None.

    `open_vocabulary`: out-of-vocabulary (OOV) words get ids beyond it, the same word the same id on both sides.
    """

    takes: ClassVar[type] = Translation
    source: Tokenizer
    target: Tokenizer | None = None
    open_vocabulary: bool = False

    def encode(self, examples: Sequence[Translation]) -> Columns:
        source = _ids(self.source, [one.source for one in examples], self.open_vocabulary)
        target = _ids(self.target or self.source, [one.target for one in examples], self.open_vocabulary)
        return Columns({"source": source, "target": target})

    def size(self, example: Translation) -> int:
        return len(example.source) + len(example.target)

    @property
    def identity(self) -> dict[str, str]:
        target = self.target or self.source
        named = {
            "kind": "translation",
            "source tokenizer": self.source.fingerprint,
            "target tokenizer": target.fingerprint,
        }
        return named | oov_identity(self.open_vocabulary)


@dataclass(frozen=True)
class DocumentFields:
    """ "text", one entry a sentence, with document boundaries; with `words`, also "word", the word index of each piece.

    `open_vocabulary`: out-of-vocabulary (OOV) words get ids of their own, so that a model can copy them.
    """

    takes: ClassVar[type] = Document
    tokenizer: Tokenizer
    words: Splitter | None = None
    open_vocabulary: bool = False

    def encode(self, examples: Sequence[Document]) -> Columns:
        texts = [sentence for one in examples for sentence in one.sentences]
        documents = np.cumsum([0, *(len(one.sentences) for one in examples)], dtype=np.int64)
        fields = _text(self.tokenizer, texts, self.words)
        if self.open_vocabulary:
            fields["text"] = _ids(self.tokenizer, texts, oov=True)
        return Columns(fields, documents)

    def size(self, example: Document) -> int:
        return sum(map(len, example.sentences))

    @property
    def identity(self) -> dict[str, str]:
        named = {"kind": "documents", "tokenizer": self.tokenizer.fingerprint, "words": _name(self.words)}
        return named | oov_identity(self.open_vocabulary)


@dataclass(frozen=True)
class LabelledFields:
    """ "text", "label" (its number) and, where examples have two texts, "other"; with `words`, also "word"."""

    takes: ClassVar[type] = Labelled
    tokenizer: Tokenizer
    labels: Labels | Scale
    words: Splitter | None = None

    def encode(self, examples: Sequence[Labelled]) -> Columns:
        fields = _text(self.tokenizer, [one.text for one in examples], self.words)
        others = [one.other for one in examples if one.other is not None]
        if others:
            if len(others) != len(examples):
                raise CorpusError("Some examples have a second text and some have none", where=type(self).__name__)
            fields["other"] = _ids(self.tokenizer, others)
        fields["label"] = RaggedArray.of([[self.labels.number(one.label)] for one in examples], self.labels.dtype)
        return Columns(fields)

    def size(self, example: Labelled) -> int:
        return len(example.text) + len(example.other or "")

    @property
    def identity(self) -> dict[str, str]:
        return {
            "kind": "labelled",
            "tokenizer": self.tokenizer.fingerprint,
            "labels": ", ".join(self.labels.names),
            "words": _name(self.words),
        }


@dataclass(frozen=True)
class TaggedFields:
    """ "text", "tag" (its number at the first piece of each word, -100 at the others) and "word", the word index."""

    takes: ClassVar[type] = Tagged
    tokenizer: Tokenizer
    tags: Labels

    def encode(self, examples: Sequence[Tagged]) -> Columns:
        encodings = _encodings(self.tokenizer, [" ".join(one.words) for one in examples])
        pairs = zip(encodings, examples, strict=True)
        words = [word_indices(_joined_word_spans(one.words), encoding.offsets) for encoding, one in pairs]
        tags = [self._tags(row, one) for row, one in zip(words, examples, strict=True)]
        dtype = np.int16 if len(self.tags) < 2**15 else np.int32
        return Columns(
            {
                "text": RaggedArray.of((one.ids for one in encodings), _dtype(self.tokenizer)),
                "tag": RaggedArray.of(tags, dtype),
                "word": RaggedArray.of(words, np.uint32),
            }
        )

    def _tags(self, words: list[int], example: Tagged) -> list[int]:
        tags = [self.tags.number(tag) for tag in example.tags]
        firsts = {word: at for at, word in reversed(list(enumerate(words))) if word < len(tags)}
        return [tags[word] if firsts.get(word) == at else IGNORED for at, word in enumerate(words)]

    def size(self, example: Tagged) -> int:
        return sum(map(len, example.words)) + len(example.words)

    @property
    def identity(self) -> dict[str, str]:
        return {"kind": "tagged", "tokenizer": self.tokenizer.fingerprint, "tags": ", ".join(self.tags.names)}


@dataclass(frozen=True)
class AnsweredFields:
    """ "question", "passage" and "span": the first and the last piece of the answer in the passage."""

    takes: ClassVar[type] = Answered
    tokenizer: Tokenizer

    def encode(self, examples: Sequence[Answered]) -> Columns:
        passages = _encodings(self.tokenizer, [one.passage for one in examples])
        spans = [_span(encoding, one) for encoding, one in zip(passages, examples, strict=True)]
        return Columns(
            {
                "question": _ids(self.tokenizer, [one.question for one in examples]),
                "passage": RaggedArray.of((one.ids for one in passages), _dtype(self.tokenizer)),
                "span": RaggedArray.of(spans, np.uint32),
            }
        )

    def size(self, example: Answered) -> int:
        return len(example.question) + len(example.passage)

    @property
    def identity(self) -> dict[str, str]:
        return {"kind": "answered", "tokenizer": self.tokenizer.fingerprint}


def encode_columns(examples: Iterable[Item], fields: Fields[Item]) -> Columns:
    """Tokenize a corpus into columns in memory."""
    parts = [
        fields.encode(portion) for portion in chunk_by_size(check_examples(examples, fields), fields.size, PORTION)
    ]
    if not parts:
        raise CorpusError("There are no examples", where="encode_columns")
    return Columns.concatenate(parts)


def check_examples(examples: Iterable[Item], fields: Fields[Item]) -> Iterator[Item]:
    """The examples, each checked to be of the type that the fields take."""
    for example in examples:
        if not isinstance(example, fields.takes):
            raise CorpusError(
                f"an example of type {type(example).__name__}", fields.takes.__name__, where=type(fields).__name__
            )
        yield example


def chunk_by_size(items: Iterable[Item], size: Callable[[Item], int], max_size: int) -> Iterator[list[Item]]:
    """Split a stream into lists of at most `max_size` characters; a larger item makes a list by itself."""
    portion: list[Item] = []
    total = 0
    for item in items:
        if portion and total + size(item) > max_size:
            yield portion
            portion, total = [], 0
        portion.append(item)
        total += size(item) + 1
    if portion:
        yield portion


def oov_identity(oov: bool) -> dict[str, str]:
    """The entry of an identity for out-of-vocabulary words."""
    return {"unknown words": "numbered"} if oov else {}


def _ids(tokenizer: Tokenizer, texts: Sequence[str], oov: bool = False) -> RaggedArray:
    """`oov`: out-of-vocabulary words get ids of their own."""
    dtype = np.uint32 if oov else _dtype(tokenizer)
    parts = [
        RaggedArray.of(_encode_ids(tokenizer, portion, oov), dtype) for portion in chunk_by_size(texts, len, PORTION)
    ]
    return RaggedArray.concatenate([RaggedArray.of([], dtype), *parts])


def _encode_ids(tokenizer: Tokenizer, texts: Sequence[str], oov: bool) -> Iterable[list[int]]:
    return (one.ids for one in encode_with_oov(tokenizer, texts)) if oov else tokenizer.ids_batch(texts)


def _encodings(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Encoding]:
    return [one for portion in chunk_by_size(texts, len, PORTION) for one in tokenizer.encode_batch(portion)]


def _text(tokenizer: Tokenizer, texts: Sequence[str], words: Splitter | None) -> dict[str, RaggedArray]:
    if words is None:
        return {"text": _ids(tokenizer, texts)}
    ids, numbered = [RaggedArray.of([], _dtype(tokenizer))], [RaggedArray.of([], np.uint32)]
    for portion in chunk_by_size(texts, len, PORTION):
        encodings = tokenizer.encode_batch(portion, words=words)
        ids.append(RaggedArray.of((one.ids for one in encodings), _dtype(tokenizer)))
        numbered.append(RaggedArray.of((one.words for one in encodings), np.uint32))
    return {"text": RaggedArray.concatenate(ids), "word": RaggedArray.concatenate(numbered)}


def _dtype(tokenizer: Tokenizer) -> Any:
    """The smallest unsigned type that holds every id."""
    return np.min_scalar_type(len(tokenizer) - 1)


def _name(words: Splitter | None) -> str:
    return "none" if words is None else f"{words.__module__}.{words.__qualname__}"


def _joined_word_spans(words: Sequence[str]) -> list[tuple[int, int]]:
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    return [(int(end) - len(word), int(end)) for word, end in zip(words, ends, strict=True)]


def _span(encoding: Encoding, example: Answered) -> list[int]:
    """The first and the last piece that share a character with the answer."""
    inside = [at for at, (a, b) in enumerate(encoding.offsets) if a < example.end and b > example.start]
    if not inside:
        raise CorpusError(f"The answer {example.answer!r} has no pieces", where="AnsweredFields")
    return [inside[0], inside[-1]]
