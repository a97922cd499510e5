"""Documents with words outside the vocabulary told apart: known words as ever, others by a number of their own."""

import numpy as np

from regard.text.examples import Document
from regard.text.store.fields import DocumentFields, columns_of
from regard.text.tokenizers.kinds import ByteBPE, Words
from regard.text.tokenizers.oov import number_of
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.words import spaced

TOKENIZER = Tokenizer.train(Words(20), ["the cat ran ."] * 3)
STORIES = [Document(("the cat met Valdon .", "Valdon ran .")), Document(("Torvik ran to Valdon .",))]


def test_every_unknown_word_has_its_number_in_all_documents() -> None:
    closed, opened = (columns_of(STORIES, DocumentFields(TOKENIZER, open=apart)) for apart in (False, True))
    ids, plain = opened["text"].stream, closed["text"].stream
    unknown = TOKENIZER.special.unknown
    assert ids.dtype == np.uint32 and plain.dtype == np.uint8
    assert opened["text"].ends.tolist() == closed["text"].ends.tolist()
    assert opened.documents.tolist() == closed.documents.tolist() == [0, 2, 3]
    words = " ".join(sentence for story in STORIES for sentence in story.sentences).split()
    for word, number, before in zip(words, ids.tolist(), plain.tolist(), strict=True):
        assert number == (number_of(word, len(TOKENIZER)) if before == unknown else before), word
    assert len(set(ids[plain == unknown].tolist())) == len({"met", "Valdon", "Torvik", "to"})


def test_words_are_numbered_beside_them_as_ever() -> None:
    closed, opened = (columns_of(STORIES, DocumentFields(TOKENIZER, spaced, open=apart)) for apart in (False, True))
    assert opened["word"].stream.tolist() == closed["word"].stream.tolist()
    assert opened["text"].stream.max() >= len(TOKENIZER)


def test_a_tokenizer_that_knows_everything_has_nothing_to_tell_apart() -> None:
    tokenizer = Tokenizer.train(ByteBPE(270), ["the cat ran ."] * 3)
    closed, opened = (columns_of(STORIES, DocumentFields(tokenizer, open=apart)) for apart in (False, True))
    assert opened["text"].stream.tolist() == closed["text"].stream.tolist()


def test_the_identity_says_so() -> None:
    closed, opened = (DocumentFields(TOKENIZER, open=apart).identity for apart in (False, True))
    assert opened == {**closed, "unknown words": "numbered"}
