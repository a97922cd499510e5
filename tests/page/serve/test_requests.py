"""Any request at all, well-formed or not, gets an answer that is no 5xx, in the shape of all errors."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from page.serve.fakes import Fake, looked, place_of, record_of
from regard.page.serve import Limits, make_app

LENGTH = 9
LIMITS = Limits(body_seconds=1.0, characters=200, cells=16)
APP = make_app([Fake()], {"kept": record_of(place_of(LENGTH))}, LIMITS, ("localhost",), looked)
SECONDS = 10  # an answer takes milliseconds
RUNNER = asyncio.Runner()  # the queues of a server belong to one loop

odd_text = st.one_of(
    st.text(max_size=20), st.sampled_from(["kept", "fake", "../..", "%00", "é", "[", "http://[", "1e9", "NaN"])
)
numbers = st.one_of(
    st.integers(-2, LENGTH + 1).map(str), st.sampled_from(["0", "1", "99999999999999999999", "1.5", "x", ""])
)
QUERY = ["place", "head", "query", "key", "top", "bottom", "left", "right", "rows", "cols", "other"]
spots = st.fixed_dictionaries({"place": st.just("0"), "head": st.sampled_from("0123")}).flatmap(
    lambda spot: st.sampled_from(
        [
            {**spot, "query": "8", "key": "3"},
            {**spot, "query": "9"},
            {**spot, "query": "0"},
            {**spot, "top": "0", "bottom": "9", "left": "1", "right": "9", "rows": "3", "cols": "8"},
        ]
    ).map(urlencode)
)
queries = st.dictionaries(st.sampled_from(QUERY), numbers, max_size=11).map(urlencode)
parts = st.sampled_from(["", "/tile", "/row", "/pair", "/file", "/payload", "/intervene", "/"])
records = st.builds("/api/records/{}{}".format, st.one_of(st.just("kept"), odd_text), parts)
pages = st.sampled_from(["/", "/api/runs", "/api/records", "/api/look", "/api/docs.json", "/static/main.js", "//", "*"])
paths = st.one_of(records, pages, odd_text.map("/static/{}".format), odd_text.map("/{}".format))
methods = st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "ODD"])
right = st.one_of(
    st.tuples(st.just("POST"), st.sampled_from(["/api/look", "/api/records/kept/intervene"])),
    st.tuples(st.just("GET"), st.one_of(records, pages)),
    st.tuples(st.just("GET"), parts.map("/api/records/kept{}".format)),
)
routes = st.one_of(right, right, right, st.tuples(methods, paths))
values = st.one_of(
    st.sampled_from([b"localhost", b"localhost:80", b"evil", b"application/json", b"chunked", b"gzip", b"5", b"-1"]),
    st.binary(max_size=20),
)
NAMES = [b"host", b"origin", b"content-type", b"content-length", b"transfer-encoding", b"sec-fetch-site", b"range"]
odd_headers = st.lists(
    st.tuples(st.sampled_from([*NAMES, b"accept-encoding", b"if-none-match", b"x-forwarded-host"]), values), max_size=4
)
headers = st.one_of(st.just([]), st.just([]), odd_headers)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), odd_text),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(odd_text, inner, max_size=3)),
    max_leaves=8,
)
looks = st.fixed_dictionaries(
    {"run": st.one_of(st.just("fake"), json_values), "text": st.one_of(odd_text, json_values)},
    optional={"other": json_values, "prefix": json_values},
)
changes = st.fixed_dictionaries(
    {"place": st.integers(-1, 2), "head": st.one_of(st.none(), st.integers(-1, 3)), "weights": json_values},
    optional={"query": st.one_of(st.none(), st.integers(-1, LENGTH))},
)
interventions = st.fixed_dictionaries({"changes": st.lists(changes, max_size=3)})
bodies = st.one_of(st.binary(max_size=50), st.one_of(json_values, looks, interventions).map(lambda x: encode(x)))


def encode(value: Any) -> bytes:
    return json.dumps(value).encode()


async def answer(method: str, path: str, query: str, given: list[tuple[bytes, bytes]], body: bytes) -> tuple[int, Any]:
    """The status and the body of the answer, by ASGI, since no client sends such requests."""
    sent: list[dict[str, Any]] = []
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop()
        await asyncio.sleep(SECONDS)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    names = {name for name, _ in given}
    usual = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope: dict[str, Any] = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"}
    scope |= {"method": method, "path": path, "raw_path": b"", "root_path": "", "query_string": query.encode()}
    scope |= {"headers": [*(one for one in usual if one[0] not in names), *given], "client": None, "server": None}
    await asyncio.wait_for(APP(scope, receive, send), SECONDS)  # type: ignore[arg-type]
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent[1:])


def check(method: str, path: str, query: str, given: list[tuple[bytes, bytes]], body: bytes) -> None:
    status, content = RUNNER.run(answer(method, path, query, given, body))
    assert status < 500, (status, content)
    if status >= 400 and method != "HEAD":
        assert set(json.loads(content)["error"]) == {"message", "problem", "expected", "where", "advice"}


asked = given(routes, st.one_of(queries, spots), headers, bodies)
quiet = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=1500, **quiet)
@asked
def test_no_request_is_an_internal_error(route, query, given, body) -> None:
    check(*route, query, given, body)


@pytest.mark.long
@pytest.mark.timeout(3600)
@settings(max_examples=20_000, **quiet)
@asked
def test_none_of_many_requests_is_an_internal_error(route, query, given, body) -> None:
    check(*route, query, given, body)


@settings(max_examples=100, **quiet)
@given(st.one_of(looks, json_values))
def test_no_look_is_an_internal_error(body) -> None:
    check("POST", "/api/look", "", [], encode(body))


def test_the_strategies_find_records_and_make_looks() -> None:
    """Else the tests above would only see refusals."""
    ends = "top=0&bottom=9&left=0&right=9&rows=3&cols=3"
    assert RUNNER.run(answer("GET", "/api/records/kept/tile", f"place=0&head=1&{ends}", [], b""))[0] == 200
    assert RUNNER.run(answer("POST", "/api/look", "", [], encode({"run": "fake", "text": "a"})))[0] == 200
