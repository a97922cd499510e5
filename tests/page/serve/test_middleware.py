"""The middleware: requests that it refuses, and the headers of every response."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from page.serve.fakes import HOST, Fake, client_of, error_of
from regard.page.serve import Limits, make_app
from regard.page.serve.app import STATIC
from regard.page.serve.serve_errors import ServeError, error_body
from regard.page.serve.server import allowed_hosts

LOOK = {"run": "fake", "text": "a b"}
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def client() -> Iterator[object]:
    with client_of(Fake(), limits=Limits(body_bytes=2000), hosts=(HOST, "127.0.0.1")) as client:
        yield client


@pytest.mark.parametrize("host", [HOST, "LOCALHOST:8421", "127.0.0.1", "127.0.0.1:8421", "localhost."])
def test_the_names_of_this_machine_are_served(client, host: str) -> None:
    assert client.get("/api/runs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8421",
        "localhost.evil.example",
        "[::1]",
        "",
        "192.0.2.7",
        "[127.0.0.1]",
        "[127.0.0.1]evil.com",
        "[localhost]",
        "localhost:80/evil",
        "localhost:",
        "localhost:8x",
        "localhost:-1",
        "localhost:65536",
        "localhost:80:80",
        "localhost/evil",
        "evil@localhost",
        "localhost@evil",
        "localhost evil",
        "localhost,evil",
        "127.1",
        "127.0.0.1.evil",
        "::1",
    ],
)
def test_another_host_is_refused(client, host: str) -> None:
    for path in ("/", "/api/runs", "/static/main.js"):
        response = client.get(path, headers={"Host": host})
        assert response.status_code == 400
        assert error_of(response)["where"] == "Host"


def test_with_a_wildcard_host_numeric_addresses_are_allowed_and_names_are_not() -> None:
    with client_of(Fake(), hosts=("0.0.0.0",)) as client:
        for host, status in (("192.0.2.7:80", 200), ("[2001:db8::1]:80", 200), ("evil.example", 400), (HOST, 400)):
            assert client.get("/api/runs", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://localhost:9999"},
        {"Origin": "null"},
        {"Origin": "http://[localhost"},
        {"Origin": "http://localhost.evil.example"},
    ],
)
def test_other_sites_cannot_request_a_look(headers: dict[str, str]) -> None:
    fake = Fake()
    with client_of(fake) as client:
        response = client.post("/api/look", json=LOOK, headers=headers)
        assert response.status_code == 403
        assert error_of(response)["where"] in headers
    assert fake.heard == []


def test_the_page_itself_and_links_from_other_sites_are_allowed(client) -> None:
    own = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/look", json=LOOK, headers=own).status_code == 200
    away = {"Sec-Fetch-Site": "cross-site"}
    assert client.get("/api/docs.json", headers={**away, "Sec-Fetch-Mode": "navigate"}).status_code == 200
    assert client.get("/api/runs", headers={**away, "Sec-Fetch-Mode": "no-cors"}).status_code == 403


@pytest.mark.parametrize("length", [True, False])
def test_a_body_that_is_too_large_is_refused_with_and_without_its_length(length: bool) -> None:
    fake = Fake()
    with client_of(fake, limits=Limits(body_bytes=2000)) as client:
        body = json.dumps({**LOOK, "text": "x" * 3000}).encode()
        pieces = body if length else iter([body[:1500], body[1500:]])
        response = client.post("/api/look", content=pieces, headers=JSON)
        assert response.status_code == 413
        assert error_of(response)["where"] == "body"
        assert response.headers["connection"] == "close"
    assert fake.heard == []


def test_a_body_that_just_fits_is_read_in_whatever_pieces_it_comes(client) -> None:
    body = json.dumps(LOOK).encode()
    body += b" " * (2000 - len(body))
    for content in (body, iter([body[:7], b"", body[7:]])):
        assert client.post("/api/look", content=content, headers=JSON).status_code == 200
    assert client.post("/api/look", content=body + b" ", headers=JSON).status_code == 413


@pytest.mark.parametrize("host", ["[::1]", "[::1]:8421", "[0:0:0:0:0:0:0:1]:80", "localhost:80"])
def test_an_ipv6_address_is_allowed_in_brackets(host: str) -> None:
    with client_of(Fake(), hosts=allowed_hosts("::1")) as client:
        assert client.get("/api/runs", headers={"Host": host}).status_code == 200
        for other in ("::1", "[::1", "[::1]x", "[::2]", "127.0.0.1"):
            assert client.get("/api/runs", headers={"Host": other}).status_code == 400


def test_the_names_of_a_server_are_those_of_its_address() -> None:
    assert set(allowed_hosts("127.0.0.1")) == set(allowed_hosts("localhost")) == {"127.0.0.1", "localhost"}
    assert set(allowed_hosts("::1")) == {"::1", "localhost"}
    assert set(allowed_hosts("192.0.2.7")) == {"192.0.2.7"}
    assert set(allowed_hosts("box.example")) == {"box.example"}


@pytest.mark.parametrize("length", ["-1", "1e3", "½", "9" * 30])
def test_an_invalid_content_length_is_refused(length: str) -> None:
    """The application is called directly: HTTP clients do not send such headers."""
    import asyncio

    sent = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    headers = [(b"host", HOST.encode()), (b"content-length", length.encode("latin-1"))]
    scope = {"type": "http", "method": "POST", "path": "/api/look", "headers": headers, "query_string": b""}
    asyncio.run(make_app([Fake()], hosts=(HOST,))(scope, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] in (400, 413)


def test_every_response_has_the_security_headers(client) -> None:
    answers = [
        client.get("/api/runs"),
        client.get("/nowhere"),
        client.get("/api/runs", headers={"Host": "evil.example"}),
        client.post("/api/look", content=b"{", headers=JSON),
        client.delete("/api/runs"),
    ]
    assert [answer.status_code for answer in answers] == [200, 404, 400, 400, 405]
    for answer in answers:
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
        assert policy == {
            "default-src": "'none'",
            "script-src": "'self'",
            "style-src": "'self'",
            "img-src": "'self' data: blob:",
            "connect-src": "'self'",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
        }
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_no_other_origin_is_ever_allowed(client) -> None:
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    answer = client.options("/api/look", headers=asked)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_an_internal_error_reveals_nothing_about_the_machine() -> None:
    def fail(text: str) -> None:
        raise RuntimeError("secret of /home/someone/model.bin")

    with client_of(Fake(meanwhile=fail)) as client:
        response = client.post("/api/look", json=LOOK)
        assert response.status_code == 500
        error_of(response)
        assert (
            "secret" not in response.text
            and "Traceback" not in response.text
            and "/" not in error_of(response)["problem"]
        )
        assert "content-security-policy" in response.headers
        assert client.get("/api/runs").status_code == 200


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/someone/runs/bert/model.safetensors: damaged", "model.safetensors: damaged"),
        ("in '/tmp/a b/c.txt'", "in 'c.txt'"),
        (r"C:\Users\someone\run is gone", "run is gone"),
        ("~/runs/bert", "bert"),
        ("1/2 of and/or http://x", "1/2 of and/or http://x"),
    ],
)
def test_folders_are_removed_from_messages(text: str, shown: str) -> None:
    assert error_body(ServeError(text, "x")).error.problem == shown


@pytest.fixture
def shown(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A static folder beside files that must not be served."""
    folder = tmp_path / "static"
    (folder / "deeper").mkdir(parents=True)
    (folder / "index.html").write_text("secret")
    (folder / "main.js").write_text("export const one = 1;")
    (folder / "notes.txt").write_text("secret")
    (folder / "deeper" / "inner.js").write_text("secret")
    (tmp_path / "secret.js").write_text("secret")
    monkeypatch.setattr("regard.page.serve.app.STATIC", folder)


@pytest.mark.usefixtures("shown")
def test_static_files_have_their_media_types(client) -> None:
    index, script = client.get("/"), client.get("/static/main.js")
    assert (
        'id="regard-root"' in index.text
        and 'src="static/main.js"' in index.text
        and index.headers["content-type"].startswith("text/html")
    )
    assert script.status_code == 200 and script.headers["content-type"].startswith("text/javascript")


@pytest.mark.usefixtures("shown")
@pytest.mark.parametrize(
    "name",
    [
        "%2e%2e/secret.js",
        "..%2fsecret.js",
        "%2e%2e%2fsecret.js",
        "..%5csecret.js",
        "%252e%252e%252fsecret.js",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "deeper/inner.js",
        "deeper%2finner.js",
        "deeper",
        "notes.txt",
        "index.html",
        "MAIN.JS",
        "main.js%00",
        "main.js/",
        "",
    ],
)
def test_other_files_are_not_served(client, name: str) -> None:
    response = client.get(f"/static/{name}")
    assert response.status_code == 404
    assert "secret" not in response.text and "root:" not in response.text
    error_of(response)


def test_the_static_folder_is_beside_the_server() -> None:
    assert STATIC.name == "static" and STATIC.parent.name == "page"
