"""Which sides are one stream: what a decoder reads and writes, but not a question about a text."""

from dataclasses import replace

import pytest
import torch
from tests.inspection.attribution.records import ids, place, translated

from regard.errors import RecordError
from regard.inspection.attribution.rollout import layers_of, rollout
from regard.inspection.record.record import Record


def streams(seen: Record) -> list[tuple[str, int, int]]:
    found = zip(seen.places, layers_of(seen), strict=True)
    return [(place.name, layer.queries, layer.keys) for place, layer in found][::-1]


def test_what_a_decoder_reads_and_writes_is_one_stream_however_the_sides_are_told() -> None:
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
        other = Record(seen.sides, places)
        assert streams(other) == streams(seen)
        torch.testing.assert_close(rollout(layers_of(seen)), rollout(layers_of(other)))


def test_a_question_about_a_text_is_a_stream_of_its_own() -> None:
    text = place(T=4)
    question = replace(place(T=1, S=4), name="pool", queries=1, keys=0)
    seen = Record((), (text, question))
    assert streams(seen) == [("pool", 1, 0), ("0.self", 0, 0)]
    shares = rollout(layers_of(seen))[1]
    assert float(shares[0].sum()) == pytest.approx(0.5, abs=1e-3)
    one_token = replace(place(T=1), name="pool", kind="cross", queries=1, keys=0)
    assert streams(Record((), (place(T=1), one_token)))[0] == ("pool", 1, 0)
    other = replace(place(T=3), name="other", queries=2, keys=2)
    assert streams(Record((), (text, other, question)))[0] == ("pool", 1, 0)


def test_a_decoder_without_a_look_at_itself_stands_alone() -> None:
    seen = Record((), (replace(place(T=3, S=5), name="cross", queries=2, keys=0),))
    assert streams(seen) == [("cross", 2, 0)]


def test_texts_of_changing_length_and_empty_choices_are_refused() -> None:
    with pytest.raises(RecordError, match="4 tokens"):
        layers_of(Record((), (replace(place(T=5), name="low"), replace(place(T=4), name="high"))))
    with pytest.raises(RecordError, match="no places"):
        layers_of(Record((), (place(),)), [])
