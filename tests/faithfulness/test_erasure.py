"""Weights taken away in some order: when the decision flips, counted by hand."""

from __future__ import annotations

from itertools import pairwise
from math import ceil

import pytest
import torch
from torch import nn

from faithfulness.toys import TOKENIZER, classifier, row
from regard.adapters.encoder import ClassifierAdapter
from regard.attention.scores import Dot
from regard.faithfulness.counterfactual import Trial, erased, flipping, order_of, shares

FIRST = len(TOKENIZER.special.all)


def speaking(opinions: list[float], weights: list[float], copies: int = 4) -> Trial:
    """A text whose word t has weight weights[t] and speaks for class 1 by opinions[t], or against it."""
    asker: ClassifierAdapter = classifier(classes=2, score=Dot())
    model = asker.model
    model.embedding = nn.Embedding(FIRST + len(weights), 6)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.weight[FIRST:, 0] = torch.tensor(weights).log()
        model.embedding.weight[FIRST:, 1] = torch.tensor(opinions)
        model.pooling.questions[0, 0] = 1.0
        model.classes.weight[1, 1] = 1.0
    return Trial(asker, [row(*range(FIRST, FIRST + len(weights)))], "pooling", copies)


def order(*tokens: int) -> torch.Tensor:
    return torch.tensor([tokens])


@torch.no_grad()
def test_the_toy_says_what_it_is_meant_to() -> None:
    trial = speaking([5.0, -1.0, 0.0], [0.5, 0.25, 0.25])
    assert trial.weights.flatten().tolist() == pytest.approx([0.5, 0.25, 0.25])
    logit = 0.5 * 5 - 0.25
    assert trial.plain[0, 1].item() == pytest.approx(torch.tensor(logit).sigmoid().item())


@torch.no_grad()
def test_what_is_left_is_shared_out() -> None:
    trial = speaking([5.0, -1.0, 2.0], [0.5, 0.2, 0.3], copies=2)
    gone = torch.tensor([[[True, False, False]], [[False, True, False]]])
    logits = torch.tensor([(-0.2 + 0.6) / 0.5, (2.5 + 0.6) / 0.8])
    torch.testing.assert_close(erased(trial, None, gone)[:, 0, 1], logits.sigmoid())


@torch.no_grad()
def test_the_first_alone_flips_or_not() -> None:
    # only word 0 speaks for class 1; without it the others, who speak against it, decide
    trial = speaking([5.0, -1.0, -1.0, -1.0], [0.4, 0.2, 0.2, 0.2])
    first, share = flipping(trial, None, order(0, 1, 2, 3))
    assert first.tolist() == [1.0] and share.tolist() == [0.25]
    first, share = flipping(trial, None, order(1, 2, 0, 3))
    assert first.tolist() == [0.0] and share.tolist() == [0.75]


@torch.no_grad()
def test_what_never_flips_takes_all() -> None:
    trial = speaking([5.0, 1.0, 1.0, 2.0], [0.4, 0.2, 0.2, 0.2])
    for tokens in ((0, 1, 2, 3), (3, 2, 1, 0)):
        first, share = flipping(trial, None, order(*tokens))
        assert first.tolist() == [0.0] and share.tolist() == [1.0]


@pytest.mark.parametrize("copies", [1, 4, 30])
@torch.no_grad()
def test_the_smallest_share_is_found_by_taking_one_after_another(copies: int) -> None:
    """Against taking the words away one by one and summing up what is left."""
    chance = torch.Generator().manual_seed(4)
    for length in (3, 10, 17):
        opinions = torch.randn(length, generator=chance) - 0.3
        opinions[0] = 9.0
        weights = torch.rand(length, generator=chance).softmax(-1)
        trial = speaking(opinions.tolist(), weights.tolist(), copies)
        assert trial.plain[0].argmax() == 1
        tokens = torch.randperm(length, generator=chance).tolist()
        counts = sorted({1, *(min(length - 1, ceil(number * length / 10)) for number in range(1, 11))})
        left = [sum(float(weights[t] * opinions[t]) for t in tokens[count:]) for count in counts]
        expected = next((count / length for count, logit in zip(counts, left, strict=True) if logit < 0), 1.0)
        first, share = flipping(trial, None, order(*tokens))
        assert share.item() == pytest.approx(expected) and first.item() == float(left[0] < 0)


@pytest.mark.parametrize("length", [2, 7, 10, 25, 30, 50])
@torch.no_grad()
def test_shares_of_any_length_are_whole_tokens_and_no_more_than_needed(length: int) -> None:
    """One word alone speaks for the decision, so it flips as soon as that one is gone: at each place of the order."""
    one = speaking([99.0, *[-1.0] * (length - 1)], [1 / length] * length)
    trial = Trial(one.asker, list(one.rows) * length, "pooling")
    orders = torch.tensor([[*range(1, at + 1), 0, *range(at + 1, length)] for at in range(length)])
    counts = [1, *(min(length - 1, -(-number * length // 10)) for number in range(1, 11))]
    expected = [min((count for count in counts if count > at), default=length) / length for at in range(length)]
    assert flipping(trial, None, orders)[1].tolist() == pytest.approx(expected)


def test_shares_grow_to_all() -> None:
    assert shares(4) == [0.25, 0.5, 0.75, 1.0]
    assert all(one < other for one, other in pairwise(shares()))


def test_orders_go_down_and_padding_comes_last() -> None:
    scores = torch.tensor([[1.0, 3.0, 1.0, 9.0], [-5.0, -1.0, -5.0, -2.0]])
    real = torch.tensor([[True, True, True, False], [True] * 4])
    assert order_of(scores, real).tolist() == [[1, 0, 2, 3], [1, 3, 0, 2]]


@torch.no_grad()
def test_texts_of_different_lengths_go_by_their_own() -> None:
    asker = speaking([5.0, -1.0, -1.0, -1.0], [0.4, 0.2, 0.2, 0.2]).asker
    given = [row(FIRST, FIRST + 1, FIRST + 2, FIRST + 3), row(FIRST + 1, FIRST)]
    trial = Trial(asker, given, "pooling", 3)
    first, share = flipping(trial, None, torch.tensor([[1, 0, 2, 3], [1, 0, 2, 3]]))
    assert first.tolist() == [0.0, 1.0] and share.tolist() == [0.5, 0.5]
