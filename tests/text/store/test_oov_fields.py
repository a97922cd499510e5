"""Documents with words outside the vocabulary told apart: known words as ever, others by a number of their own."""

import numpy as np

from regard.text.examples import Document
from regard.text.store.fields import DocumentFields, encode_columns
from regard.text.tokenizers.oov import oov_id
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import ByteBPE, WordLevel
from regard.text.words import whitespace_words

TOKENIZER = Tokenizer.train(WordLevel(20), ["the cat ran ."] * 3)
STORIES = [Document(("the cat met Valdon .", "Valdon ran .")), Document(("Torvik ran to Valdon .",))]


def test_every_oov_word_has_one_id_in_all_documents() -> None:
    closed, opened = (
        encode_columns(STORIES, DocumentFields(TOKENIZER, open_vocabulary=is_open)) for is_open in (False, True)
    )
    ids, plain = opened["text"].stream, closed["text"].stream
    unknown = TOKENIZER.special.unknown
    assert ids.dtype == np.uint32 and plain.dtype == np.uint8
    assert opened["text"].ends.tolist() == closed["text"].ends.tolist()
    assert opened.documents.tolist() == closed.documents.tolist() == [0, 2, 3]
    words = " ".join(sentence for story in STORIES for sentence in story.sentences).split()
    for word, number, before in zip(words, ids.tolist(), plain.tolist(), strict=True):
        assert number == (oov_id(word, len(TOKENIZER)) if before == unknown else before), word
    assert len(set(ids[plain == unknown].tolist())) == len({"met", "Valdon", "Torvik", "to"})


def test_word_indices_are_unchanged_by_an_open_vocabulary() -> None:
    closed, opened = (
        encode_columns(STORIES, DocumentFields(TOKENIZER, whitespace_words, open_vocabulary=is_open))
        for is_open in (False, True)
    )
    assert opened["word"].stream.tolist() == closed["word"].stream.tolist()
    assert opened["text"].stream.max() >= len(TOKENIZER)


def test_a_byte_level_tokenizer_has_no_oov_words() -> None:
    tokenizer = Tokenizer.train(ByteBPE(270), ["the cat ran ."] * 3)
    closed, opened = (
        encode_columns(STORIES, DocumentFields(tokenizer, open_vocabulary=is_open)) for is_open in (False, True)
    )
    assert opened["text"].stream.tolist() == closed["text"].stream.tolist()


def test_the_identity_records_the_open_vocabulary() -> None:
    closed, opened = (DocumentFields(TOKENIZER, open_vocabulary=is_open).identity for is_open in (False, True))
    assert opened == {**closed, "unknown words": "numbered"}
