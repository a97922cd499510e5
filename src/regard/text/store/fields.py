"""From examples to columns of ids: what fields each kind of example has, and how they are made.

    columns = columns_of(corpus, TranslationFields(tokenizer))        # columns["source"], columns["target"]

Ids carry no special tokens; batches add them. The same value tells a store how to tokenise (store.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from regard.errors import CorpusError
from regard.text.corpora.labels import Labels, Scale
from regard.text.examples import IGNORED, Answered, Document, Labelled, Tagged, Translation
from regard.text.store.columns import Columns, Flat
from regard.text.tokenizers.oov import opened
from regard.text.tokenizers.tokenizer import Encoding, Tokenizer
from regard.text.words import Splitter, numbers

PORTION = 1 << 18  # characters tokenised at once: the library needs some 100 bytes for each while it works
Item = TypeVar("Item")
Example_contra = TypeVar("Example_contra", contravariant=True)


class Fields(Protocol[Example_contra]):
    """How examples of one kind, `takes`, become columns."""

    takes: ClassVar[type]

    def encode(self, examples: Sequence[Example_contra]) -> Columns:
        """The columns of some examples."""

    def size(self, example: Example_contra) -> int:
        """How many characters an example has."""

    @property
    def identity(self) -> dict[str, str]:
        """All that the numbers depend on beside the text; a store made with another one is stale."""


@dataclass(frozen=True)
class TranslationFields:
    """ "source" and "target"; one tokenizer for both where `target` is None.

    `open`: words outside the vocabulary are numbered beyond it, the same word alike on both sides.
    """

    takes: ClassVar[type] = Translation
    source: Tokenizer
    target: Tokenizer | None = None
    open: bool = False

    def encode(self, examples: Sequence[Translation]) -> Columns:
        source = _ids(self.source, [one.source for one in examples], self.open)
        target = _ids(self.target or self.source, [one.target for one in examples], self.open)
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
        return named | unknowns(self.open)


@dataclass(frozen=True)
class DocumentFields:
    """ "text", one entry a sentence, and which sentences make a document; with `words`, "word" beside it.

    `open`: words outside the vocabulary are numbered beyond it, each with its own number, so that they can be copied.
    """

    takes: ClassVar[type] = Document
    tokenizer: Tokenizer
    words: Splitter | None = None
    open: bool = False

    def encode(self, examples: Sequence[Document]) -> Columns:
        texts = [sentence for one in examples for sentence in one.sentences]
        documents = np.cumsum([0, *(len(one.sentences) for one in examples)], dtype=np.int64)
        fields = _text(self.tokenizer, texts, self.words)
        if self.open:
            fields["text"] = _ids(self.tokenizer, texts, apart=True)
        return Columns(fields, documents)

    def size(self, example: Document) -> int:
        return sum(map(len, example.sentences))

    @property
    def identity(self) -> dict[str, str]:
        named = {"kind": "documents", "tokenizer": self.tokenizer.fingerprint, "words": _name(self.words)}
        return named | unknowns(self.open)


@dataclass(frozen=True)
class LabelledFields:
    """ "text", "label" (its number) and, where examples have two texts, "other"; with `words`, "word" beside "text"."""

    takes: ClassVar[type] = Labelled
    tokenizer: Tokenizer
    labels: Labels | Scale
    words: Splitter | None = None

    def encode(self, examples: Sequence[Labelled]) -> Columns:
        fields = _text(self.tokenizer, [one.text for one in examples], self.words)
        others = [one.other for one in examples if one.other is not None]
        if others:
            if len(others) != len(examples):
                raise CorpusError("some examples with a second text and some without", "all alike", where="Labelled")
            fields["other"] = _ids(self.tokenizer, others)
        fields["label"] = Flat.of([[self.labels.number(one.label)] for one in examples], self.labels.dtype)
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
    """ "text", "tag" (its number on the first piece of each word, -100 on the others) and "word", the word's number."""

    takes: ClassVar[type] = Tagged
    tokenizer: Tokenizer
    tags: Labels

    def encode(self, examples: Sequence[Tagged]) -> Columns:
        encodings = _encodings(self.tokenizer, [" ".join(one.words) for one in examples])
        pairs = zip(encodings, examples, strict=True)
        words = [numbers(_joined_spans(one.words), encoding.offsets) for encoding, one in pairs]
        tags = [self._tags(row, one) for row, one in zip(words, examples, strict=True)]
        dtype = np.int16 if len(self.tags) < 2**15 else np.int32
        return Columns(
            {
                "text": Flat.of((one.ids for one in encodings), _dtype(self.tokenizer)),
                "tag": Flat.of(tags, dtype),
                "word": Flat.of(words, np.uint32),
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
                "passage": Flat.of((one.ids for one in passages), _dtype(self.tokenizer)),
                "span": Flat.of(spans, np.uint32),
            }
        )

    def size(self, example: Answered) -> int:
        return len(example.question) + len(example.passage)

    @property
    def identity(self) -> dict[str, str]:
        return {"kind": "answered", "tokenizer": self.tokenizer.fingerprint}


def columns_of(examples: Iterable[Item], fields: Fields[Item]) -> Columns:
    """Tokenise a corpus into memory."""
    parts = [fields.encode(portion) for portion in portions(fitting(examples, fields), fields.size, PORTION)]
    if not parts:
        raise CorpusError("no examples", "at least one", where="columns_of")
    return Columns.joined(parts)


def fitting(examples: Iterable[Item], fields: Fields[Item]) -> Iterator[Item]:
    """The examples, each of the kind that the fields take."""
    for example in examples:
        if not isinstance(example, fields.takes):
            raise CorpusError(
                f"an example of type {type(example).__name__}", fields.takes.__name__, where=type(fields).__name__
            )
        yield example


def portions(items: Iterable[Item], size: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """Cut a stream into lists of at most `most` characters, or of a single item that has more by itself."""
    portion: list[Item] = []
    total = 0
    for item in items:
        if portion and total + size(item) > most:
            yield portion
            portion, total = [], 0
        portion.append(item)
        total += size(item) + 1
    if portion:
        yield portion


def unknowns(apart: bool) -> dict[str, str]:
    """What an identity says of words outside the vocabulary."""
    return {"unknown words": "numbered"} if apart else {}


def _ids(tokenizer: Tokenizer, texts: Sequence[str], apart: bool = False) -> Flat:
    """`apart`: a word outside the vocabulary has a number of its own beyond it."""
    dtype = np.uint32 if apart else _dtype(tokenizer)
    parts = [Flat.of(_numbers(tokenizer, portion, apart), dtype) for portion in portions(texts, len, PORTION)]
    return Flat.joined([Flat.of([], dtype), *parts])


def _numbers(tokenizer: Tokenizer, texts: Sequence[str], apart: bool) -> Iterable[list[int]]:
    return (one.ids for one in opened(tokenizer, texts)) if apart else tokenizer.ids_batch(texts)


def _encodings(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Encoding]:
    return [one for portion in portions(texts, len, PORTION) for one in tokenizer.encode_batch(portion)]


def _text(tokenizer: Tokenizer, texts: Sequence[str], words: Splitter | None) -> dict[str, Flat]:
    if words is None:
        return {"text": _ids(tokenizer, texts)}
    ids, numbered = [Flat.of([], _dtype(tokenizer))], [Flat.of([], np.uint32)]
    for portion in portions(texts, len, PORTION):
        encodings = tokenizer.encode_batch(portion, words=words)
        ids.append(Flat.of((one.ids for one in encodings), _dtype(tokenizer)))
        numbered.append(Flat.of((one.words for one in encodings), np.uint32))
    return {"text": Flat.joined(ids), "word": Flat.joined(numbered)}


def _dtype(tokenizer: Tokenizer) -> Any:
    """The smallest unsigned type that holds every id."""
    return np.min_scalar_type(len(tokenizer) - 1)


def _name(words: Splitter | None) -> str:
    return "none" if words is None else f"{words.__module__}.{words.__qualname__}"


def _joined_spans(words: Sequence[str]) -> list[tuple[int, int]]:
    ends = np.cumsum([len(word) + 1 for word in words]) - 1
    return [(int(end) - len(word), int(end)) for word, end in zip(words, ends, strict=True)]


def _span(encoding: Encoding, example: Answered) -> list[int]:
    """The first and the last piece that share a character with the answer."""
    inside = [at for at, (a, b) in enumerate(encoding.offsets) if a < example.end and b > example.start]
    if not inside:
        raise CorpusError(f"an answer without a piece: {example.answer!r}", "text", where="AnsweredFields")
    return [inside[0], inside[-1]]
