"""Bodies of requests, read within bounds of size and time before anyone else sees them."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import Message, Receive

from regard.page.serve.limits import Limits
from regard.page.serve.refusals import Malformed, Slow, TooLarge

DRAINED, DRAIN_SECONDS = 2**24, 2.0  # of what a refused visitor still sends, before the connection is closed


class Body:
    """What comes after the head of a request: read it, then let the application hear it `again`."""

    def __init__(self, headers: Headers, receive: Receive, limits: Limits) -> None:
        self.headers, self.limits = headers, limits
        self._receive = receive
        self._content = bytearray()
        self._more = "content-length" in headers or "transfer-encoding" in headers  # still to come
        self._left = False  # the visitor went away meanwhile
        self._told = False

    async def read(self) -> None:
        """Refuses a body as soon as it is known to be too large: by what was announced, or by what has come."""
        announced = self.headers.get("content-length", "0")
        if not (announced.isascii() and announced.isdigit()):
            raise Malformed("a Content-Length that is no number", "a number of bytes", where="Content-Length")
        if len(announced) > 18 or int(announced) > self.limits.body_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while self._more:
                    self._content += await self._next()
                    if len(self._content) > self.limits.body_bytes:
                        raise self._too_large()
        except TimeoutError:
            came = f"no whole body within {self.limits.body_seconds:g} seconds"
            self._more = False  # there is no use in waiting for the rest
            raise Slow(came, "all of it", where="body") from None

    async def drain(self) -> None:
        """Read and drop what a refused visitor still sends, for a while: who is cut off meanwhile never reads why."""
        dropped = 0
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._more and dropped < DRAINED:
                    dropped += len(await self._next())
        except TimeoutError:
            return

    async def again(self) -> Message:
        """What the application hears: the body, then that the visitor has gone, once this is so."""
        if not self._told and not self._left:
            self._told = True
            return {"type": "http.request", "body": bytes(self._content), "more_body": False}
        while not self._left:
            await self._next()
        return {"type": "http.disconnect"}

    async def _next(self) -> bytes:
        message = await self._receive()
        self._left = message["type"] == "http.disconnect"
        self._more = not self._left and message.get("more_body", False)
        found: bytes = message.get("body", b"")
        return found

    def _too_large(self) -> TooLarge:
        return TooLarge(f"more than {self.limits.body_bytes:,} bytes", "a smaller body", where="body")
