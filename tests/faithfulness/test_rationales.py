"""Comprehensiveness, sufficiency and ground-truth scores, with p of every set of words given."""

from __future__ import annotations

import pytest
import torch

from faithfulness.toys import Known, row
from regard.adapters.case import InputRow
from regard.faithfulness.token_erasure import (
    PredictionCache,
    ground_truth_scores,
    rank_removable,
    rationale_scores,
    top_rationale,
)

CLS, SEP = 2, 3


def counted(tokens: frozenset[int]) -> tuple[float, float]:
    """p of class 0 is a sum over the tokens 10, 11, 12 and 13."""
    p = 0.1 + sum({10: 0.4, 11: 0.2, 12: 0.1, 13: 0.05}.get(token, 0.0) for token in tokens)
    return p, 1 - p


TEXT = InputRow((CLS, 10, 11, 12, 13, SEP), (False, True, True, True, True, False))


def test_a_rationale_is_a_share_of_the_removable_tokens() -> None:
    scores = torch.tensor([9.0, 1.0, 3.0, 2.0, 3.0, 9.0])
    assert top_rationale(scores, TEXT, 0.01) == [2]
    assert top_rationale(scores, TEXT, 0.5) == [2, 4]  # the first of equals first
    assert top_rationale(scores, TEXT, 0.51) == [2, 4, 3]
    assert sorted(top_rationale(scores, TEXT, 1.0)) == [1, 2, 3, 4]
    ten = row(*range(10, 20))
    assert [len(top_rationale(torch.rand(10), ten, size)) for size in (0.1, 0.2, 0.3, 0.7)] == [1, 2, 3, 7]


def test_tokens_with_negligible_weight_are_not_ranked() -> None:
    """With all weight on [CLS] the words are in random order, the same for a map and its reverse."""
    tail = torch.tensor([1.0, 4e-9, 3e-9, 2e-9, 1e-9, 0.0])
    assert rank_removable(tail, TEXT) == rank_removable(tail[[0, 4, 3, 2, 1, 5]], TEXT)
    assert rank_removable(tail, TEXT)[1] == [0.0] * 4
    some = torch.tensor([0.5, 1e-9, 0.3, 2e-9, 0.2, 0.0])  # two are named, in their order; then the others
    order, values = rank_removable(some, TEXT)
    assert order[:2] == [2, 4] and values == pytest.approx([0.3, 0.2, 0.0, 0.0])
    against = torch.tensor([0.0, 1e-9, -0.3, 2e-9, 0.2, 0.0])  # what speaks against the decision comes last
    assert rank_removable(against, TEXT)[0][0] == 4 and rank_removable(against, TEXT)[0][-1] == 2


def test_aopc_by_hand() -> None:
    right = torch.tensor([0.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    adapter = Known(counted)
    found = rationale_scores(PredictionCache(adapter), TEXT, 0, 0.85, {"right": right, "turned": -right}, (0.25, 0.5))
    # the best quarter is {10}, the best half {10, 11}; turned, {13} and {13, 12}
    assert found["right"] == pytest.approx(((0.4 + 0.6) / 2, (0.35 + 0.15) / 2))
    assert found["turned"] == pytest.approx(((0.05 + 0.15) / 2, (0.7 + 0.6) / 2))
    assert adapter.asked == 2 * 2 * 2 - 2  # "without {10, 11}" is "{12, 13} alone", each asked once


def test_the_other_class_has_the_opposite_sign() -> None:
    scores = torch.tensor([0.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    [(gone, left)] = rationale_scores(PredictionCache(Known(counted)), TEXT, 1, 0.15, {"one": scores}, (0.25,)).values()
    assert (gone, left) == pytest.approx((-0.4, -0.35))


def test_a_rationale_of_all_tokens() -> None:
    """Without it only [CLS] and [SEP] are left; with it the text is unchanged."""
    [(gone, left)] = rationale_scores(
        PredictionCache(Known(counted)), TEXT, 0, 0.85, {"one": torch.ones(6)}, (1.0,)
    ).values()
    assert (gone, left) == pytest.approx((0.75, 0.0))


def test_ground_truth_scores_by_hand() -> None:
    evidence = frozenset({2, 4})
    # in order: 2 (.5), 1 (.2), 4 (.2), 3 (.1); the first holds half of it
    found = ground_truth_scores(torch.tensor([0.7, 0.2, 0.5, 0.1, 0.2, 0.7]), TEXT, evidence)
    assert found == pytest.approx(
        {"precision": 1.0, "recall": 0.5, "precision_at_1": 1.0, "average_precision": (1 / 1 + 2 / 3) / 2}
    )
    # in order: 1 (.4), 3 (.3), 2 (.2), 4 (.1); two are needed for half, and none of them decides
    found = ground_truth_scores(torch.tensor([0.0, 0.4, 0.2, 0.3, 0.1, 0.0]), TEXT, evidence)
    assert found == pytest.approx(
        {"precision": 0.0, "recall": 0.0, "precision_at_1": 0.0, "average_precision": (1 / 3 + 2 / 4) / 2}
    )
    # all alike: half of the tokens hold half of it
    found = ground_truth_scores(torch.ones(6), TEXT, evidence)
    assert found == pytest.approx(
        {"precision": 0.5, "recall": 0.5, "precision_at_1": 0.0, "average_precision": (1 / 2 + 2 / 4) / 2}
    )


def test_negative_scores_have_no_mass() -> None:
    found = ground_truth_scores(torch.tensor([0.0, -5.0, 0.6, -3.0, 0.4, 0.0]), TEXT, frozenset({2, 4}))
    assert (found["precision"], found["recall"], found["average_precision"]) == (1.0, 0.5, 1.0)


def test_a_perfect_map_has_the_best_scores() -> None:
    scores = torch.tensor([0.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    found = ground_truth_scores(scores, TEXT, frozenset({2, 4}))
    assert found == {"precision": 1.0, "recall": 0.5, "precision_at_1": 1.0, "average_precision": 1.0}
