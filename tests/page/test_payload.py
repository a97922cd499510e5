"""The payload holds the tensors that the page needs, and no others."""

import base64
import json

import numpy as np
import pytest
import torch

from page import sample
from regard.page.payload import THUMBNAIL_SIDE, pack_payload, unpack_payload


@pytest.mark.parametrize("name", sorted(set(sample.ALL) - {"long"}))
def test_numbers_come_back_as_they_were(name: str) -> None:
    record = sample.ALL[name]()
    told, numbers = unpack_payload(pack_payload(record))
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
    assert told["axes"][0]["tokens"] == list(record.axes[0].tokens)


def test_the_head_is_json_even_where_a_number_is_infinite() -> None:
    told, _ = unpack_payload(pack_payload(sample.translator()))
    assert told["steps"][0][3][-1][2] is None
    json.dumps(told, allow_nan=False)


def test_recomputable_tensors_are_left_out_where_maps_are_stored() -> None:
    _, whole = unpack_payload(pack_payload(sample.bert()))
    assert not any(name.endswith(("top_values", "entropy", "received")) for name in whole)
    _, bare = unpack_payload(pack_payload(sample.statistics()))
    assert {"0.top_values", "0.top_indices", "0.entropy", "0.received", "0.thumbnail"} <= bare.keys()
    _, some = unpack_payload(pack_payload(sample.gaps()))
    assert "1.top_values" in some and "0.top_values" not in some


def test_large_maps_stay_with_the_server() -> None:
    record = sample.bert()
    told, numbers = unpack_payload(pack_payload(record, max_map_bytes=1000))
    assert told["remote"] is True
    assert {name.partition(".")[2] for name in numbers} == {"thumbnail", "thumbnail_peak", "value_norms"}
    assert unpack_payload(pack_payload(record, max_map_bytes=10**9))[0]["remote"] is False


def test_small_thumbnails_are_means_over_tokens() -> None:
    torch.manual_seed(0)
    record = sample.long(300)  # 300 tokens in 256 rows: some rows hold two
    _, numbers = unpack_payload(pack_payload(record))
    assert numbers["0.thumbnail"].shape == (2, THUMBNAIL_SIDE, THUMBNAIL_SIDE)
    cell = torch.arange(300) * THUMBNAIL_SIDE // 300
    member = torch.nn.functional.one_hot(cell, THUMBNAIL_SIDE).float()
    expected = member.T @ record.places[0].tile(1) @ member / torch.outer(member.sum(0), member.sum(0))
    steps = np.sqrt(expected.numpy() / numbers["0.thumbnail_peak"][1]) * 255
    assert np.abs(steps - numbers["0.thumbnail"][1]).max() <= 1.0


def test_a_record_of_512_tokens_makes_a_page_of_seven_megabytes() -> None:
    from regard.inspection.record.record import Record
    from regard.inspection.record.token_axis import TokenAxis
    from regard.page.render import render_record

    torch.manual_seed(0)
    places = tuple(sample.place(f"{n}", n, (12, 512, 512), width=32, norms=True) for n in range(6))
    record = Record((TokenAxis.from_tokens("text", [f"word{n}" for n in range(512)]),), places)
    assert len(render_record(record).encode()) <= 7_000_000


def test_attribution_maps_are_included() -> None:
    record = sample.measured()
    told, _ = unpack_payload(pack_payload(record))
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
    assert "measures" not in unpack_payload(pack_payload(sample.translator()))[0]
