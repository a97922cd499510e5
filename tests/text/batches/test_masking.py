"""Laws of masking: 15% of what may be hidden, 80/10/10, never a special, and a function of the example alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import SettingError
from regard.text.batches.masking import Masking, MaskingCollator, WholeWords
from regard.text.batches.seeded_rng import Epoch
from regard.text.store.columns import Columns, RaggedArray
from regard.text.tokenizers.specials import SpecialIds
from text.batches.batching import FIRST_WORD, SPECIAL, VOCABULARY, texts, word_numbers

MASKING = Masking(SPECIAL, VOCABULARY)
WHOLE = Masking(SPECIAL, VOCABULARY, units=WholeWords())


def corpus(lengths, unknown: float = 0.0) -> Columns:
    """Texts with words of several pieces; a share of the pieces is unknown, which is a special."""
    text = texts(lengths)
    ids = np.where(np.random.default_rng(3).random(len(text.ids)) < unknown, SPECIAL.unknown, text.ids)
    text = RaggedArray(ids, text.ends)
    return Columns({"text": text, "word": word_numbers(text)})


def everything(columns: Columns, masking: Masking, epoch: Epoch = Epoch(0)):
    return MaskingCollator(columns, masking)(np.arange(len(columns)), epoch)


@pytest.mark.parametrize("masking", [MASKING, WHOLE], ids=["pieces", "whole words"])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 30, 200])
def test_15_percent_are_hidden_in_texts_of_any_length(masking, length):
    columns = corpus(np.full(300_000 // max(length, 3), length), unknown=0.1)
    batch = everything(columns, masking)
    free = int((columns["text"].ids >= FIRST_WORD).sum())
    assert abs(len(batch.positions) / free - 0.15) < 0.005
    assert batch.tokens == len(batch.targets)


@pytest.mark.parametrize("length", [10, 40])
def test_the_share_hardly_varies_between_texts(length):
    batch = everything(corpus(np.full(2000, length)), MASKING)
    counts = np.bincount(batch.positions // batch.inputs.shape[1], minlength=2000)
    assert set(counts) <= {int(0.15 * length), int(0.15 * length) + 1}
    assert abs(counts.mean() - 0.15 * length) < 0.04


@pytest.mark.parametrize("masking", [MASKING, WHOLE], ids=["pieces", "whole words"])
def test_80_10_10_and_never_a_special(masking):
    columns = corpus(np.random.default_rng(0).integers(1, 40, size=20_000), unknown=0.1)
    batch = everything(columns, masking)
    seen = batch.inputs.reshape(-1)[batch.positions]
    assert int(batch.targets.min()) >= FIRST_WORD
    masked, kept = seen == SPECIAL.mask, seen == batch.targets
    swapped = ~masked & ~kept
    chance = 1 / (VOCABULARY - FIRST_WORD)  # of a random token to be the one that stood there
    assert abs(masked.float().mean() - 0.8) < 0.01
    assert abs(swapped.float().mean() - 0.1 * (1 - chance)) < 0.008
    assert int(seen[swapped].min()) >= FIRST_WORD and int(seen[swapped].max()) < VOCABULARY
    assert len(seen[swapped].unique()) == VOCABULARY - FIRST_WORD


def test_nothing_changes_but_the_hidden_places():
    columns = corpus(np.random.default_rng(0).integers(1, 40, size=200), unknown=0.1)
    batch = everything(columns, MASKING)
    inputs = batch.inputs.reshape(-1).clone()
    inputs[batch.positions] = batch.targets
    for number, row in enumerate(inputs.reshape(batch.inputs.shape)):
        size = int(batch.lengths[number])
        assert row[:size].tolist() == [SPECIAL.cls, *columns["text"][number].tolist(), SPECIAL.sep]
        assert (row[size:] == SPECIAL.pad).all()
    assert torch.equal(batch.positions, batch.positions.unique())


@given(st.integers(0, 2**40), st.integers(0, 5), st.permutations(range(12)), st.integers(1, 12))
def test_masking_does_not_depend_on_the_other_rows(seed, number, order, count):
    columns, epoch = corpus(np.arange(3, 15)), Epoch(seed, number)
    alone = [MaskingCollator(columns, WHOLE)(np.array([row]), epoch) for row in range(12)]
    rows = np.array(order[:count])
    batch = MaskingCollator(columns, WHOLE)(rows, epoch)
    for place, row in enumerate(rows):
        size = int(batch.lengths[place])
        assert torch.equal(batch.inputs[place, :size], alone[row].inputs[0])


def test_every_epoch_and_every_seed_hides_others():
    columns = corpus(np.full(50, 20))
    hidden = [set(everything(columns, MASKING, Epoch(*key)).positions.tolist()) for key in ((0, 0), (0, 1), (1, 0))]
    for place, one in enumerate(hidden):
        for other in hidden[:place]:
            assert len(one & other) < 0.3 * len(one)


def test_every_place_is_hidden_as_often_as_any_other():
    columns = corpus(np.full(20_000, 12))
    batch = everything(columns, MASKING)
    columns_hidden = np.bincount(batch.positions % batch.inputs.shape[1], minlength=14)[1:13]
    assert abs(columns_hidden / 20_000 - 0.15).max() < 0.013  # 5 standard deviations


def test_whole_words_are_hidden_whole():
    columns = corpus(np.random.default_rng(0).integers(1, 30, size=500))
    batch = everything(columns, WHOLE)
    width = batch.inputs.shape[1]
    hidden = np.zeros(batch.inputs.shape, dtype=bool).reshape(-1)
    hidden[batch.positions] = True
    partly = 0
    for number, row in enumerate(hidden.reshape(-1, width)):
        words = columns["word"][number]
        for word in set(words.tolist()):
            pieces = row[1 : 1 + len(words)][words == word]
            assert pieces.all() or not pieces.any()
            partly += len(pieces) > 1 and pieces.all()
    assert partly > 50


def test_max_length_truncates_and_counts():
    fill = MaskingCollator(corpus([3, 10, 6]), MASKING, max_length=8)
    assert fill.truncated == 1
    assert fill.lengths.tolist() == [5, 8, 8]
    assert fill(np.arange(3), Epoch(0)).inputs.shape == (3, 8)


@pytest.mark.parametrize(
    "settings",
    [
        {"mask_rate": 1.5},
        {"mask_token_rate": 0.9, "random_token_rate": 0.2},
        {"vocabulary": 5},
        {"special": SpecialIds(pad=0)},
        {"mask_rate": -0.1},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(SettingError):
        Masking(**{"special": SPECIAL, "vocabulary": VOCABULARY, **settings})
