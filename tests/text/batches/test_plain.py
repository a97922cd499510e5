"""Texts by themselves and tagged ones: how rows are framed, what is counted, and words outside the vocabulary."""

import numpy as np
import pytest

from regard.errors import SettingError
from regard.text.batches.plain import PlainCollator, SpelledTagCollator
from regard.text.batches.seeded_rng import Epoch
from regard.text.corpora.labels import Labels
from regard.text.examples import IGNORED, Document, Tagged
from regard.text.store.fields import DocumentFields, TaggedFields, encode_columns
from regard.text.store.oov_fields import OovDocumentFields, OovTaggedFields, oov_words
from regard.text.tokenizers.char_ids import spell_words
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import WordLevel

STORIES = [Document(("the cat sees Yellen", "Yellen sees naïve Möbius")), Document(("the cat",))]
TAGGED = [Tagged(("the", "zebra", "sees"), ("DET", "NOUN", "VERB")), Tagged(("cat",), ("NOUN",))]
TAGS = Labels(("DET", "NOUN", "VERB"))
tokenizer = Tokenizer.train(WordLevel(10), ["the cat sees the cat the cat sees sees"])
V, special = len(tokenizer), tokenizer.special
EPOCH = Epoch(0)


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def test_rows_are_framed_and_counted() -> None:
    collate = PlainCollator(encode_columns(STORIES, DocumentFields(tokenizer)), special, V)
    batch = collate(rows(2, 0), EPOCH)
    the, cat, sees = (tokenizer.id(f"▁{word}") for word in ("the", "cat", "sees"))
    assert batch.inputs.tolist() == [
        [special.cls, the, cat, special.sep, special.pad, special.pad],
        [special.cls, the, cat, sees, special.unknown, special.sep],
    ]
    assert batch.lengths.tolist() == [4, 6] == collate.lengths[[2, 0]].tolist()
    assert batch.tokens == collate.tokens(rows(2, 0), EPOCH) == 3 + 5  # a step between two tokens counts once
    assert batch.spellings is None and batch.indices.tolist() == [2, 0]


def test_unknown_words_come_with_their_spelling() -> None:
    columns = encode_columns(STORIES, OovDocumentFields(tokenizer))
    assert [oov_words(columns, row) for row in range(3)] == [["Yellen"], ["Yellen", "naïve", "Möbius"], []]
    batch = PlainCollator(columns, special, V)(rows(0, 1, 2), EPOCH)
    sees = tokenizer.id("▁sees")
    assert batch.inputs[0, 4] == V  # the same word, the same number
    assert batch.inputs[1, 1:5].tolist() == [V, sees, V + 1, V + 2]
    assert batch.spellings is not None
    assert batch.spellings.tolist() == spell_words(["Yellen", "naïve", "Möbius"]).tolist()
    none = PlainCollator(columns, special, V)(rows(2), EPOCH)
    assert none.spellings is not None and none.spellings.shape == (0, 1)


def test_max_length_cuts_words_and_their_spellings() -> None:
    collate = PlainCollator(encode_columns(STORIES, OovDocumentFields(tokenizer)), special, V, max_length=4)
    batch = collate(rows(1), EPOCH)
    assert batch.inputs.tolist() == [[special.cls, V, tokenizer.id("▁sees"), special.sep]]
    assert batch.spellings is not None and batch.spellings.tolist() == spell_words(["Yellen"]).tolist()
    assert collate.truncated == 2


@pytest.mark.parametrize("fields", [TaggedFields, OovTaggedFields])
def test_tags_stay_with_their_words(fields) -> None:
    collate = SpelledTagCollator(encode_columns(TAGGED, fields(tokenizer, TAGS)), special, V)
    batch = collate(rows(0, 1), EPOCH)
    assert batch.tags.tolist() == [[IGNORED, 0, 1, 2, IGNORED], [IGNORED, 1, IGNORED, IGNORED, IGNORED]]
    assert batch.tokens == collate.tokens(rows(0, 1), EPOCH) == 4
    assert batch.inputs[0, 2] == (V if fields is OovTaggedFields else special.unknown)
    assert (batch.spellings is None) == (fields is TaggedFields)


@pytest.mark.parametrize("collate", [PlainCollator, SpelledTagCollator])
def test_no_rows_make_a_batch_of_no_rows(collate) -> None:
    columns = encode_columns(TAGGED, OovTaggedFields(tokenizer, TAGS))
    batch = collate(columns, special, V)(rows(), EPOCH)
    assert len(batch) == 0 and batch.inputs.shape == (0, 1) and batch.tokens == 0


def test_columns_with_spellings_are_other_columns() -> None:
    plain, spelled = DocumentFields(tokenizer), OovDocumentFields(tokenizer)
    assert plain.identity != spelled.identity
    assert TaggedFields(tokenizer, TAGS).identity != OovTaggedFields(tokenizer, TAGS).identity
    prints = {PlainCollator(encode_columns(STORIES, fields), special, V).fingerprint for fields in (plain, spelled)}
    assert len(prints) == 2


def test_the_tokenizer_in_the_place_of_its_ids_is_refused() -> None:
    with pytest.raises(SettingError, match=r"Pass tokenizer\.special"):
        PlainCollator(encode_columns(STORIES, DocumentFields(tokenizer)), tokenizer, V)  # type: ignore[arg-type]
