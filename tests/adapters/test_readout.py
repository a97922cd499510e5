"""The readout token of a decision, and the output layer restricted to it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from faithfulness.toys import PAIRS, TEXTS, bert, classifier, language_model, rows, translating
from regard.adapters.readout import (
    find_output_layer,
    find_readout,
    gather_positions,
    readout_positions,
    restrict_to_positions,
)


@pytest.mark.parametrize(
    ("pooling", "decider"), [("cls", "first"), ("pooler", "first"), ("mean", None), ("attention", None)]
)
def test_the_readout_token_of_a_bert(pooling: str, decider: str | None) -> None:
    adapter = bert(pooling)
    [row] = rows(adapter, TEXTS[0])
    assert find_readout(adapter, row) == decider
    place = "features.bert.encoder.blocks.1.self"
    assert adapter.readout_position(place, [row, row]) == (None if decider is None else [0, 0])
    if pooling == "attention":
        assert adapter.readout_position("pooler.attention", [row, row]) == [0, 0]


def test_a_language_model_reads_out_the_last_token() -> None:
    adapter = language_model()
    given = rows(adapter, *TEXTS)
    assert find_readout(adapter, given[0]) == "last"
    assert adapter.readout_position("decoder.1.self", given) == [len(row.ids) - 1 for row in given]


def test_attention_pooling_has_no_readout_token() -> None:
    adapter = classifier()
    [row] = rows(adapter, TEXTS[0])
    assert find_readout(adapter, row) is None and adapter.readout_position("pooling", [row]) == [0]
    assert not adapter.has_text_queries("pooling") and adapter.has_text_keys("pooling")


def test_readout_positions_in_rows_of_any_length() -> None:
    given = rows(classifier(), *TEXTS)
    assert readout_positions("first", given) == [0] * 4 and readout_positions(None, given) is None
    assert readout_positions("last", given) == [len(row.ids) - 1 for row in given]


def test_a_module_gets_the_selected_vectors() -> None:
    model, x = nn.Linear(3, 4), torch.randn(2, 5, 3)
    index = torch.tensor([4, 1])
    with restrict_to_positions(model, index):
        found = model(x)
    assert found.shape == (2, 1, 4)
    torch.testing.assert_close(gather_positions(found, index), gather_positions(model(x), index))
    torch.testing.assert_close(gather_positions(model(x), index)[1], model(x)[1, 1])
    with pytest.raises(RuntimeError, match="enough"), restrict_to_positions(model, index):
        raise RuntimeError("enough")
    assert model(x).shape == (2, 5, 4)
    with restrict_to_positions(None, index):
        assert model(x).shape == (2, 5, 4)


@torch.no_grad()
def test_a_language_model_restricted_to_the_last_position() -> None:
    adapter = language_model()
    given = rows(adapter, *TEXTS)
    ids = adapter.input_ids(given)
    whole = adapter.model(ids).log_softmax(-1)
    expected = torch.stack([whole[at, len(row.ids) - 1] for at, row in enumerate(given)])
    torch.testing.assert_close(adapter.log_probs(given), expected)


@pytest.mark.parametrize("kind", ["bahdanau", "transformer", "pointer"])
@torch.no_grad()
def test_a_translator_restricted_to_the_last_position(kind: str) -> None:
    adapter = translating(kind)
    for row in rows(adapter, *PAIRS):
        source, written = torch.tensor([row.ids]), torch.tensor([row.decoder_ids])
        whole = adapter.model(source, torch.tensor([len(row.ids)]), written)[0].log_probs()
        torch.testing.assert_close(adapter.log_probs([row])[0, : whole.size(-1)], whole[0, -1])


def test_a_copying_model_computes_every_position() -> None:
    assert find_output_layer(translating("pointer").model) is None
    assert find_output_layer(classifier().model) is None
    assert (
        find_output_layer(translating("transformer").model) is not None
        and find_output_layer(language_model().model) is not None
    )
