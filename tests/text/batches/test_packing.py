"""Laws of packing: full rows, every token once, and attention over a row equal to each text alone."""

import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from regard import attend, masks
from regard.errors import SettingError
from regard.text.batches.packing import Packing, PackingCollator, best_fit
from regard.text.batches.plan import Batches
from regard.text.batches.seeded_rng import Epoch
from regard.text.examples import IGNORED
from regard.text.store.columns import Columns
from text.batches.batching import caption_lengths, numbered

START, END, PAD = 2, 3, 9
some_lengths = st.lists(st.integers(0, 30), min_size=1, max_size=40).filter(any)


@given(some_lengths, st.integers(2, 16), st.integers(1, 4), st.booleans(), st.booleans(), st.integers(0, 99))
def test_every_token_is_an_input_once_and_a_target_once_but_the_first(lengths, size, rows, start, end, seed):
    columns = Columns({"text": numbered(lengths)})
    collate = PackingCollator(columns, size, START if start else None, END if end else None, PAD)
    inputs, pairs = [], []
    for batch in Batches(Packing(collate.lengths, size, rows), collate, seed):
        assert batch.inputs.shape == batch.targets.shape == (len(batch), size) and len(batch) <= rows
        real, predicted = batch.documents >= 0, batch.targets != IGNORED
        assert (batch.inputs[~real] == PAD).all() and not (predicted & ~real).any()
        inputs += batch.inputs[real].tolist()
        pairs += zip(batch.inputs[predicted].tolist(), batch.targets[predicted].tolist(), strict=True)
    whole = [
        [START] * start + text.tolist() + [END] * end for text in map(columns["text"].__getitem__, range(len(columns)))
    ]
    assert sorted(inputs) == sorted(token for text in whole for token in text)
    assert sorted(pairs) == sorted(pair for text in whole for pair in pairwise(text))


@given(some_lengths, st.integers(2, 16), st.integers(0, 99))
def test_documents_and_positions_tell_the_pieces_apart(lengths, size, seed):
    columns = Columns({"text": numbered(lengths)})
    collate = PackingCollator(columns, size)
    plan = Packing(collate.lengths, size, rows=3)
    begins = 1000 + columns["text"].ends - np.array(lengths)
    firsts = {
        int(begin) + first for begin, length in zip(begins, lengths, strict=True) for first in range(0, length, size)
    }
    seen = set()
    for batch in Batches(plan, collate, seed):
        for inputs, documents, positions in zip(batch.inputs, batch.documents, batch.positions, strict=True):
            assert sorted(documents[documents >= 0].tolist()) == documents[documents >= 0].tolist()
            for number in set(documents.tolist()) - {-1}:
                piece = inputs[documents == number]
                assert piece.tolist() == list(range(int(piece[0]), int(piece[0]) + len(piece)))
                assert positions[documents == number].tolist() == list(range(len(piece)))
                seen.add(int(piece[0]))
    assert seen == firsts


def test_attention_over_a_packed_row_equals_each_text_alone():
    columns = Columns({"text": numbered([5, 3, 4, 2, 7, 1])})
    collate = PackingCollator(columns, size=12, end=END)
    torch.manual_seed(0)
    table = torch.randn(2000, 8, dtype=torch.float64)
    checked = 0
    for batch in Batches(Packing(collate.lengths, size=12, rows=3), collate):
        x = table[batch.inputs] + batch.positions[..., None].sin()
        together = attend(x, x, x, mask=masks.Causal() & masks.Documents(batch.documents)).output
        for row, documents in enumerate(batch.documents):
            for number in set(documents.tolist()) - {-1}:
                here = documents == number
                alone = (
                    table[batch.inputs[row, here]] + torch.arange(int(here.sum()), dtype=torch.float64)[:, None].sin()
                )
                expected = attend(alone, alone, alone, mask=masks.Causal()).output
                torch.testing.assert_close(together[row, here], expected)
                checked += 1
    assert checked == 6


@pytest.mark.parametrize(("size", "least"), [(512, 0.99), (64, 0.975)])
def test_rows_of_captions_are_full(size, least):
    plan = Packing(caption_lengths(29_000)[:, 0] + 2, size, rows=8)
    fill = plan.fill_rate(Epoch(0))
    assert fill > least
    batches = list(plan(Epoch(0)))
    rows = sum(len(batch) for batch in batches)
    assert fill == pytest.approx(plan.lengths.sum() / rows / size)
    assert all(batch[..., 2].sum(1).max() <= size for batch in batches)


@given(st.lists(st.integers(1, 20), max_size=60))
def test_best_fit_takes_the_fullest_row_that_holds_it(sizes):
    placed, count = best_fit(sizes, 20)
    left = []
    for size, row in zip(sizes, placed, strict=True):
        fitting = [room for room in left if room >= size]
        if fitting:
            assert left[row] == min(fitting)
        else:
            assert row == len(left)
            left.append(20)
        left[row] -= size
    assert len(left) == count


def test_texts_meet_others_each_epoch():
    plan = Packing(caption_lengths(3000)[:, 0], 128, rows=4)
    rows = [
        {frozenset(row[row[:, 2] > 0, 0].tolist()) for batch in plan(Epoch(0, number)) for row in batch}
        for number in (0, 1)
    ]
    assert not rows[0] & rows[1]


def test_long_texts_are_refused_by_choice():
    with pytest.raises(SettingError, match=r"\(1\) are longer than a row of 10 tokens, such as text 1 with 30"):
        Packing(np.array([3, 30]), size=10, rows=1, too_long="refuse")
    Packing(np.array([3, 10]), size=10, rows=1, too_long="refuse")


def test_a_row_of_another_size_is_refused():
    columns = Columns({"text": numbered([9, 9])})
    with pytest.raises(SettingError, match="a row of 18 tokens"):
        PackingCollator(columns, size=10)(Packing(np.array([9, 9]), 20, 1)(Epoch(0))[0], Epoch(0))
    with pytest.raises(SettingError, match="have a different size"):
        Batches(Packing(np.array([9, 9]), 20, 1), PackingCollator(columns, size=40))


@pytest.mark.parametrize("settings", [{"size": 0}, {"rows": 0}, {"too_long": "drop"}, {"lengths": np.zeros(3)}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(SettingError):
        Packing(**{"lengths": np.ones(3, dtype=int), "size": 5, "rows": 2, **settings})


def test_a_plan_over_many_texts_takes_seconds():
    plan = Packing(caption_lengths(300_000)[:, 0], 512, rows=8)
    start = time.process_time()  # a busy machine does not count
    len(plan(Epoch(0)))
    assert time.process_time() - start < 10  # about 0.5 s
