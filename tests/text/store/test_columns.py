"""Columns, and how examples of every kind become them."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard.errors import CorpusError, SettingError, ShapeError
from regard.text.corpora.labels import Labels
from regard.text.examples import IGNORED, Answered, Document, Labelled, Tagged, Translation
from regard.text.store.columns import Columns, RaggedArray
from regard.text.store.fields import (
    AnsweredFields,
    DocumentFields,
    LabelledFields,
    TaggedFields,
    TranslationFields,
    chunk_by_size,
    encode_columns,
)
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import BPE, ByteBPE, WordPiece
from regard.text.words import tokenize_words, whitespace_words

TEXTS = ["Ann met Bob in New York .", "don't look (now) , he said", "été comme hiver"] * 5
TOKENIZER = Tokenizer.train(BPE(150), TEXTS)
SEQUENCES = st.lists(st.lists(st.integers(0, 60000), max_size=5), max_size=8)


@given(SEQUENCES)
def test_a_flat_column_gives_its_sequences_back(sequences: list[list[int]]) -> None:
    column = RaggedArray.of(sequences, np.uint16)
    assert [list(column[index]) for index in range(len(column))] == sequences
    assert list(column.lengths) == [len(sequence) for sequence in sequences]
    assert list(column.stream) == [number for sequence in sequences for number in sequence]
    assert column.ids.dtype == np.uint16
    assert column.ends.dtype == column.lengths.dtype == np.int64
    assert np.shares_memory(column.stream, column.ids) or len(column.ids) == 0


@given(st.lists(SEQUENCES, min_size=1, max_size=4))
def test_joined_columns_follow_each_other(parts: list[list[list[int]]]) -> None:
    joined = RaggedArray.concatenate([RaggedArray.of(part) for part in parts])
    assert [list(joined[index]) for index in range(len(joined))] == [one for part in parts for one in part]


def test_columns_out_of_shape_are_refused() -> None:
    with pytest.raises(ShapeError, match="ends up to 2 for 3 ids"):
        RaggedArray(np.arange(3), np.array([2]))
    with pytest.raises(ShapeError, match="one dimension"):
        RaggedArray(np.zeros((2, 2)), np.array([2]))
    with pytest.raises(ShapeError, match="the same number"):
        Columns({"a": RaggedArray.of([[1]]), "b": RaggedArray.of([])})
    with pytest.raises(ShapeError, match="the last sentence"):
        Columns({"a": RaggedArray.of([[1]])}, np.array([0, 2]))
    with pytest.raises(SettingError, match="Did you mean 'source'"):
        Columns({"source": RaggedArray.of([[1]])})["sauce"]
    with pytest.raises(IndexError, match="example 1 of a column of 1"):
        RaggedArray.of([[1]])[1]


@given(st.lists(st.text(max_size=9)), st.integers(1, 20))
def test_portions_are_the_stream_cut(texts: list[str], most: int) -> None:
    cut = list(chunk_by_size(texts, len, most))
    assert [text for portion in cut for text in portion] == texts
    assert all(portion and (len(portion) == 1 or sum(map(len, portion)) <= most) for portion in cut)


def test_translations() -> None:
    other = Tokenizer.train(ByteBPE(300), TEXTS)
    pairs = [Translation(text, text[::-1]) for text in TEXTS]
    columns = encode_columns(pairs, TranslationFields(TOKENIZER, other))
    assert list(columns.fields) == ["source", "target"]
    for index, pair in enumerate(pairs):
        assert list(columns["source"][index]) == TOKENIZER.encode(pair.source).ids
        assert list(columns["target"][index]) == other.encode(pair.target).ids
    assert columns["source"].ids.dtype == np.uint8
    assert columns["target"].ids.dtype == np.uint16
    same = encode_columns(pairs, TranslationFields(TOKENIZER))
    assert list(same["target"][0]) == TOKENIZER.encode(pairs[0].target).ids


@pytest.mark.parametrize("words", [None, whitespace_words, tokenize_words])
def test_documents(words: object) -> None:
    documents = [Document(tuple(TEXTS[:2])), Document(tuple(TEXTS[2:3]))]
    columns = encode_columns(documents, DocumentFields(TOKENIZER, words))  # type: ignore[arg-type]
    assert columns.documents is not None
    assert columns.documents.tolist() == [0, 2, 3]
    assert len(columns) == 3
    for index, text in enumerate(TEXTS[:3]):
        assert list(columns["text"][index]) == TOKENIZER.encode(text).ids
        if words is not None:
            assert list(columns["word"][index]) == TOKENIZER.encode(text, words=words).words  # type: ignore[arg-type]
    assert ("word" in columns) == (words is not None)


def test_joined_documents_keep_their_bounds() -> None:
    documents = [Document(("a",) * size) for size in (1, 3, 2)]
    fields = DocumentFields(TOKENIZER)
    joined = Columns.concatenate([fields.encode(documents[:1]), fields.encode(documents[1:])])
    assert joined.documents is not None
    assert joined.documents.tolist() == [0, 1, 4, 6]


def test_labelled() -> None:
    fields = LabelledFields(TOKENIZER, Labels(("neg", "pos")))
    columns = encode_columns([Labelled("good", "pos", "very"), Labelled("bad", "neg", "very")], fields)
    assert list(columns.fields) == ["text", "other", "label"]
    assert columns["label"].stream.tolist() == [1, 0]
    assert columns["label"].lengths.tolist() == [1, 1]
    assert list(encode_columns([Labelled("good", "pos")], fields).fields) == ["text", "label"]
    with pytest.raises(CorpusError, match="some have none"):
        fields.encode([Labelled("good", "pos", "very"), Labelled("bad", "neg")])
    with pytest.raises(CorpusError, match="Did you mean 'neg'"):
        fields.encode([Labelled("good", "neq")])


@pytest.mark.parametrize("kind", [BPE(150), ByteBPE(300), WordPiece(200)], ids=str)
def test_tags_are_at_the_first_piece_of_each_word(kind: BPE) -> None:
    tokenizer = Tokenizer.train(kind, TEXTS)
    example = Tagged(("Ann", "met", "New York", "don't", "."), ("PER", "O", "LOC", "O", "O"))
    tags = Labels(("LOC", "O", "PER"))
    columns = encode_columns([example], TaggedFields(tokenizer, tags))
    words, found = columns["word"][0].tolist(), columns["tag"][0].tolist()
    assert columns["text"][0].tolist() == tokenizer.encode(" ".join(example.words)).ids
    assert sorted(set(words)) == [0, 1, 2, 3, 4]
    assert [tags.names[tag] for tag in found if tag != IGNORED] == list(example.tags)
    assert [words.index(word) for word in range(5)] == [at for at, tag in enumerate(found) if tag != IGNORED]
    assert columns["tag"].ids.dtype == np.int16


@pytest.mark.parametrize("kind", [BPE(150), ByteBPE(300)], ids=str)
@given(data=st.data())
def test_a_span_covers_the_answer(kind: BPE, data: st.DataObject) -> None:
    tokenizer = TRAINED[kind]
    passage = data.draw(st.sampled_from(TEXTS))
    start = data.draw(st.integers(0, len(passage) - 1))
    end = data.draw(st.integers(start + 1, len(passage)))
    example = Answered("who ?", passage, start, end)
    if not example.answer.strip():
        return
    columns = encode_columns([example], AnsweredFields(tokenizer))
    first, last = columns["span"][0].tolist()
    offsets = tokenizer.encode(passage).offsets
    assert passage[offsets[first][0] : offsets[last][1]].find(example.answer.strip()) >= 0
    assert offsets[first][1] > start
    assert offsets[last][0] < end
    assert columns["question"][0].tolist() == tokenizer.encode("who ?").ids


TRAINED = {kind: Tokenizer.train(kind, TEXTS) for kind in (BPE(150), ByteBPE(300))}


def test_nothing_is_refused() -> None:
    with pytest.raises(CorpusError, match="no examples"):
        encode_columns([], AnsweredFields(TOKENIZER))


def test_an_identity_has_everything_that_the_ids_depend_on() -> None:
    other = Tokenizer.train(BPE(60), TEXTS)
    assert TranslationFields(TOKENIZER).identity == TranslationFields(TOKENIZER, TOKENIZER).identity
    assert TranslationFields(TOKENIZER).identity != TranslationFields(TOKENIZER, other).identity
    assert DocumentFields(TOKENIZER).identity != DocumentFields(TOKENIZER, whitespace_words).identity
    assert LabelledFields(TOKENIZER, Labels(("a",))).identity != LabelledFields(TOKENIZER, Labels(("b",))).identity


def test_examples_of_another_kind_are_refused() -> None:
    with pytest.raises(CorpusError, match="an example of type Translation, expected Document"):
        encode_columns([Translation("a", "b")], DocumentFields(TOKENIZER))
