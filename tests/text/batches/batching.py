"""What the tests of batches share: small columns of every kind, real-looking lengths, and batches as plain rows."""

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import torch

from regard.text.batches.batch import Batch, MaskedBatch
from regard.text.batches.buckets import Buckets
from regard.text.batches.collate import AnswerCollator, LabelCollator, TagCollator, TranslationCollator
from regard.text.batches.lm_batches import BlockCollator, Lanes, TokenBlocks, TokenStream
from regard.text.batches.masking import Masking, MaskingCollator, WholeWords
from regard.text.batches.next_sentence import NextSentenceCollator, NextSentencePairs
from regard.text.batches.packing import Packing, PackingCollator
from regard.text.batches.plan import BatchPlan, Collator
from regard.text.examples import IGNORED
from regard.text.store.columns import Columns, RaggedArray
from regard.text.tokenizers.specials import SpecialIds

SPECIAL = SpecialIds(pad=0, unknown=1, start=2, end=3, cls=4, sep=5, mask=6)
FIRST_WORD, VOCABULARY = 7, 200


def texts(lengths, seed: int = 0) -> RaggedArray:
    """Random words in texts of these lengths."""
    lengths = np.asarray(lengths, dtype=np.int64)
    ids = np.random.default_rng(seed).integers(FIRST_WORD, VOCABULARY, size=lengths.sum())
    return RaggedArray(ids.astype(np.uint16), np.cumsum(lengths))


def numbered(lengths) -> RaggedArray:
    """Texts in which no two tokens are equal: every token says where it is from. Unsigned, as in a store."""
    lengths = np.asarray(lengths, dtype=np.int64)
    ids = np.arange(lengths.sum()) + 1000
    return RaggedArray(ids.astype(np.min_scalar_type(int(ids.max(initial=1000)))), np.cumsum(lengths))


def caption_lengths(count: int, seed: int = 0) -> np.ndarray:
    """(count, 2): lengths like those of Multi30k in English and German, which go together by 0.87."""
    random = np.random.default_rng(seed)
    shared, own = random.normal(size=(count, 1)), random.normal(size=(count, 2))
    spread = np.exp(0.31 * (np.sqrt(0.87) * shared + np.sqrt(0.13) * own))
    return np.clip(np.round(spread * [11.4, 10.6]), 1, 40).astype(np.int64)


def word_numbers(text: RaggedArray) -> RaggedArray:
    """Words of one to three pieces each."""
    steps = np.random.default_rng(9).random(len(text.ids)) < 0.6
    return RaggedArray.of(
        [np.cumsum(steps[end - size : end]) for end, size in zip(text.ends, text.lengths, strict=True)]
    )


def documents_of(sizes, lengths) -> Columns:
    """Documents of so many sentences, of so many tokens each."""
    text = numbered(lengths)
    return Columns({"text": text, "word": word_numbers(text)}, np.cumsum([0, *sizes], dtype=np.int64))


def kinds() -> dict[str, tuple[BatchPlan, Collator]]:
    """A plan and a collate of every kind, over a few dozen examples each."""
    random = np.random.default_rng(5)
    n = 37
    short, long = random.integers(1, 9, size=n), random.integers(3, 12, size=n)
    pair = Columns({"source": texts(short), "target": texts(long, 1)})
    tags = RaggedArray.of([np.where(random.random(size) < 0.7, random.integers(0, 5, size), IGNORED) for size in long])
    tagged = Columns({"text": texts(long), "tag": tags})
    label = Columns(
        {"text": texts(short), "other": texts(long), "label": RaggedArray.of(random.integers(0, 3, size=(n, 1)))}
    )
    spans = RaggedArray.of([(0, size - 1) for size in long])
    answered = Columns({"question": texts(short), "passage": texts(long), "span": spans})
    text = texts(long)
    masked = Columns({"text": text, "word": word_numbers(text)})
    documents = documents_of([3, 5, 1, 8, 12, 2, 6], random.integers(1, 9, size=n))
    masking = Masking(SPECIAL, VOCABULARY, mask_rate=0.3)
    stream = TokenStream.lines(documents, end=3)
    found: dict[str, tuple[BatchPlan, Collator]] = {}
    for name, collate in {
        "translate": TranslationCollator(pair, SPECIAL),
        "label": LabelCollator(label, SPECIAL, max_length=15),
        "tag": TagCollator(tagged, SPECIAL, max_length=10),
        "answer": AnswerCollator(answered, SPECIAL),
        "fill": MaskingCollator(masked, masking),
        "whole words": MaskingCollator(
            masked, Masking(SPECIAL, VOCABULARY, mask_rate=0.3, units=WholeWords()), max_length=9
        ),
    }.items():
        found[name] = (Buckets(collate.lengths, budget=64), collate)
    found["pairs"] = (NextSentencePairs(documents, max_length=20, budget=70), NextSentenceCollator(documents, masking))
    found["lanes"] = (Lanes(stream, size=6, lanes=5), BlockCollator(stream))
    found["blocks"] = (TokenBlocks(stream, size=6, rows=5), BlockCollator(stream))
    packed = PackingCollator(masked, size=16, start=2, end=3)
    found["packing"] = (Packing(packed.lengths, size=16, rows=4), packed)
    return found


KINDS = kinds()
EMPTY = (0, IGNORED, -1)  # what padding looks like in one field or another


def rows_of(batch: Batch) -> list[dict[str, object]]:
    """Each row by itself, padding stripped, so that batches of other widths can be compared."""
    values = {entry.name: getattr(batch, entry.name) for entry in fields(batch)}
    tables = {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}
    if isinstance(batch, MaskedBatch):
        hidden = torch.full(batch.inputs.shape, IGNORED).reshape(-1)
        hidden[tables.pop("positions")] = tables["targets"]
        tables["targets"] = hidden.reshape(batch.inputs.shape)
    return [{name: _stripped(table[row].tolist()) for name, table in tables.items()} for row in range(len(batch))]


def _stripped(row: object) -> object:
    while isinstance(row, list) and row and row[-1] in EMPTY:
        row = row[:-1]
    return row


def assert_same(first: Batch, second: Batch) -> None:
    """Bit for bit."""
    assert type(first) is type(second)
    for entry in fields(first):
        one, other = getattr(first, entry.name), getattr(second, entry.name)
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other, entry.name


class Counted:
    """A collate that counts how often it is called, and may be told to fail at one call."""

    def __init__(self, collate: Collator, fail_at: int | None = None, note: Callable[[], None] = lambda: None) -> None:
        self.collate, self.calls, self.fail_at, self.note = collate, 0, fail_at, note
        self.fingerprint = collate.fingerprint

    def __call__(self, rows, epoch):
        self.calls += 1
        self.note()
        if self.calls == self.fail_at:
            raise RuntimeError(f"call {self.calls}")
        return self.collate(rows, epoch)

    def tokens(self, rows, epoch):
        return self.collate.tokens(rows, epoch)
