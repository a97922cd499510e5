"""Answers: each row is asked once, in batches that fit, and every one gets its own."""

from __future__ import annotations

import torch

from faithfulness.toys import TEXTS, Known, classifier, row, rows
from regard.faithfulness import token_erasure as room
from regard.faithfulness.token_erasure import Answers


def known() -> Known:
    return Known(lambda tokens: (1 / (1 + sum(tokens)), 1 - 1 / (1 + sum(tokens))))


def test_each_row_gets_its_own_answer_whatever_it_stands_beside() -> None:
    given = [row(5, 6, 7), row(4), row(5, 6), row(4), row(9, 8)]
    found = Answers(known())(given)
    assert found.shape == (5, 2)
    torch.testing.assert_close(found[:, 0], torch.tensor([1 / 19, 1 / 5, 1 / 12, 1 / 5, 1 / 18], dtype=torch.float64))


def test_nothing_is_asked_twice_until_it_is_forgotten() -> None:
    asker = known()
    answers = Answers(asker)
    answers([row(5), row(6), row(5)])
    answers([row(6), row(7)])
    assert asker.asked == answers.asked == 3
    answers.forget()
    answers([row(6)])
    assert asker.asked == 4


def test_batches_are_small_enough_and_no_smaller(monkeypatch) -> None:
    monkeypatch.setattr(room, "TOKENS", 12)
    asker, sizes = known(), []
    say = asker.log_probs
    asker.log_probs = lambda some: sizes.append([len(one.ids) for one in some]) or say(some)  # type: ignore[method-assign]
    Answers(asker)([row(*range(9, 9 + length)) for length in (3, 1, 20, 2, 4, 5)])
    assert sizes == [[1, 2, 3], [4, 5], [20]]


def test_padding_says_nothing() -> None:
    asker = classifier(reads=True)
    given = rows(asker, *TEXTS)
    together, answers = Answers(asker)(given), Answers(asker)
    for one, p in zip(given, together, strict=True):
        torch.testing.assert_close(answers([one])[0], p)
    assert not together.requires_grad
