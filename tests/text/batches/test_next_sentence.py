"""Laws of sentence pairs: balanced, true ones true, false ones of another document, every sentence used."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard.errors import SettingError
from regard.text.batches.masking import Masking, WholeWords
from regard.text.batches.next_sentence import (
    FIRST,
    FIRST_STOP,
    FOLLOWS,
    SECOND,
    SECOND_STOP,
    NextSentenceCollator,
    NextSentencePairs,
)
from regard.text.batches.plan import Batches
from regard.text.batches.seeded_rng import Epoch
from regard.text.store.columns import Columns
from text.batches.batching import SPECIAL, VOCABULARY, documents_of

PLAIN = Masking(SPECIAL, VOCABULARY, mask_rate=0.0)


@st.composite
def corpora(draw) -> Columns:
    """Documents of 0 to 12 sentences of 0 to 9 tokens; at least two with text, one of them of two sentences."""
    sizes = draw(st.lists(st.integers(0, 12), min_size=1, max_size=8))
    lengths = draw(st.lists(st.integers(0, 9), min_size=sum(sizes), max_size=sum(sizes)))
    return documents_of([*sizes, 2, 1], [*lengths, 3, 4, 5])


def owners(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """The document and the sentence of every token."""
    sentence = np.repeat(np.arange(len(columns)), columns["text"].lengths)
    return np.searchsorted(columns.documents, sentence, side="right") - 1, sentence


@given(corpora(), st.integers(5, 40), st.integers(0, 2**40))
def test_pairs_are_balanced_within_max_length_and_tell_the_truth(columns, max_length, seed):
    made = NextSentencePairs(columns, max_length, budget=80).pairs(Epoch(seed))
    document, sentence = owners(columns)
    assert abs(int((made[:, FOLLOWS] * 2 - 1).sum())) <= 1
    for _, a, a_stop, b, b_stop, follows in made.tolist():
        assert a < a_stop and b < b_stop
        assert a_stop - a + b_stop - b + 3 <= max_length
        assert len({*document[a:a_stop]}) == len({*document[b:b_stop]}) == 1
        assert (document[a] == document[b]) == bool(follows)
        if follows:  # b begins at a sentence, which is the next one with tokens after those of a
            assert sentence[b] != sentence[b - 1] and sentence[b - 1] == sentence[a_stop - 1]
            if a_stop != b:  # a was cut: then both are single sentences, and together too long
                assert sentence[a] == sentence[a_stop - 1] and sentence[b] == sentence[b_stop - 1]


@given(corpora(), st.integers(5, 40), st.integers(0, 2**40))
def test_every_sentence_of_a_document_of_several_is_used(columns, max_length, seed):
    made = NextSentencePairs(columns, max_length, budget=80).pairs(Epoch(seed))
    document, sentence = owners(columns)
    own = [*((a, stop) for _, a, stop, *_ in made), *((b, stop) for *_, b, stop, follows in made if follows)]
    used = {name for start, stop in own for name in sentence[start:stop].tolist()}
    sentences = [set(sentence[document == number].tolist()) for number in set(document.tolist())]
    assert used == set().union(*(several for several in sentences if len(several) > 1))


def test_texts_grow_by_whole_sentences_where_there_is_room():
    columns = documents_of([50] * 20, np.full(1000, 5))
    made = NextSentencePairs(columns, max_length=103, budget=1030).pairs(Epoch(0))
    sizes = np.stack([made[:, FIRST_STOP] - made[:, FIRST], made[:, SECOND_STOP] - made[:, SECOND]], axis=1)
    assert (sizes % 5 == 0).all()
    assert (sizes.sum(1) == 100).mean() > 0.6 and sizes.sum(1).max() == 100


def test_second_texts_of_false_pairs_come_from_any_document():
    columns = documents_of([6] * 30, np.full(180, 5))
    document, sentence = owners(columns)
    pairs = NextSentencePairs(columns, max_length=33, budget=400)
    made = np.concatenate([pairs.pairs(Epoch(0, number)) for number in range(100)])
    false = made[made[:, FOLLOWS] == 0]
    counts = np.bincount(document[false[:, SECOND]], minlength=30)
    assert counts.min() > 0.5 * counts.mean()
    assert len(set(sentence[false[:, SECOND]].tolist())) == 180


def test_epochs_make_other_pairs():
    pairs = NextSentencePairs(documents_of([30] * 10, np.full(300, 5)), max_length=63, budget=630)
    made = [{tuple(row[1:]) for row in pairs.pairs(Epoch(0, number)).tolist()} for number in range(3)]
    assert all(len(made[one] & made[other]) < 0.2 * len(made[one]) for one in range(3) for other in range(one))


def test_chunks_begin_elsewhere_each_epoch():
    pairs = NextSentencePairs(documents_of([30] * 10, np.full(300, 5)), max_length=63, budget=630)
    made = np.concatenate([pairs.pairs(Epoch(0, number)) for number in range(10)])
    begins = made[made[:, FOLLOWS] == 1, FIRST] // 5 % 30  # the sentence of its document
    assert len(set(begins.tolist())) > 20


def test_batches_look_like_bert_and_fit_the_budget():
    columns = documents_of([7, 3, 1, 9], np.random.default_rng(0).integers(1, 9, size=20))
    pairs = NextSentencePairs(columns, max_length=24, budget=100)
    made, seen = pairs.pairs(Epoch(0)), []
    for batch in Batches(pairs, NextSentenceCollator(columns, PLAIN)):
        assert batch.inputs.numel() <= 100 and not len(batch.positions)
        for row, number in enumerate(batch.indices.tolist()):
            _, a, a_stop, b, b_stop, follows = made[number].tolist()
            first, second = columns["text"].ids[a:a_stop].tolist(), columns["text"].ids[b:b_stop].tolist()
            size = int(batch.lengths[row])
            wanted = [SPECIAL.cls, *first, SPECIAL.sep, *second, SPECIAL.sep]
            assert batch.inputs[row].tolist() == wanted + [SPECIAL.pad] * (batch.inputs.shape[1] - size)
            segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
            assert batch.segments[row, :size].tolist() == segments
            assert int(batch.next[row]) == follows
            seen.append(number)
    assert sorted(seen) == list(range(len(made)))


def test_pairs_are_masked_as_well_in_both_texts_and_whole_words():
    columns = documents_of([20] * 200, np.full(4000, 1))  # one word a sentence: words of neighbours stay apart
    masking = Masking(SPECIAL, 5000, units=WholeWords())
    pairs = NextSentencePairs(columns, max_length=23, budget=2300)
    hidden = tokens = second = 0
    for batch in Batches(pairs, NextSentenceCollator(columns, masking)):
        hidden, tokens = hidden + len(batch.positions), tokens + int(batch.lengths.sum()) - 3 * len(batch)
        second += int(batch.segments.reshape(-1)[batch.positions].sum())
        counts = np.bincount(batch.positions // batch.inputs.shape[1], minlength=len(batch))
        assert counts.max() <= 3
    assert abs(hidden / tokens - 0.15) < 0.01
    assert 0.4 < second / hidden < 0.6


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (documents_of([3], [2, 2, 2]), "1 documents with text"),
        (documents_of([3, 2], [2, 2, 2, 0, 0]), "1 documents with text"),
        (documents_of([1, 1], [2, 2]), "Every document has a single sentence"),
        (Columns({"text": documents_of([1], [2])["text"]}), "no document boundaries"),
    ],
)
def test_corpora_without_other_documents_are_refused(columns, words):
    with pytest.raises(SettingError, match=words):
        NextSentencePairs(columns, max_length=20, budget=100)


@pytest.mark.parametrize(
    "settings", [{"max_length": 4, "budget": 100}, {"max_length": 3, "budget": 9}, {"max_length": 20, "budget": 9}]
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(SettingError):
        NextSentencePairs(documents_of([3, 3], [2] * 6), **settings)
