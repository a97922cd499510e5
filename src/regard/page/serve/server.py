"""The uvicorn server on a local socket, with limits on connections and slow clients."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.adapters import ModelAdapter
from regard.errors import RecordError, SettingError
from regard.inspection import Record
from regard.page.serve.app import LOOPBACK, make_app
from regard.page.serve.limits import Limits
from regard.page.serve.middleware import ANY_ADDRESS, too_many_connections
from regard.page.serve.queue import THREAD_PREFIX

PORT = 8421
MAX_HEAD_BYTES = 2**15  # of a request, before its body
ABORT_SECONDS = 2.0  # after which a stopping server drops clients that do not read its answers
WORK_SECONDS = 2.0  # for cancelled work to end, after the server has stopped
SHUTDOWN_SECONDS = 4  # after which it would cancel what is left


def serve(
    adapters: Sequence[ModelAdapter],
    records: Mapping[str, Record | RecordError] = {},
    limits: Limits = Limits(),
    host: str = LOOPBACK[0],
    port: int = PORT,
    ready: Callable[[str], None] = print,
) -> list[threading.Thread]:
    """Serve until SIGINT or SIGTERM: running and waiting requests are answered with status 503, then it returns.

    `port` 0: a free one. `ready` is called with the address once the server responds. Returns the threads whose work
    did not end in time though it was cancelled, because it is in one long operation; Python waits for them at its end.
    """
    app = make_app(adapters, records, limits, allowed_hosts(host))
    with open_listener(host, port) as listener:
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"
        Server(app, limits, partial(ready, address)).run(sockets=[listener])
    deadline = time.monotonic() + WORK_SECONDS
    working = [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_PREFIX)]
    for thread in working:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [thread for thread in working if thread.is_alive()]


class Server(uvicorn.Server):
    """uvicorn's server with bounded connections; calls `ready` once it has started, and answers all requests before it
    stops."""

    def __init__(self, app: FastAPI, limits: Limits, ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            http=partial(BoundedConnection, limits),  # type: ignore[arg-type]  # a factory instead of a class
            ws="none",
            lifespan="on",
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        super().__init__(config)
        self.service, self.ready = app.state.service, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await asyncio.to_thread(self.ready)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.stop()
        timer = asyncio.get_running_loop().call_later(ABORT_SECONDS, self._drop_connections)
        await super().shutdown(sockets)
        timer.cancel()

    def _drop_connections(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, which raises the signals again at the end: a server that was asked to stop has done well."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()


class BoundedConnection(H11Protocol):
    """uvicorn's HTTP protocol with three limits that its settings lack; tests/page/serve/test_server.py tests each:

    - connections: limit_concurrency responds in plain text, and never closes idle ones
      (test_too_many_connections_are_refused_and_later_ones_served);
    - time for the head of a request: timeout_keep_alive starts after a response only, and ends with the first byte
      (test_a_missing_head_times_out, test_the_head_of_a_second_request_times_out);
    - time without reading: uvicorn has none (test_an_unread_response_is_aborted).
    """

    def __init__(self, limits: Limits, *rest: Any, **named: Any) -> None:
        super().__init__(*rest, **named)
        self.limits = limits
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > 2 * self.limits.connections:
            transport.abort()
            return
        if len(self.connections) > self.limits.connections:
            self.app = too_many_connections
        transport.set_write_buffer_limits(high=0)  # any unread byte starts the timer
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop("head")
        self._stop("stall")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._timers["stall"] = self.loop.call_later(self.limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("stall")

    def _watch_head(self) -> None:
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._stop("head")
        elif "head" not in self._timers:
            self._timers["head"] = self.loop.call_later(self.limits.head_seconds, self._too_slow)

    def _stop(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _too_slow(self) -> None:
        if self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE:
            response = h11.Response(status_code=408, headers=[("content-length", "0"), ("connection", "close")])
            self.transport.write(self.conn.send(response) + self.conn.send(h11.EndOfMessage()))
        self.transport.close()


def allowed_hosts(host: str) -> tuple[str, ...]:
    """The Host names of requests that reach a server on `host`: a loopback address has the name localhost too."""
    if host in ANY_ADDRESS:
        return *LOOPBACK, "::1", host
    if host in LOOPBACK:
        return LOOPBACK
    return (host, "localhost") if is_loopback(host) else (host,)


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket on host and port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        advice = "Another program may use the port; --port 0 chooses a free one."
        problem = f"Cannot listen on {host}:{port} ({error.strerror})"
        raise SettingError(problem, where="regard serve", advice=advice) from None
    # inherited by connections; otherwise the body of a response waits 40 ms for the client to acknowledge its head
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
