"""The readout token of a decision is found, and the output layer run there alone says what it says everywhere."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from faithfulness.toys import PAIRS, TEXTS, bert, classifier, language_model, rows, translating
from regard.adapters.readout import find_readout, only_at, output_layer, picked, readout_of


@pytest.mark.parametrize(
    ("pooling", "decider"), [("cls", "first"), ("pooler", "first"), ("mean", None), ("attention", None)]
)
def test_of_a_bert(pooling: str, decider: str | None) -> None:
    asker = bert(pooling)
    [row] = rows(asker, TEXTS[0])
    assert find_readout(asker, row) == decider
    place = "reading.bert.encoder.blocks.1.self"
    assert asker.readout_position(place, [row, row]) == (None if decider is None else [0, 0])
    if pooling == "attention":
        assert asker.readout_position("summary.question", [row, row]) == [0, 0]


def test_the_last_token_of_what_goes_on() -> None:
    asker = language_model()
    given = rows(asker, *TEXTS)
    assert find_readout(asker, given[0]) == "last"
    assert asker.readout_position("decoder.1.self", given) == [len(row.ids) - 1 for row in given]


def test_where_nobody_asks_but_a_question() -> None:
    asker = classifier()
    [row] = rows(asker, TEXTS[0])
    assert find_readout(asker, row) is None and asker.readout_position("pooling", [row]) == [0]
    assert not asker.attends_from_text("pooling") and asker.attends_to_text("pooling")


def test_where_it_stands_in_rows_of_any_length() -> None:
    given = rows(classifier(), *TEXTS)
    assert readout_of("first", given) == [0] * 4 and readout_of(None, given) is None
    assert readout_of("last", given) == [len(row.ids) - 1 for row in given]


def test_a_module_is_handed_the_chosen_vectors() -> None:
    model, x = nn.Linear(3, 4), torch.randn(2, 5, 3)
    index = torch.tensor([4, 1])
    with only_at(model, index):
        found = model(x)
    assert found.shape == (2, 1, 4)
    torch.testing.assert_close(picked(found, index), picked(model(x), index))
    torch.testing.assert_close(picked(model(x), index)[1], model(x)[1, 1])
    with pytest.raises(RuntimeError, match="enough"), only_at(model, index):
        raise RuntimeError("enough")
    assert model(x).shape == (2, 5, 4)
    with only_at(None, index):
        assert model(x).shape == (2, 5, 4)


@torch.no_grad()
def test_a_language_model_says_the_same() -> None:
    asker = language_model()
    given = rows(asker, *TEXTS)
    ids = asker.input_ids(given)
    whole = asker.model(ids).log_softmax(-1)
    expected = torch.stack([whole[at, len(row.ids) - 1] for at, row in enumerate(given)])
    torch.testing.assert_close(asker.log_probs(given), expected)


@pytest.mark.parametrize("kind", ["bahdanau", "transformer", "pointer"])
@torch.no_grad()
def test_a_translator_says_the_same(kind: str) -> None:
    asker = translating(kind)
    for row in rows(asker, *PAIRS):
        source, written = torch.tensor([row.ids]), torch.tensor([row.written])
        whole = asker.model(source, torch.tensor([len(row.ids)]), written)[0].log_probs()
        torch.testing.assert_close(asker.log_probs([row])[0, : whole.size(-1)], whole[0, -1])


def test_what_copies_is_asked_everywhere() -> None:
    assert output_layer(translating("pointer").model) is None
    assert output_layer(classifier().model) is None
    assert (
        output_layer(translating("transformer").model) is not None and output_layer(language_model().model) is not None
    )
