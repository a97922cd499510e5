"""Running the server: a socket on this machine, and uvicorn behind it."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.adapters import ModelAdapter
from regard.errors import SettingError
from regard.inspection import Record
from regard.page.serve.app import LOOPBACK, make_app
from regard.page.serve.limits import Limits
from regard.page.serve.middleware import too_many_connections

PORT = 8421
LARGEST_HEAD = 2**15  # bytes of a request before its body
GRACE = 3  # seconds for running work when the server is told to end


def serve(
    subjects: Sequence[ModelAdapter],
    records: Mapping[str, Record] = {},
    limits: Limits = Limits(),
    host: str = LOOPBACK[0],
    port: int = PORT,
    ready: Callable[[str], None] = print,
) -> None:
    """Serve until interrupted. `port` 0: one that is free. `ready` is called with the address once it answers."""
    app = make_app(subjects, records, limits, hosts=(*LOOPBACK, host))
    with listening(host, port) as listener:
        address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}/"
        Server(app, limits, partial(ready, address)).run(sockets=[listener])


class Server(uvicorn.Server):
    """uvicorn's, with our connections; says when it is ready."""

    def __init__(self, app: FastAPI, limits: Limits, ready: Callable[[], None]) -> None:
        config = uvicorn.Config(
            app,
            http=partial(Connection, limits),  # type: ignore[arg-type]  # a class in all but name
            ws="none",
            lifespan="on",
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            h11_max_incomplete_event_size=LARGEST_HEAD,
            timeout_graceful_shutdown=GRACE,
        )
        super().__init__(config)
        self.ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        await asyncio.to_thread(self.ready)


class Connection(H11Protocol):
    """uvicorn's protocol with three bounds that its settings do not have; tests/page/serve/test_server.py proves each:

    - connections: limit_concurrency answers in plain text, and never closes idle ones
      (test_more_connections_than_there_may_be_are_told_so_and_later_ones_served);
    - time for the head of a request: timeout_keep_alive starts after an answer only, and ends with the first byte
      (test_a_head_that_does_not_come_is_not_waited_for, test_the_head_of_a_second_request_has_its_time_too);
    - time without reading: there is none (test_an_answer_that_is_not_read_is_given_up).
    """

    def __init__(self, limits: Limits, *rest: Any, **named: Any) -> None:
        super().__init__(*rest, **named)
        self.limits = limits
        self._clocks: dict[str, asyncio.TimerHandle] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > 2 * self.limits.connections:
            transport.abort()
            return
        if len(self.connections) > self.limits.connections:
            self.app = too_many_connections
        transport.set_write_buffer_limits(high=0)  # so that whatever is not read at once starts the clock
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
        self._clocks["stall"] = self.loop.call_later(self.limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop("stall")

    def _watch_head(self) -> None:
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._stop("head")
        elif "head" not in self._clocks:
            self._clocks["head"] = self.loop.call_later(self.limits.head_seconds, self._too_slow)

    def _stop(self, name: str) -> None:
        clock = self._clocks.pop(name, None)
        if clock is not None:
            clock.cancel()

    def _too_slow(self) -> None:
        if self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE:
            answer = h11.Response(status_code=408, headers=[("content-length", "0"), ("connection", "close")])
            self.transport.write(self.conn.send(answer) + self.conn.send(h11.EndOfMessage()))
        self.transport.close()


def listening(host: str, port: int) -> socket.socket:
    """A socket of this machine that is bound to host and port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        came, where = f"{host}:{port}, which cannot be had ({error.strerror})", "regard serve"
        advice = "Another program may have it: --port 0 takes a free one."
        raise SettingError(came, "an address and a free port", where=where, advice=advice) from None
    # connections inherit it; without it the body of an answer waits 40 ms until the client has acknowledged the head
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
