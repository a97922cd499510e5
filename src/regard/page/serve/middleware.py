"""ASGI middleware around the application: Host and Origin checks, bounded bodies, security headers on every answer.

starlette's own parts do not reach: TrustedHostMiddleware and RequestBodyLimitMiddleware answer in plain text, know
neither IPv6 nor a time limit, and close the connection before a client that is still sending can read why.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.page.serve.limits import Limits
from regard.page.serve.serve_errors import ServeError, error_response

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
ANY_ADDRESS = ("0.0.0.0", "::")
PIECE = 2**16  # bytes handed to a connection at once: it buffers no more of a large answer
DRAINED, DRAIN_SECONDS = 2**24, 2.0  # what a refused client may still send before the connection is closed


class RequestGuard:
    """The outermost layer of the application.

    `hosts`: names by which clients may call this machine. 0.0.0.0 and :: stand for any numeric address: the page of
    another site cannot have one, so this too stops DNS rebinding.
    """

    def __init__(self, app: ASGIApp, limits: Limits, hosts: Iterable[str]) -> None:
        self.app, self.limits = app, limits
        self.hosts = frozenset(host.lower().strip("[]") for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        answer, body, headers = Answer(send), Body(receive), Headers(scope=scope)
        try:
            self.check_origin(scope["method"], headers)
            await body.read(headers.get("content-length", "0"), self.limits)
        except ServeError as error:
            return await answer.refuse(error, body)
        try:
            await self.app(scope, body.replay, answer.send)
        except Exception:
            if not answer.started:
                advice = "The terminal in which the server runs says more."
                failure = ServeError("a failure of the server", "an answer", advice=advice, status=500)
                await error_response(failure)(scope, receive, answer.send)
            raise  # to the log, by whoever runs the application

    def check_origin(self, method: str, headers: Headers) -> None:
        """Refuse another Host, and requests that the page of another site makes."""
        given = headers.getlist("host")
        if len(given) != 1 or not self.is_own(_name(given[0])):
            advice = "A name other than localhost has to be given to `regard serve --host`."
            raise ServeError("a request for another host", "this one", where="Host", advice=advice, status=400)
        navigates = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        origin, foreign = headers.get("origin"), None
        if headers.get("sec-fetch-site") == "cross-site" and not navigates:
            foreign = "Sec-Fetch-Site"
        elif origin is not None and method != "GET" and urlsplit(origin).netloc.lower() != given[0].lower():
            foreign = "Origin"
        if foreign is not None:
            came, expected = "a request made by the page of another site", "one made by this page"
            raise ServeError(came, expected, where=foreign, status=403)

    def is_own(self, name: str) -> bool:
        return name in self.hosts or (not self.hosts.isdisjoint(ANY_ADDRESS) and _is_address(name))


class Body:
    """The body of a request, read within bounds of size and time; the application reads it from `replay`."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._content = bytearray()
        self._replay: list[Message] = []
        self._more = True  # still to come

    async def read(self, announced: str, limits: Limits) -> None:
        """Refuse a body as soon as it is known to be too large: by its Content-Length, or by what has arrived."""
        if not announced.isdecimal():
            came = "a Content-Length that is no number"
            raise ServeError(came, "a number of bytes", where="Content-Length", status=400)
        large = ServeError(f"more than {limits.body_bytes:,} bytes", "a smaller body", where="body", status=413)
        if len(announced) > 18 or int(announced) > limits.body_bytes:
            raise large
        message: Message = {}
        try:
            async with asyncio.timeout(limits.body_seconds):
                while self._more:
                    message = await self._next()
                    self._content += message.get("body", b"")
                    if len(self._content) > limits.body_bytes:
                        raise large
        except TimeoutError:
            self._more = False  # waiting for the rest is no use
            came = f"no whole body within {limits.body_seconds:g} seconds"
            raise ServeError(came, "all of it", where="body", status=408) from None
        self._replay = [{**message, "body": bytes(self._content)}]  # or that the client has disconnected

    async def drain(self) -> None:
        """Read and drop what a refused client still sends, for a while: one that is cut off never reads why."""
        dropped = 0
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._more and dropped < DRAINED:
                    dropped += len((await self._next()).get("body", b""))
        except TimeoutError:
            return

    async def replay(self) -> Message:
        """ASGI's receive: the whole body, then what comes after it, a disconnect."""
        return self._replay.pop() if self._replay else await self._receive()

    async def _next(self) -> Message:
        message = await self._receive()
        self._more = message.get("more_body", False)
        return message


class Answer:
    """ASGI's send, in bounded pieces and with the security headers."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(raw=list(message.get("headers", [])))
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            await self._send({**message, "headers": headers.raw})
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        for at in range(0, max(1, len(body)), PIECE):
            last = at + PIECE >= len(body)
            await self._send({**message, "body": body[at : at + PIECE], "more_body": more or not last})

    async def refuse(self, error: ServeError, body: Body | None = None) -> None:
        """Send an error and close the connection, once the rest of the body has been read."""
        response = error_response(error)
        response.headers["connection"] = "close"
        await self.send({"type": "http.response.start", "status": error.status, "headers": response.raw_headers})
        await self.send({"type": "http.response.body", "body": response.body, "more_body": True})
        if body is not None:
            await body.drain()
        await self.send({"type": "http.response.body"})


async def too_many_connections(scope: Scope, receive: Receive, send: Send) -> None:
    """The application of connections beyond the limit."""
    advice = "Ask again in a few seconds."
    error = ServeError("one more connection than there may be", "fewer of them", advice=advice, status=503)
    await Answer(send).refuse(error)


def _name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
