"""The prediction cache: each row is run once, in batches of bounded size."""

from __future__ import annotations

import torch

from faithfulness.toys import TEXTS, Known, classifier, row, rows
from regard.faithfulness import token_erasure as room
from regard.faithfulness.token_erasure import PredictionCache


def known() -> Known:
    return Known(lambda tokens: (1 / (1 + sum(tokens)), 1 - 1 / (1 + sum(tokens))))


def test_each_row_gets_its_own_prediction_in_any_batch() -> None:
    given = [row(5, 6, 7), row(4), row(5, 6), row(4), row(9, 8)]
    found = PredictionCache(known())(given)
    assert found.shape == (5, 2)
    torch.testing.assert_close(found[:, 0], torch.tensor([1 / 19, 1 / 5, 1 / 12, 1 / 5, 1 / 18], dtype=torch.float64))


def test_no_row_is_run_twice_until_the_cache_is_cleared() -> None:
    adapter = known()
    answers = PredictionCache(adapter)
    answers([row(5), row(6), row(5)])
    answers([row(6), row(7)])
    assert adapter.asked == answers.rows_run == 3
    answers.clear()
    answers([row(6)])
    assert adapter.asked == 4


def test_batches_are_filled_up_to_the_limit(monkeypatch) -> None:
    monkeypatch.setattr(room, "MAX_BATCH_TOKENS", 12)
    adapter, sizes = known(), []
    say = adapter.log_probs
    adapter.log_probs = lambda some: sizes.append([len(one.ids) for one in some]) or say(some)  # type: ignore[method-assign]
    PredictionCache(adapter)([row(*range(9, 9 + length)) for length in (3, 1, 20, 2, 4, 5)])
    assert sizes == [[1, 2, 3], [4, 5], [20]]


def test_padding_does_not_matter() -> None:
    adapter = classifier(reads=True)
    given = rows(adapter, *TEXTS)
    together, answers = PredictionCache(adapter)(given), PredictionCache(adapter)
    for one, p in zip(given, together, strict=True):
        torch.testing.assert_close(answers([one])[0], p)
    assert not together.requires_grad
