"""The server over real sockets: slow clients, too many clients, malformed requests, and shutdown."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from page.serve.fakes import Fake, Gate, looked, place_of, record_of
from regard.errors import SettingError
from regard.page.serve import Limits, make_app
from regard.page.serve.server import Server, is_loopback, open_listener

HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"
RECORD = record_of(place_of(30))


@contextmanager
def running(*subjects: Fake, limits: Limits = Limits(), records: dict | None = None) -> Iterator[int]:
    """The port of a server that runs in a thread of this process."""
    listener, ready = open_listener("127.0.0.1", 0), threading.Event()
    port = listener.getsockname()[1]
    server = Server(make_app(subjects, records or {}, limits, ("localhost",), looked), limits, ready.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert ready.wait(60)
        yield port
    finally:
        server.should_exit = True
        thread.join(60)
        listener.close()
    assert not thread.is_alive()


def opened(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def answer(connection: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionResetError:  # as abrupt an end as any
        return found
    return found


def asked(port: int, request: bytes) -> bytes:
    with opened(port) as connection:
        connection.sendall(request)
        return answer(connection)


def get(path: str, *, end: bool = True) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{'Connection: close' if end else 'X: x'}\r\n\r\n".encode()


def test_a_missing_body_times_out() -> None:
    with running(Fake(), limits=Limits(body_seconds=0.2)) as port, opened(port) as connection:
        connection.sendall(b"POST /api/look HTTP/1.1\r\n" + HEAD + b"Content-Length: 50\r\n\r\n{")
        said = answer(connection)
        assert said.startswith(b"HTTP/1.1 408 ")
        assert b'"where":"body"' in said and b"content-security-policy" in said.lower()


def test_a_slow_body_times_out() -> None:
    with running(Fake(), limits=Limits(body_seconds=0.3)) as port, opened(port) as connection:
        connection.sendall(b"POST /api/look HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        connection.settimeout(0.02)
        said = b""
        for _ in range(3000):
            try:
                connection.sendall(b"1\r\n \r\n")
                said += connection.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                break
            if b"\r\n\r\n" in said:
                break
        assert said.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("begun", [b"", b"GET /api/runs HTTP/1.1\r\nHo"])
def test_a_missing_head_times_out(begun: bytes) -> None:
    with running(Fake(), limits=Limits(head_seconds=0.2)) as port, opened(port) as connection:
        connection.sendall(begun)
        assert answer(connection).startswith(b"HTTP/1.1 408 ")


def test_the_head_of_a_second_request_times_out() -> None:
    with running(Fake(), limits=Limits(head_seconds=1.0)) as port, opened(port) as connection:
        connection.sendall(get("/api/runs", end=False))
        first = connection.recv(65536)
        assert first.startswith(b"HTTP/1.1 200 ")
        connection.sendall(b"GET /api")
        assert b"HTTP/1.1 408 " in answer(connection)


def test_a_slow_response_does_not_count_as_a_slow_client() -> None:
    gate = Gate()
    with running(Fake(meanwhile=gate), limits=Limits(head_seconds=0.5, body_seconds=0.5)) as port:
        body = json.dumps({"run": "fake", "text": "slow"}).encode()
        with opened(port) as connection:
            length = f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
            connection.sendall(b"POST /api/look HTTP/1.1\r\n" + HEAD + length + body)
            assert gate.entered.wait(60)
            gate.left.wait(1.0)
            gate.opened.set()
            assert answer(connection).startswith(b"HTTP/1.1 200 ")


def test_a_disconnect_cancels_the_look() -> None:
    gate = Gate()
    with running(Fake(meanwhile=gate)) as port:
        body = json.dumps({"run": "fake", "text": "slow"}).encode()
        with opened(port) as connection:
            length = f"Content-Length: {len(body)}\r\n\r\n".encode()
            connection.sendall(b"POST /api/look HTTP/1.1\r\n" + HEAD + length + body)
            assert gate.entered.wait(60)
        assert gate.left.wait(60), "nobody has opened the gate"


def test_an_unread_response_is_aborted() -> None:
    long = record_of(place_of(30), text="x" * 12_000_000)
    limits = Limits(stall_seconds=1.0, downloads=1)
    with running(Fake(), records={"long": long}, limits=limits) as port, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(60)
        connection.connect(("127.0.0.1", port))
        connection.sendall(get("/api/records/long"))
        # the one turn there is comes back, though the first visitor is still connected and reads nothing
        whole = asked(port, get("/api/records/long"))
        assert whole.startswith(b"HTTP/1.1 200 ") and whole.endswith(b"]}")
        assert len(answer(connection)) < len(whole)


@pytest.mark.parametrize(
    "length", [b"Content-Length: 3000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n2dc6c0\r\n"]
)
def test_a_large_body_is_refused_and_the_client_reads_the_error(length: bytes) -> None:
    with running(Fake()) as port:
        said = asked(port, b"POST /api/look HTTP/1.1\r\n" + HEAD + length + b" " * 3_000_000 + b"\r\n0\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 413 ")
        assert b'"where":"body"' in said


def test_too_many_connections_are_refused_and_later_ones_served() -> None:
    with running(Fake(), limits=Limits(connections=3, head_seconds=60)) as port:
        idle = [opened(port) for _ in range(3)]
        said = asked(port, get("/api/runs"))
        assert said.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after" in said.lower() and b'"error"' in said
        for connection in idle:
            connection.close()
        for _ in range(1000):
            if (said := asked(port, get("/api/runs"))).startswith(b"HTTP/1.1 200 "):
                break
        assert said.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "path",
    [
        "/static/../serve/limits.py",
        "/static/../../errors.py",
        "/static/..%2f..%2ferrors.py",
        "/static/%2e%2e/%2e%2e/errors.py",
        "/static/..\\..\\errors.py",
        "/../../../../../../../../etc/passwd",
        "//etc/passwd",
        "/static//etc/passwd",
        "/static/....//errors.py",
        "/static/index.html%00.js",
    ],
)
def test_path_traversal_is_refused(path: str) -> None:
    with running(Fake()) as port:
        said = asked(port, get(path))
        assert said.startswith(b"HTTP/1.1 404 ")
        assert b"class " not in said and b"root:" not in said


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\nA: " + b"x" * 2**20,
    ],
)
def test_malformed_requests_are_refused(request_: bytes) -> None:
    with running(Fake()) as port:
        assert asked(port, request_)[:13] in (b"HTTP/1.1 400 ", b"")
        assert asked(port, get("/api/runs")).startswith(b"HTTP/1.1 200 ")


def test_a_request_with_two_lengths_is_refused() -> None:
    """Programs in between may believe the other one, and take a part of the body for a request."""
    with running(Fake()) as port:
        head = b"POST /api/look HTTP/1.1\r\n" + HEAD + b"Connection: close\r\n"
        said = asked(port, head + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        assert said.startswith(b"HTTP/1.1 400 ") and b"not both" in said
        assert asked(port, head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_a_used_port_is_refused() -> None:
    with open_listener("127.0.0.1", 0) as listener, pytest.raises(SettingError, match="--port 0"):
        open_listener("127.0.0.1", listener.getsockname()[1])


def test_loopback_addresses() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "192.0.2.1", "example.org")] == [
        *[True] * 3,
        *[False] * 3,
    ]


def test_the_command_prints_its_address_and_ends_when_interrupted(tmp_path) -> None:
    RECORD.save(tmp_path / "a b.regard")
    command = "from regard.cli.serve import serve; import signal, sys; from pathlib import Path; "
    command += "signal.signal(signal.SIGINT, signal.default_int_handler); "  # which a job in the background lacks
    command += "serve(None, [Path(sys.argv[1])], 0, '127.0.0.1', 0, False, True)"
    process = subprocess.Popen(
        [sys.executable, "-c", command, str(tmp_path / "a b.regard")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert (said["runs"], said["records"]) == ([], ["a-b"])
        port = int(said["address"].rsplit(":", 1)[1].strip("/"))
        assert b'"a-b"' in asked(port, get("/api/records"))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, b"")
    finally:
        process.kill()


STOPPED = """
import sys
from page.serve.fakes import Fake, Gate, looked, place_of, record_of
from regard.page.serve import Limits, make_app
from regard.page.serve.server import Server, open_listener

records = {"long": record_of(place_of(30), text="x" * 12_000_000)}
listener = open_listener("127.0.0.1", 0)
app = make_app([Fake(meanwhile=Gate())], records, hosts=("localhost",), collect=looked)
Server(app, Limits(), lambda: print(listener.getsockname()[1], flush=True)).run(sockets=[listener])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_answers_all_requests_and_exits_with_0(number: signal.Signals) -> None:
    """Six looks, one of which runs; a client that sends no body; one that reads nothing; and an idle one."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        body = json.dumps({"run": "fake", "text": "slow"}).encode()
        post = b"POST /api/look HTTP/1.1\r\n" + HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode()
        looks = [opened(port) for _ in range(6)]
        for one in looks:
            one.sendall(post + body)
        others = [opened(port) for _ in range(3)]
        others[0].sendall(post + b"{")
        others[1].sendall(get("/api/records/long"))
        assert asked(port, get("/api/runs")).startswith(b"HTTP/1.1 200 ")
        time.sleep(0.5)  # so that the looks are in their queue
        begun = time.monotonic()
        process.send_signal(number)
        for one in looks:
            said = answer(one)
            assert said.startswith(b"HTTP/1.1 503 ") and b"The server is stopping" in said, said
        assert time.monotonic() - begun < 5
        _, errors = process.communicate(timeout=30)
        assert (process.returncode, errors) == (0, b"")
        assert time.monotonic() - begun < 15
        for one in (*looks, *others):
            one.close()
    finally:
        process.kill()


STUCK = """
import time
from functools import partial
from pathlib import Path
import regard.adapters, regard.page.serve.server as server
from page.serve.fakes import Fake, looked
from regard.cli.serve import serve
from regard.page.serve import make_app

regard.adapters.adapter = lambda path, **how: Fake(meanwhile=lambda text: time.sleep(120))
server.make_app = partial(make_app, collect=looked)
serve([Path("fake")], None, 0, "127.0.0.1", 0, False, True)
"""


def test_a_computation_that_ignores_cancellation_does_not_hold_the_process() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["address"].rsplit(":", 1)[1].strip("/"))
        body = json.dumps({"run": "fake", "text": "x"}).encode()
        with opened(port) as connection:
            length = f"Content-Length: {len(body)}\r\n\r\n".encode()
            connection.sendall(b"POST /api/look HTTP/1.1\r\n" + HEAD + length + body)
            time.sleep(0.5)
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert answer(connection).startswith(b"HTTP/1.1 503 ")
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, errors) == (0, b"")
        assert time.monotonic() - begun < 15
    finally:
        process.kill()
