"""Running the server: a socket on this machine, and uvicorn behind it."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import uvicorn
from fastapi import FastAPI

from regard.adapters import ModelAdapter
from regard.errors import SettingError
from regard.inspection.record.record import Record
from regard.page.serve.application import LOOPBACK, make_app
from regard.page.serve.connection import Connection
from regard.page.serve.limits import Limits

PORT = 8421
LARGEST_HEAD = 2**15  # bytes of a request before its body
GRACE = 3  # seconds for what is at work when the server is told to end


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


def listening(host: str, port: int) -> socket.socket:
    """A socket of this machine that is bound to host and port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        came, where = f"{host}:{port}, which cannot be had ({error.strerror})", "regard serve"
        advice = "Another program may have it: --port 0 takes a free one."
        raise SettingError(came, "an address and a free port", where=where, advice=advice) from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
