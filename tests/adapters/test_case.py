"""Rows without some of their tokens, and tokens by their words."""

from __future__ import annotations

import pytest

from regard.adapters.case import InputRow, tokens_of_words, word_ids_at

ROW = InputRow((2, 10, 11, 12, 3), (False, True, True, True, False), (0, 0, 0, 1, 1), (5, 6), (99,))


def test_removing_tokens_removes_their_fields() -> None:
    found = ROW.without([2, 3])
    assert found == InputRow((2, 10, 3), (False, True, False), (0, 0, 1), (5, 6), (99,))
    assert ROW.without([]) == ROW == ROW.keep([True] * 5)
    assert ROW.keep([at != 1 for at in range(5)]) == ROW.without({1})
    assert InputRow((7, 8), (True, True)).without([0]) == InputRow((8,), (True,))


def test_equal_texts_give_equal_rows() -> None:
    assert hash(ROW.without([1]).without([1])) == hash(ROW.without([1, 2]))
    assert ROW.without([1]).without([1]) == ROW.without([1, 2])


def test_fields_must_have_one_entry_for_each_token() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ROW.keep([True])


def test_the_word_in_which_a_span_begins() -> None:
    text = "  the re-used  film"
    offsets = [(2, 5), (6, 8), (8, 9), (9, 13), (15, 19), (0, 0), (5, 6), (4, 4)]
    assert word_ids_at(text, offsets) == [0, 1, 1, 1, 2, -1, -1, -1]


def test_tokens_of_words() -> None:
    assert tokens_of_words([-1, 0, 1, 1, 2, -1], (1, 2)) == {2, 3, 4}
    assert tokens_of_words([-1, 0], ()) == frozenset() and tokens_of_words([-1, 0], None) is None
