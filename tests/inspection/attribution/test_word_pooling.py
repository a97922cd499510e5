"""Tokens to words: sums to, means from, special tokens on their own, two texts in a row apart."""

import pytest
import torch

from regard.adapters.token_row import NO_SPAN, NO_WORD
from regard.errors import ShapeError
from regard.inspection.attribution.word_pooling import pool_measure, pool_to_words, word_groups, word_texts
from regard.inspection.record.token_axis import TokenAxis

text = "unhappy cats purr"
one = TokenAxis(
    "text",
    text,
    ("[CLS]", "un", "##happy", "cats", "purr", "[SEP]"),
    (NO_SPAN, (0, 2), (2, 7), (8, 12), (13, 17), NO_SPAN),
    (NO_WORD, 0, 0, 1, 2, NO_WORD),
)
pair = TokenAxis(
    "both",
    "no cats",
    ("[CLS]", "no", "[SEP]", "ca", "ts", "[SEP]"),
    (NO_SPAN, (0, 2), NO_SPAN, (3, 5), (5, 7), NO_SPAN),
    (NO_WORD, 0, NO_WORD, 0, 0, NO_WORD),
    (0, 0, 0, 1, 1, 1),
)


def test_words_are_numbered_in_order_and_special_tokens_stand_for_themselves() -> None:
    assert word_groups(one) == [0, 1, 1, 2, 3, 4]
    assert word_texts(one) == ["[CLS]", "unhappy", "cats", "purr", "[SEP]"]
    assert word_groups(pair) == [0, 1, 2, 3, 3, 4]
    assert word_texts(pair) == ["[CLS]", "no", "[SEP]", "cats", "[SEP]"]


def test_weights_to_tokens_are_summed_and_from_tokens_averaged() -> None:
    weights = torch.rand(6, 6, generator=torch.Generator().manual_seed(0)).softmax(-1)
    got = pool_measure(weights, pair, one)
    assert got.shape == (5, 5)
    torch.testing.assert_close(got.sum(-1), torch.ones(5))
    torch.testing.assert_close(got[1, 3], (weights[1, 3] + weights[1, 4] + weights[2, 3] + weights[2, 4]) / 2)
    torch.testing.assert_close(got[4, 0], weights[5, 0])


def test_a_measure_of_other_tokens_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(6, 6\)"):
        pool_measure(torch.ones(6, 5), one, pair)


def test_pooling_to_words_by_hand() -> None:
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.3, 0.1], [0.2, 0.2, 0.2, 0.4]])
    words = pool_to_words(weights, [0, 0, 1], [0, 0])  # the last column and row are those of the end
    torch.testing.assert_close(words, torch.tensor([[(0.3 + 0.6) / 2, 0.3]]))


def test_maps_that_are_too_small_are_refused() -> None:
    with pytest.raises(ShapeError, match="at least"):
        pool_to_words(torch.ones(2, 2), [0, 1, 2], [0, 1])


def test_heads_are_pooled_side_by_side() -> None:
    weights = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(1))
    found = pool_to_words(weights, [0, 0, 1, 2], [0, 1, 1])
    torch.testing.assert_close(found, torch.stack([pool_to_words(one, [0, 0, 1, 2], [0, 1, 1]) for one in weights]))
