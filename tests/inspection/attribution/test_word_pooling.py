"""Pieces to words: sums to, means from, special tokens by themselves, two texts in a row apart."""

import pytest
import torch

from regard.adapters.tokens import NO_WORD, NOWHERE
from regard.errors import ShapeError
from regard.inspection.attribution.word_pooling import between_words, grouped, of_words, shown
from regard.inspection.record.token_axis import Side

text = "unhappy cats purr"
one = Side(
    "text",
    text,
    ("[CLS]", "un", "##happy", "cats", "purr", "[SEP]"),
    (NOWHERE, (0, 2), (2, 7), (8, 12), (13, 17), NOWHERE),
    (NO_WORD, 0, 0, 1, 2, NO_WORD),
)
pair = Side(
    "both",
    "no cats",
    ("[CLS]", "no", "[SEP]", "ca", "ts", "[SEP]"),
    (NOWHERE, (0, 2), NOWHERE, (3, 5), (5, 7), NOWHERE),
    (NO_WORD, 0, NO_WORD, 0, 0, NO_WORD),
    (0, 0, 0, 1, 1, 1),
)


def test_words_are_numbered_in_order_and_special_tokens_stand_for_themselves() -> None:
    assert grouped(one) == [0, 1, 1, 2, 3, 4]
    assert shown(one) == ["[CLS]", "unhappy", "cats", "purr", "[SEP]"]
    assert grouped(pair) == [0, 1, 2, 3, 3, 4]
    assert shown(pair) == ["[CLS]", "no", "[SEP]", "cats", "[SEP]"]


def test_to_pieces_is_summed_and_from_pieces_averaged() -> None:
    weights = torch.rand(6, 6, generator=torch.Generator().manual_seed(0)).softmax(-1)
    got = of_words(weights, pair, one)
    assert got.shape == (5, 5)
    torch.testing.assert_close(got.sum(-1), torch.ones(5))
    torch.testing.assert_close(got[1, 3], (weights[1, 3] + weights[1, 4] + weights[2, 3] + weights[2, 4]) / 2)
    torch.testing.assert_close(got[4, 0], weights[5, 0])


def test_a_measure_of_other_tokens_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(6, 6\)"):
        of_words(torch.ones(6, 5), one, pair)


def test_to_the_pieces_of_a_word_is_summed_and_from_them_averaged() -> None:
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.3, 0.1], [0.2, 0.2, 0.2, 0.4]])
    words = between_words(weights, [0, 0, 1], [0, 0])  # the last column and row are those of the end
    torch.testing.assert_close(words, torch.tensor([[(0.3 + 0.6) / 2, 0.3]]))


def test_maps_that_are_too_small_are_refused() -> None:
    with pytest.raises(ShapeError, match="at least"):
        between_words(torch.ones(2, 2), [0, 1, 2], [0, 1])


def test_heads_are_pooled_side_by_side() -> None:
    weights = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(1))
    found = between_words(weights, [0, 0, 1, 2], [0, 1, 1])
    torch.testing.assert_close(found, torch.stack([between_words(one, [0, 0, 1, 2], [0, 1, 1]) for one in weights]))
