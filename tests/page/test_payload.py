"""What the page reads holds the numbers of the record, and no more than it needs."""

import base64
import json

import numpy as np
import pytest
import torch

from page import sample
from regard.page.payload import SIDE, payload, unpacked


@pytest.mark.parametrize("name", sorted(set(sample.ALL) - {"long"}))
def test_numbers_come_back_as_they_were(name: str) -> None:
    record = sample.ALL[name]()
    told, numbers = unpacked(payload(record))
    tensors = record.tensors()
    assert numbers.keys() <= tensors.keys()
    for key, found in numbers.items():
        expected = tensors[key].numpy()
        assert found.shape == expected.shape
        if key.endswith("value_norms"):
            np.testing.assert_allclose(found, expected, rtol=2**-12)
        else:
            assert np.array_equal(found, expected)
    assert [place["name"] for place in told["places"]] == [place.name for place in record.places]
    assert told["sides"][0]["tokens"] == list(record.sides[0].tokens)


def test_the_head_is_json_even_where_a_number_is_infinite() -> None:
    told, _ = unpacked(payload(sample.translator()))
    assert told["steps"][0][3][-1][2] is None
    json.dumps(told, allow_nan=False)


def test_what_maps_tell_is_left_out_where_they_are_kept() -> None:
    _, whole = unpacked(payload(sample.bert()))
    assert not any(name.endswith(("top_values", "entropy", "received")) for name in whole)
    _, bare = unpacked(payload(sample.statistics()))
    assert {"0.top_values", "0.top_indices", "0.entropy", "0.received", "0.thumbnail"} <= bare.keys()
    _, some = unpacked(payload(sample.gaps()))
    assert "1.top_values" in some and "0.top_values" not in some


def test_large_maps_stay_with_the_server() -> None:
    record = sample.bert()
    told, numbers = unpacked(payload(record, most=1000))
    assert told["remote"] is True
    assert {name.partition(".")[2] for name in numbers} == {"thumbnail", "thumbnail_peak", "value_norms"}
    assert unpacked(payload(record, most=10**9))[0]["remote"] is False


def test_small_thumbnails_are_means_over_tokens() -> None:
    torch.manual_seed(0)
    record = sample.long(300)  # 300 tokens in 256 rows: some rows hold two
    _, numbers = unpacked(payload(record))
    assert numbers["0.thumbnail"].shape == (2, SIDE, SIDE)
    cell = torch.arange(300) * SIDE // 300
    member = torch.nn.functional.one_hot(cell, SIDE).float()
    expected = member.T @ record.places[0].tile(1) @ member / torch.outer(member.sum(0), member.sum(0))
    steps = np.sqrt(expected.numpy() / numbers["0.thumbnail_peak"][1]) * 255
    assert np.abs(steps - numbers["0.thumbnail"][1]).max() <= 1.0


def test_a_record_of_512_tokens_makes_a_page_of_seven_megabytes() -> None:
    from regard.inspection.record.record import Record
    from regard.inspection.record.token_axis import Side
    from regard.page.render import page

    torch.manual_seed(0)
    places = tuple(sample.place(f"{n}", n, (12, 512, 512), width=32, norms=True) for n in range(6))
    record = Record((Side.bare("text", [f"word{n}" for n in range(512)]),), places)
    assert len(page(record).encode()) <= 7_000_000


def test_maps_of_other_measures_come_along() -> None:
    record = sample.measured()
    told, _ = unpacked(payload(record))
    zeroing, whole = told["measures"]
    assert {name: zeroing[name] for name in zeroing if name != "values"} == {
        "name": "value-zeroing",
        "title": "value zeroing",
        "place": "encoder.1.self",
        "rows": 0,
        "cols": 0,
        "shape": [5, 5],
    }
    assert whole["place"] is None and np.frombuffer(base64.b64decode(whole["values"]), "<f4").shape == (15,)
    assert "measures" not in unpacked(payload(sample.translator()))[0]
