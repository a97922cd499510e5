"""Rows without some of their tokens, and tokens by the word that they lie in."""

from __future__ import annotations

import pytest

from regard.adapters.case import Row, tokens_of, words_at

ROW = Row((2, 10, 11, 12, 3), (False, True, True, True, False), (0, 0, 0, 1, 1), (5, 6), (99,))


def test_what_is_taken_away_takes_its_marks_along() -> None:
    found = ROW.without([2, 3])
    assert found == Row((2, 10, 3), (False, True, False), (0, 0, 1), (5, 6), (99,))
    assert ROW.without([]) == ROW == ROW.keeping([True] * 5)
    assert ROW.keeping([at != 1 for at in range(5)]) == ROW.without({1})
    assert Row((7, 8), (True, True)).without([0]) == Row((8,), (True,))


def test_the_same_text_is_the_same_row_however_it_came_about() -> None:
    assert hash(ROW.without([1]).without([1])) == hash(ROW.without([1, 2]))
    assert ROW.without([1]).without([1]) == ROW.without([1, 2])


def test_marks_must_be_one_for_each() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ROW.keeping([True])


def test_the_word_in_which_a_stretch_begins() -> None:
    text = "  the re-used  film"
    offsets = [(2, 5), (6, 8), (8, 9), (9, 13), (15, 19), (0, 0), (5, 6), (4, 4)]
    assert words_at(text, offsets) == [0, 1, 1, 1, 2, -1, -1, -1]


def test_tokens_of_words() -> None:
    assert tokens_of([-1, 0, 1, 1, 2, -1], (1, 2)) == {2, 3, 4}
    assert tokens_of([-1, 0], ()) == frozenset() and tokens_of([-1, 0], None) is None
