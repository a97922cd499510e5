"""Erasure of weights in some order until the decision flips, computed by hand."""

from __future__ import annotations

from itertools import pairwise
from math import ceil

import pytest
import torch
from torch import nn

from faithfulness.toys import TOKENIZER, classifier, row
from regard.adapters.encoder import ClassifierAdapter
from regard.attention.scores import Dot
from regard.faithfulness.counterfactual import (
    Counterfactual,
    erase_until_flip,
    erasure_shares,
    predict_erased,
    rank_tokens,
)

FIRST = len(TOKENIZER.special.all)


def speaking(opinions: list[float], weights: list[float], copies: int = 4) -> Counterfactual:
    """A text whose word t has weight weights[t] and adds opinions[t] to the logit of class 1."""
    adapter: ClassifierAdapter = classifier(classes=2, score=Dot())
    model = adapter.model
    model.embedding = nn.Embedding(FIRST + len(weights), 6)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.weight[FIRST:, 0] = torch.tensor(weights).log()
        model.embedding.weight[FIRST:, 1] = torch.tensor(opinions)
        model.pooling.queries[0, 0] = 1.0
        model.classes.weight[1, 1] = 1.0
    return Counterfactual(adapter, [row(*range(FIRST, FIRST + len(weights)))], "pooling", copies)


def order(*tokens: int) -> torch.Tensor:
    return torch.tensor([tokens])


@torch.no_grad()
def test_the_toy_model_by_hand() -> None:
    counterfactual = speaking([5.0, -1.0, 0.0], [0.5, 0.25, 0.25])
    assert counterfactual.weights.flatten().tolist() == pytest.approx([0.5, 0.25, 0.25])
    logit = 0.5 * 5 - 0.25
    assert counterfactual.plain[0, 1].item() == pytest.approx(torch.tensor(logit).sigmoid().item())


@torch.no_grad()
def test_erased_weight_is_renormalised() -> None:
    counterfactual = speaking([5.0, -1.0, 2.0], [0.5, 0.2, 0.3], copies=2)
    gone = torch.tensor([[[True, False, False]], [[False, True, False]]])
    logits = torch.tensor([(-0.2 + 0.6) / 0.5, (2.5 + 0.6) / 0.8])
    torch.testing.assert_close(predict_erased(counterfactual, None, gone)[:, 0, 1], logits.sigmoid())


@torch.no_grad()
def test_the_first_alone_flips_or_not() -> None:
    # only word 0 speaks for class 1; without it the others, who speak against it, decide
    counterfactual = speaking([5.0, -1.0, -1.0, -1.0], [0.4, 0.2, 0.2, 0.2])
    first, share = erase_until_flip(counterfactual, None, order(0, 1, 2, 3))
    assert first.tolist() == [1.0] and share.tolist() == [0.25]
    first, share = erase_until_flip(counterfactual, None, order(1, 2, 0, 3))
    assert first.tolist() == [0.0] and share.tolist() == [0.75]


@torch.no_grad()
def test_a_decision_that_never_flips_has_share_one() -> None:
    counterfactual = speaking([5.0, 1.0, 1.0, 2.0], [0.4, 0.2, 0.2, 0.2])
    for tokens in ((0, 1, 2, 3), (3, 2, 1, 0)):
        first, share = erase_until_flip(counterfactual, None, order(*tokens))
        assert first.tolist() == [0.0] and share.tolist() == [1.0]


@pytest.mark.parametrize("copies", [1, 4, 30])
@torch.no_grad()
def test_the_smallest_share_equals_a_brute_force_search(copies: int) -> None:
    """Against erasing the words one by one and summing the rest."""
    rng = torch.Generator().manual_seed(4)
    for length in (3, 10, 17):
        opinions = torch.randn(length, generator=rng) - 0.3
        opinions[0] = 9.0
        weights = torch.rand(length, generator=rng).softmax(-1)
        counterfactual = speaking(opinions.tolist(), weights.tolist(), copies)
        assert counterfactual.plain[0].argmax() == 1
        tokens = torch.randperm(length, generator=rng).tolist()
        counts = sorted({1, *(min(length - 1, ceil(number * length / 10)) for number in range(1, 11))})
        left = [sum(float(weights[t] * opinions[t]) for t in tokens[count:]) for count in counts]
        expected = next((count / length for count, logit in zip(counts, left, strict=True) if logit < 0), 1.0)
        first, share = erase_until_flip(counterfactual, None, order(*tokens))
        assert share.item() == pytest.approx(expected) and first.item() == float(left[0] < 0)


@pytest.mark.parametrize("length", [2, 7, 10, 25, 30, 50])
@torch.no_grad()
def test_shares_of_any_length_are_whole_tokens(length: int) -> None:
    """One word decides, so the decision flips when it is erased, at each rank of the order."""
    one = speaking([99.0, *[-1.0] * (length - 1)], [1 / length] * length)
    counterfactual = Counterfactual(one.adapter, list(one.rows) * length, "pooling")
    orders = torch.tensor([[*range(1, at + 1), 0, *range(at + 1, length)] for at in range(length)])
    counts = [1, *(min(length - 1, -(-number * length // 10)) for number in range(1, 11))]
    expected = [min((count for count in counts if count > at), default=length) / length for at in range(length)]
    assert erase_until_flip(counterfactual, None, orders)[1].tolist() == pytest.approx(expected)


def test_shares_grow_to_one() -> None:
    assert erasure_shares(4) == [0.25, 0.5, 0.75, 1.0]
    assert all(one < other for one, other in pairwise(erasure_shares()))


def test_ranks_descend_and_padding_comes_last() -> None:
    scores = torch.tensor([[1.0, 3.0, 1.0, 9.0], [-5.0, -1.0, -5.0, -2.0]])
    real = torch.tensor([[True, True, True, False], [True] * 4])
    assert rank_tokens(scores, real).tolist() == [[1, 0, 2, 3], [1, 3, 0, 2]]


@torch.no_grad()
def test_texts_of_different_lengths() -> None:
    adapter = speaking([5.0, -1.0, -1.0, -1.0], [0.4, 0.2, 0.2, 0.2]).adapter
    given = [row(FIRST, FIRST + 1, FIRST + 2, FIRST + 3), row(FIRST + 1, FIRST)]
    counterfactual = Counterfactual(adapter, given, "pooling", 3)
    first, share = erase_until_flip(counterfactual, None, torch.tensor([[1, 0, 2, 3], [1, 0, 2, 3]]))
    assert first.tolist() == [0.0, 1.0] and share.tolist() == [0.5, 0.5]
