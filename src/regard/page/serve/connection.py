"""Connections that are not kept waiting: who does not say what they want, or does not read what they get, is let go."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.page.serve.answers import send_refusal
from regard.page.serve.guard import Answer
from regard.page.serve.limits import Limits
from regard.page.serve.refusals import Crowded

BEYOND = 2  # times the bound: from there on nobody is even told why


class Connection(H11Protocol):
    """uvicorn's own, with three more bounds: connections at once, time for the head of a request, time without
    reading. (Its own bound on the first answers without our shape, and it has none for the others.)"""

    def __init__(self, limits: Limits, *rest: Any, **named: Any) -> None:
        super().__init__(*rest, **named)
        self.limits = limits
        self._head: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        open_now = len(self.connections)
        if open_now > BEYOND * self.limits.connections:
            transport.abort()
            return
        if open_now > self.limits.connections:
            self.app = crowded
        # asyncio does this where it has made the socket itself; without it the body of an answer waits 40 ms for the
        # visitor's machine to acknowledge the head
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=0)  # so that whatever is not read at once starts the clock
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_clocks()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall = self.loop.call_later(self.limits.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall is not None:
            self._stall.cancel()

    def _watch_head(self) -> None:
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            if self._head is not None:
                self._head.cancel()
                self._head = None
        elif self._head is None:
            self._head = self.loop.call_later(self.limits.head_seconds, self._too_slow)

    def _stop_clocks(self) -> None:
        for clock in (self._head, self._stall):
            if clock is not None:
                clock.cancel()

    def _too_slow(self) -> None:
        if self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE:
            answer = h11.Response(status_code=408, headers=[("content-length", "0"), ("connection", "close")])
            self.transport.write(self.conn.send(answer) + self.conn.send(h11.EndOfMessage()))
        self.transport.close()


async def crowded(scope: Scope, receive: Receive, send: Send) -> None:
    """The application for those who come when there are too many."""
    refusal = Crowded("one more connection than there may be", "fewer of them", advice="Ask again in a few seconds.")
    await send_refusal(refusal, Answer(send).send, close=True)
