"""Which axes are one residual stream: a decoder's input and output, but not a learned query."""

from dataclasses import replace

import pytest
import torch
from tests.inspection.attribution.records import ids, place, translated

from regard.errors import RecordError
from regard.inspection.attribution.rollout import rollout, rollout_layers
from regard.inspection.record.record import Record


def streams(seen: Record) -> list[tuple[str, int, int]]:
    found = zip(seen.places, rollout_layers(seen), strict=True)
    return [(place.name, layer.queries, layer.keys) for place, layer in found][::-1]


def test_decoder_input_and_output_are_one_stream() -> None:
    seen = translated(ids(1, 5), ids(1, 5))  # of one length, so that lengths cannot tell the texts apart
    assert streams(seen) == [
        ("decoder.1.cross", 1, 0),
        ("decoder.1.self", 1, 1),
        ("decoder.0.cross", 1, 0),
        ("decoder.0.self", 1, 1),
        ("encoder.blocks.1.self", 0, 0),
        ("encoder.blocks.0.self", 0, 0),
    ]
    for own, across in (((2, 1), 2), ((1, 1), 1), ((2, 1), 1)):
        places = tuple(
            replace(one, queries=across)
            if one.kind == "cross"
            else replace(one, queries=own[0], keys=own[1])
            if one.name.startswith("decoder")
            else one
            for one in seen.places
        )
        other = Record(seen.axes, places)
        assert streams(other) == streams(seen)
        torch.testing.assert_close(rollout(rollout_layers(seen)), rollout(rollout_layers(other)))


def test_a_learned_query_is_a_stream_of_its_own() -> None:
    text = place(T=4)
    question = replace(place(T=1, S=4), name="pool", queries=1, keys=0)
    seen = Record((), (text, question))
    assert streams(seen) == [("pool", 1, 0), ("0.self", 0, 0)]
    shares = rollout(rollout_layers(seen))[1]
    assert float(shares[0].sum()) == pytest.approx(0.5, abs=1e-3)
    one_token = replace(place(T=1), name="pool", kind="cross", queries=1, keys=0)
    assert streams(Record((), (place(T=1), one_token)))[0] == ("pool", 1, 0)
    other = replace(place(T=3), name="other", queries=2, keys=2)
    assert streams(Record((), (text, other, question)))[0] == ("pool", 1, 0)


def test_a_decoder_without_self_attention_is_a_stream_of_its_own() -> None:
    seen = Record((), (replace(place(T=3, S=5), name="cross", queries=2, keys=0),))
    assert streams(seen) == [("cross", 2, 0)]


def test_texts_of_changing_length_and_empty_choices_are_refused() -> None:
    with pytest.raises(RecordError, match="4 tokens"):
        rollout_layers(Record((), (replace(place(T=5), name="low"), replace(place(T=4), name="high"))))
    with pytest.raises(RecordError, match="no places"):
        rollout_layers(Record((), (place(),)), [])
