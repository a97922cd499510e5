"""What every request passes first: the right host, no other site behind it, a body in bounds; and what every answer
carries, so that a browser does nothing with it but show the page."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.page.serve.answers import send_refusal
from regard.page.serve.bodies import Body
from regard.page.serve.limits import Limits
from regard.page.serve.refusals import Foreign, Malformed, Refusal, failed

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
ANYWHERE = ("0.0.0.0", "::")
PIECE = 2**16  # bytes that are handed to a connection together: what it holds of a large answer is no more


class Guard:
    """The outermost layer of the application.

    `hosts`: names by which visitors may call this machine. 0.0.0.0 and :: stand for any address written in numbers: the
    page of a stranger cannot have one, so this too keeps out those who give their own name to this machine's address.
    """

    def __init__(self, app: ASGIApp, limits: Limits, hosts: Iterable[str]) -> None:
        self.app, self.limits = app, limits
        self.hosts = frozenset(host.lower().strip("[]") for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        answer = Answer(send)
        headers = Headers(scope=scope)
        body = Body(headers, receive, self.limits)
        try:
            self.admit(scope["method"], headers)
            await body.read()
        except Refusal as refusal:
            await send_refusal(refusal, answer.send, close=True, meanwhile=body.drain)
            return
        try:
            await self.app(scope, body.again, answer.send)
        except Exception:
            if not answer.started:
                await send_refusal(failed(), answer.send)
            raise  # to the log, by whoever runs the application

    def admit(self, method: str, headers: Headers) -> None:
        given = headers.getlist("host")
        if len(given) != 1 or not self.known(_name(given[0])):
            advice = "A name other than localhost has to be given to `regard serve --host`."
            raise Malformed("a request for another host", "this one", where="Host", advice=advice)
        navigates = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if headers.get("sec-fetch-site") == "cross-site" and not navigates:
            raise Foreign("a request made by the page of another site", "one made by this page", where="Sec-Fetch-Site")
        origin = headers.get("origin")
        if origin is not None and method != "GET" and urlsplit(origin).netloc.lower() != given[0].lower():
            raise Foreign("a request made by the page of another site", "one made by this page", where="Origin")

    def known(self, name: str) -> bool:
        return name in self.hosts or (not self.hosts.isdisjoint(ANYWHERE) and _is_address(name))


class Answer:
    """Sends an answer in pieces, with the headers that all of them have."""

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
        body = message.get("body", b"")
        for at in range(0, max(1, len(body)), PIECE):
            last = at + PIECE >= len(body)
            more = not last or message.get("more_body", False)
            await self._send({"type": "http.response.body", "body": body[at : at + PIECE], "more_body": more})


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
