"""ASGI middleware: Host and Origin checks, bounded bodies, security headers on every response.

starlette's own middleware is not enough: TrustedHostMiddleware and RequestBodyLimitMiddleware respond in plain text,
support neither IPv6 nor a time limit, and close the connection before a client that is still sending can read why.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
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
MAX_PORT = 2**16 - 1
_HOST = re.compile(r"(?:(?P<name>[A-Za-z0-9._-]+)|\[(?P<v6>[0-9A-Fa-f]*:[0-9A-Fa-f:.]*)\])(?::(?P<port>[0-9]{1,5}))?")
MAX_CHUNK = 2**16  # bytes passed to a connection at once, so that it buffers no more of a large response
MAX_DRAINED, DRAIN_SECONDS = 2**24, 2.0  # that a refused client may still send before the connection is closed


class RequestGuard:
    """The outermost middleware.

    `hosts`: allowed Host names. 0.0.0.0 and :: allow any numeric address: DNS rebinding needs a name, so it is still
    prevented.
    """

    def __init__(self, app: ASGIApp, limits: Limits, hosts: Iterable[str]) -> None:
        self.app, self.limits = app, limits
        self.hosts = frozenset(_canonical(host.lower().strip("[]")) for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        sender, body, headers = ResponseSender(send), RequestBody(receive), Headers(scope=scope)
        try:
            self.check_origin(scope["method"], headers)
            if "content-length" in headers and "transfer-encoding" in headers:
                problem = "A request has a Content-Length or a Transfer-Encoding, not both"
                raise ServeError(problem, where="Transfer-Encoding", status=400)
            await body.read(headers.get("content-length", "0"), self.limits)
        except ServeError as error:
            return await sender.refuse(error, body)
        try:
            await self.app(scope, body.replay, sender.send)
        except Exception:
            if not sender.started:
                advice = "The terminal of the server has the details."
                failure = ServeError("Internal server error", advice=advice, status=500)
                await error_response(failure)(scope, receive, sender.send)
            raise  # logged by uvicorn

    def check_origin(self, method: str, headers: Headers) -> None:
        """Refuse other hosts, and requests from pages of other sites."""
        hosts = headers.getlist("host")
        name = _host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None or not self.is_allowed(name):
            advice = "`regard serve --host NAME` allows a name other than localhost."
            raise ServeError("The request is for another host", where="Host", advice=advice, status=400)
        navigates = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        origin, foreign = headers.get("origin"), None
        if headers.get("sec-fetch-site") == "cross-site" and not navigates:
            foreign = "Sec-Fetch-Site"
        elif origin is not None and method != "GET" and _authority(origin) != hosts[0].lower():
            foreign = "Origin"
        if foreign is not None:
            raise ServeError("The request was made by a page of another site", where=foreign, status=403)

    def is_allowed(self, name: str) -> bool:
        return name in self.hosts or (not self.hosts.isdisjoint(ANY_ADDRESS) and _is_address(name))


class RequestBody:
    """The body of a request, read within limits of size and time; the application reads it from `replay`."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._content = bytearray()
        self._replay: list[Message] = []
        self._more = True  # to be received

    async def read(self, content_length: str, limits: Limits) -> None:
        """Refuse a body as soon as it is known to be too large: by its Content-Length, or by the bytes received."""
        if not content_length.isdecimal():
            raise ServeError("The Content-Length is not a number", where="Content-Length", status=400)
        large = ServeError(f"The body exceeds {limits.body_bytes:,} bytes", where="body", status=413)
        if len(content_length) > 18 or int(content_length) > limits.body_bytes:
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
            self._more = False  # do not wait for the rest
            problem = f"The body did not arrive within {limits.body_seconds:g} seconds"
            raise ServeError(problem, where="body", status=408) from None
        self._replay = [{**message, "body": bytes(self._content)}]  # or the disconnect

    async def drain(self) -> None:
        """Read and discard what a refused client still sends, for a while: one that is cut off never sees the error."""
        dropped = 0
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._more and dropped < MAX_DRAINED:
                    dropped += len((await self._next()).get("body", b""))
        except TimeoutError:
            return

    async def replay(self) -> Message:
        """ASGI's receive: the whole body, then the disconnect."""
        return self._replay.pop() if self._replay else await self._receive()

    async def _next(self) -> Message:
        message = await self._receive()
        self._more = message.get("more_body", False)
        return message


class ResponseSender:
    """ASGI's send, in bounded chunks and with the security headers."""

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
        for at in range(0, max(1, len(body)), MAX_CHUNK):
            last = at + MAX_CHUNK >= len(body)
            await self._send({**message, "body": body[at : at + MAX_CHUNK], "more_body": more or not last})

    async def refuse(self, error: ServeError, body: RequestBody | None = None) -> None:
        """Send an error and close the connection, once the rest of the body has been read."""
        response = error_response(error)
        response.headers["connection"] = "close"
        await self.send({"type": "http.response.start", "status": error.status, "headers": response.raw_headers})
        await self.send({"type": "http.response.body", "body": response.body, "more_body": True})
        if body is not None:
            await body.drain()
        await self.send({"type": "http.response.body"})


async def too_many_connections(scope: Scope, receive: Receive, send: Send) -> None:
    """The application for connections beyond the limit."""
    error = ServeError("Too many connections", advice="Try again in a few seconds.", status=503)
    await ResponseSender(send).refuse(error)


def _authority(origin: str) -> str | None:
    """Host and port of an Origin header; None where it is no URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _host_name(host: str) -> str | None:
    """The name in a Host header; None where the header is no name or address with at most a port after it."""
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > MAX_PORT:
        return None
    if found["name"] is not None:
        return _canonical(found["name"].lower().removesuffix("."))
    return _canonical(found["v6"].lower()) if _is_address(found["v6"]) else None


def _canonical(name: str) -> str:
    """An address in its shortest spelling; any other name as it is."""
    return str(ipaddress.ip_address(name)) if _is_address(name) else name


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
