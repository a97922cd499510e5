"""The API as the page uses it: runs, looks, records and their parts, and errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load

from page.serve.fakes import Fake, Gate, client_of, error_of, place_of, record_of
from regard.errors import SettingError
from regard.page.serve import Limits, make_app

LENGTH = 40
RECORD = record_of(place_of(LENGTH, causal=True), place_of(LENGTH, keep=False))
TILE = {"place": 0, "head": 1, "top": 3, "bottom": 40, "left": 0, "right": 39, "rows": 5, "cols": 6}
JSON = {"content-type": "application/json"}
SLOW = {"run": "fake", "text": "slow"}
QUICK = {"run": "fake", "text": "quick"}


@pytest.fixture(scope="module")
def client() -> Iterator[object]:
    with client_of(Fake(), records={"kept": RECORD}, limits=Limits(cells=32, characters=100, prefix=3)) as client:
        yield client


def test_runs_and_records_are_listed(client) -> None:
    assert client.get("/api/runs").json() == [{"name": "fake", "kind": "reads", "description": "random numbers"}]
    assert client.get("/api/records").json() == [{"id": "kept", "text": RECORD.axes[0].text[:100], "problem": ""}]


def test_a_look_makes_a_record_that_can_be_read() -> None:
    fake = Fake()
    with client_of(fake) as client:
        question = {"run": "fake", "text": "two words", "other": "und", "prefix": [3, 1]}
        name = client.post("/api/look", json=question).json()["id"]
        assert fake.heard == [("two words", "und", [3, 1])]
        found = client.get(f"/api/records/{name}").json()
        assert found["axes"][0]["tokens"] == ["two", "words"]
        assert client.get("/api/records").json() == [], "only who made it knows its id"
        client.post("/api/look", json={"run": "fake", "text": "x", "other": None, "prefix": None})
        assert fake.heard[-1] == ("x", None, None)


def test_a_record_is_strict_json(client) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    found = json.loads(client.get("/api/records/kept").content, parse_constant=refuse)
    assert found["places"][0]["T"] == LENGTH
    assert found["steps"] == [[0, 7, -0.5, [[7, "w0", -0.5], [8, "w1", None]]]]


def test_the_file_is_the_record(client) -> None:
    content = client.get("/api/records/kept/file").content
    assert set(load(content)) == set(RECORD.tensors())
    torch.testing.assert_close(load(content)["0.lse"], RECORD.tensors()["0.lse"])


def test_the_payload_is_made_once_and_without_maps_where_they_are_large() -> None:
    from regard.page.payload import unpack_payload

    for most, remote in ((2**25, False), (16, True)):
        with client_of(records={"kept": RECORD}, limits=Limits(payload_bytes=most)) as client:
            first, again = (client.get("/api/records/kept/payload").content for _ in range(2))
            head, numbers = unpack_payload(first)
            assert first == again
            assert head["remote"] is remote
            assert ("0.queries" in numbers) is not remote


def test_a_tile_holds_the_weights_of_the_place(client) -> None:
    response = client.get("/api/records/kept/tile", params=TILE)
    assert response.headers["x-exact"] == "1"
    got = np.frombuffer(response.content, "<f4").reshape(5, 6)
    weights = RECORD.places[0].tile(1)[3:40, :39]
    rows, cols = torch.arange(37) * 5 // 37, torch.arange(39) * 6 // 39
    for r in range(5):
        for c in range(6):
            assert got[r, c] == pytest.approx(float(weights[rows == r][:, cols == c].mean()), abs=1e-5)
    assert client.get("/api/records/kept/tile", params=TILE).content == response.content, "from the cache too"


def test_an_estimate_says_so() -> None:
    with client_of(records={"kept": RECORD}, limits=Limits(exact=100)) as client:
        for _ in range(2):
            response = client.get("/api/records/kept/tile", params=TILE)
            assert response.headers["x-exact"] == "0"
            assert len(response.content) == 4 * 5 * 6


def test_rows_and_pairs(client) -> None:
    row = client.get("/api/records/kept/row", params={"place": 0, "head": 1, "query": 9})
    assert np.frombuffer(row.content, "<f4") == pytest.approx(RECORD.places[0].tile(1)[9].numpy(), abs=1e-6)
    pair = client.get("/api/records/kept/pair", params={"place": 0, "head": 1, "query": 9, "key": 4}).json()
    assert pair["weight"] == pytest.approx(float(RECORD.places[0].tile(1)[9, 4]), abs=1e-6)


@pytest.mark.parametrize(
    ("path", "changed", "status", "where"),
    [
        ("tile", {"rows": 33}, 422, "rows"),
        ("tile", {"rows": 0}, 422, "rows"),
        ("tile", {"cols": 10**12}, 422, "cols"),
        ("tile", {"bottom": 41}, 422, "top and bottom"),
        ("tile", {"left": -1}, 422, "left"),
        ("tile", {"top": "x"}, 422, "top"),
        ("tile", {"top": None}, 422, "top"),
        ("tile", {"zoom": 1}, 422, "zoom"),
        ("tile", {"place": 2}, 404, "place"),
        ("tile", {"head": 2}, 404, "head"),
        ("tile", {"place": 1}, 422, "encoder.0.self"),  # it has statistics only
        ("row", {"query": 40}, 422, "query"),
        ("pair", {"key": 40}, 422, "key"),
    ],
)
def test_invalid_parts_of_a_record_are_refused(client, path, changed, status, where) -> None:
    spots = {"tile": TILE, "row": {"place": 0, "head": 0, "query": 0}}
    asked = {**spots.get(path, {"place": 0, "head": 0, "query": 0, "key": 0}), **changed}
    response = client.get(f"/api/records/kept/{path}", params={k: v for k, v in asked.items() if v is not None})
    assert response.status_code == status
    assert error_of(response)["where"] == where


@pytest.mark.parametrize("part", ["", "/payload", "/file", "/row?place=0&head=0&query=0"])
def test_unknown_records_are_refused(client, part: str) -> None:
    response = client.get(f"/api/records/nobody{part}")
    assert response.status_code == 404
    assert error_of(response)["where"] == "id"


@pytest.mark.parametrize(
    ("body", "status", "where"),
    [
        (b"{", 400, "body"),
        (b"\xff\xfe", 400, "body"),
        (b"[" * 50_000, 400, "body"),
        (b'{"run": "fake", "text": "x", "prefix": [' + b"1" * 5000 + b"]}", 400, "body"),
        (b"[]", 422, "body"),
        (b"null", 422, "body"),
        (b"", 422, "body"),
        (b'{"run": "fake"}', 422, "text"),
        (b'{"run": "fake", "text": 3}', 422, "text"),
        (b'{"run": "fake", "text": "x", "texts": "y"}', 422, "texts"),
        (b'{"run": "fake", "text": "x", "prefix": [1.5]}', 422, "prefix.0"),
        (b'{"run": "fake", "text": "x", "prefix": [true]}', 422, "prefix.0"),
        (b'{"run": "fake", "text": "x", "prefix": [-1]}', 422, "prefix.0"),
        (b'{"run": "fake", "text": "x", "prefix": [1, 2, 3, 4]}', 422, "prefix"),
        (b'{"run": "fake", "text": "\\ud800"}', 422, "text"),
        (b'{"run": "fake", "text": "x", "\\ud800": 1}', 422, "body"),
        (b'{"run": "nobody", "text": "x"}', 404, "run"),
        (json.dumps({"run": "fake", "text": "x" * 101}).encode(), 422, "text"),
        (json.dumps({"run": "fake", "text": "x", "other": "y" * 101}).encode(), 422, "other"),
    ],
)
def test_invalid_look_requests_are_refused(client, body: bytes, status: int, where: str) -> None:
    response = client.post("/api/look", content=body, headers=JSON)
    assert response.status_code == status
    assert error_of(response)["where"] == where


def test_json_with_another_content_type_is_refused(client) -> None:
    response = client.post("/api/look", content=json.dumps(QUICK), headers={"content-type": "text/plain"})
    assert response.status_code == 422
    assert "application/json" in error_of(response)["advice"]


def test_hostile_text_is_only_text(client) -> None:
    text = "<script>alert(1)</script> \u202e \x00 \U0001f408 " + "x" * 60
    name = client.post("/api/look", json={"run": "fake", "text": text}).json()["id"]
    assert client.get(f"/api/records/{name}").json()["axes"][0]["tokens"] == text.split()


def test_errors_of_a_model_are_reported_without_folders() -> None:
    def refuse(text: str) -> None:
        raise SettingError("no [MASK]", "a text with one", where="/home/someone/runs/bert", advice="See /home/x/y.")

    with client_of(Fake(meanwhile=refuse)) as client:
        response = client.post("/api/look", json=QUICK)
        assert response.status_code == 422
        assert error_of(response) == {
            "message": "fake: got no [MASK], expected a text with one. See y.",
            "problem": "no [MASK]",
            "expected": "a text with one",
            "where": "fake",
            "advice": "See y.",
        }


def test_a_slow_look_times_out_and_later_ones_are_served() -> None:
    gate = Gate()
    with client_of(Fake(meanwhile=gate), limits=Limits(look_seconds=1.0)) as client:
        response = client.post("/api/look", json=SLOW)
        assert response.status_code == 504
        error_of(response)
        assert gate.left.wait(60), "the next module that was called has stopped it, though nobody opened the gate"
        assert client.post("/api/look", json=QUICK).status_code == 200


def test_a_look_that_ignores_cancellation_holds_its_slot_until_it_stops() -> None:
    import threading

    go, began = threading.Event(), threading.Event()

    def deaf(text: str) -> None:
        if text == "slow":
            began.set()
            go.wait(60)

    limits = Limits(look_seconds=1.0, waiting_looks=0)
    with client_of(Fake(meanwhile=deaf), limits=limits) as client:
        assert client.post("/api/look", json=SLOW).status_code == 504
        assert client.post("/api/look", json=QUICK).status_code == 429
        go.set()
        for _ in range(1000):
            if (status := client.post("/api/look", json=QUICK).status_code) == 200:
                break
            began.wait(0.005)
        assert status == 200
        service = client.app.state.service
        assert len(service.records.made) == 1, "what came too late is not kept"


def test_a_full_queue_refuses_looks_while_small_requests_are_served() -> None:
    gate = Gate()
    limits = Limits(waiting_looks=2)
    with (
        client_of(Fake(meanwhile=gate), records={"kept": RECORD}, limits=limits) as client,
        ThreadPoolExecutor(8) as pool,
    ):
        slow = pool.submit(client.post, "/api/look", json=SLOW)
        assert gate.entered.wait(60)
        others = [pool.submit(client.post, "/api/look", json=QUICK) for _ in range(6)]
        assert client.get("/api/records/kept/tile", params=TILE).status_code == 200
        while sum(other.done() for other in others) < 4:
            gate.entered.wait(60)
        gate.opened.set()
        answers = [other.result() for other in others]
        assert slow.result().status_code == 200
        assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429, 429, 429]
        for answer in answers:
            if answer.status_code == 429:
                assert int(answer.headers["retry-after"]) > 0
                error_of(answer)


def test_the_number_of_stored_records_is_bounded() -> None:
    with client_of(Fake(), limits=Limits(records=3)) as client:
        names = [client.post("/api/look", json=QUICK).json()["id"] for _ in range(20)]
        assert [client.get(f"/api/records/{name}").status_code for name in names] == [404] * 17 + [200] * 3
        assert len(client.app.state.service.records.made) == 3


def test_the_cache_is_bounded() -> None:
    with client_of(records={"kept": RECORD}, limits=Limits(cached_bytes=2000)) as client:
        for left in range(30):
            client.get("/api/records/kept/tile", params={**TILE, "left": left})
        assert client.app.state.service.cache.bytes <= 2000


def test_equal_names_and_invalid_limits_are_refused() -> None:
    with pytest.raises(SettingError, match="Two models have the same name: fake, fake"):
        make_app([Fake(), Fake()])
    with pytest.raises(SettingError, match="looks=0"):
        Limits(looks=0)
    with pytest.raises(SettingError, match="waiting_looks=-1"):
        Limits(waiting_looks=-1)


def test_text_that_is_not_unicode_is_refused_in_words() -> None:
    """Names of folders and of classes can hold halves of characters, which no JSON in UTF-8 can."""
    with pytest.raises(SettingError, match=r"not Unicode text.*Rename"):
        make_app([Fake(name="\udcff")])
    odd = replace(RECORD, facts={"model": "\ud800"})
    with client_of(records={"odd": odd}) as client:
        assert client.get("/api/records/odd").json()["facts"]["model"] == "\ud800"
        assert client.get("/api/records/odd/payload").status_code == 200
        assert "not Unicode" in error_of(client.get("/api/records/odd/file"))["problem"]
