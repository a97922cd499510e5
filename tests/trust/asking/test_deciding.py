"""From which token a decision is read is found out, whatever kind of model it is."""

from __future__ import annotations

import pytest

from regard.trust.asking.deciding import at_decider, find_decider
from trust.toys import TEXTS, bert, classifier, language_model, rows


@pytest.mark.parametrize(
    ("pooling", "decider"), [("cls", "first"), ("pooler", "first"), ("mean", None), ("attention", None)]
)
def test_of_a_bert(pooling: str, decider: str | None) -> None:
    asker = bert(pooling)
    [row] = rows(asker, TEXTS[0])
    assert find_decider(asker, row) == decider
    place = "reading.bert.encoder.blocks.1.self"
    assert asker.decider(place, [row, row]) == (None if decider is None else [0, 0])
    if pooling == "attention":
        assert asker.decider("summary.question", [row, row]) == [0, 0]


def test_the_last_token_of_what_goes_on() -> None:
    asker = language_model()
    given = rows(asker, *TEXTS)
    assert find_decider(asker, given[0]) == "last"
    assert asker.decider("decoder.1.self", given) == [len(row.ids) - 1 for row in given]


def test_where_nobody_asks_but_a_question() -> None:
    asker = classifier()
    [row] = rows(asker, TEXTS[0])
    assert find_decider(asker, row) is None and asker.decider("pooling", [row]) == [0]
    assert not asker.asks_from_text("pooling") and asker.looks_at_text("pooling")


def test_where_it_stands_in_rows_of_any_length() -> None:
    given = rows(classifier(), *TEXTS)
    assert at_decider("first", given) == [0] * 4 and at_decider(None, given) is None
    assert at_decider("last", given) == [len(row.ids) - 1 for row in given]
