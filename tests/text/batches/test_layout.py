"""Rows put together from parts, against the same rows put together token by token."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import SettingError
from regard.text.batches.layout import pad_parts, pad_rows, slice_rows, text_limit, to_tensor, truncate_pair
from text.batches.batching import numbered

lengths = st.lists(st.integers(0, 6), min_size=1, max_size=8)


@given(lengths, st.data())
def test_parts_lie_one_after_the_other(sizes, data):
    first, second = numbered(sizes), numbered(sizes[::-1])
    rows = np.array(data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=6)), dtype=np.int64)
    max_length = data.draw(st.integers(0, 7))
    padded = pad_parts([7, slice_rows(first, rows), 8, slice_rows(second, rows, max_length), 9], len(rows), pad=-5)
    wanted = [[7, *first[row].tolist(), 8, *second[row][:max_length].tolist(), 9] for row in rows]
    assert padded.ids.shape == (len(rows), max([1, *map(len, wanted)]))
    assert padded.lengths.tolist() == [len(row) for row in wanted]
    for row, got in zip(wanted, padded.ids.tolist(), strict=True):
        assert got == row + [-5] * (len(got) - len(row))
    for row, segments, real in zip(wanted, padded.segment_ids(3), padded.is_token, strict=True):
        inside = row.index(8) + 1
        assert segments.tolist() == [int(inside <= place < len(row)) for place in range(len(segments))]
        assert real.sum() == len(row)


@given(st.integers(0, 20), st.integers(0, 20), st.integers(2, 20))
def test_the_longer_text_gives_way(first, second, room):
    """As BERT does it: one token at a time off the longer one, off the second where they are equal."""
    a, b = first, second
    while a + b > room:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    assert tuple(map(int, truncate_pair(np.array(first), np.array(second), room))) == (a, b)


def test_max_length_must_leave_room():
    assert text_limit(10, 3, "here") == 7 and text_limit(None, 3, "here") > 10**15
    with pytest.raises(SettingError, match="here: got max_length=3"):
        text_limit(3, 3, "here")


def test_tensors_share_no_memory():
    values = np.arange(4)
    copy = to_tensor(values)
    copy += 1
    assert values.tolist() == [0, 1, 2, 3]


def test_rows_are_padded_on_either_side():
    ids, lengths = pad_rows([[5, 6], [7], []], pad=-1)
    assert ids.tolist() == [[5, 6], [7, -1], [-1, -1]]
    assert lengths.tolist() == [2, 1, 0]
    assert pad_rows([[5, 6], [7]], pad=0, left=True)[0].tolist() == [[5, 6], [0, 7]]


@pytest.mark.parametrize("rows", [[], [[]], [(), ()]])
def test_rows_of_nothing_have_no_columns(rows):
    ids, lengths = pad_rows(rows, pad=0)
    assert ids.shape == (len(rows), 0)
    assert ids.dtype == lengths.dtype == torch.int64
