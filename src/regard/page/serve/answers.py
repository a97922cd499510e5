"""Refusals as HTTP answers, inside the application and outside of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Send

from regard.errors import RegardError
from regard.page.serve.refusals import Malformed, Missing, Refusal, problem, status_of


def as_response(error: RegardError) -> JSONResponse:
    headers = error.headers if isinstance(error, Refusal) else {}
    return JSONResponse(problem(error).model_dump(), status_of(error), headers)


async def send_refusal(
    refusal: Refusal, send: Send, *, close: bool = False, meanwhile: Callable[[], Awaitable[None]] | None = None
) -> None:
    """`close`: the connection ends with this answer, after what is to be done `meanwhile`."""
    response = as_response(refusal)
    if close:
        response.headers["connection"] = "close"
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": meanwhile is not None})
    if meanwhile is not None:
        await meanwhile()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def tell_refusal(request: Request, error: Exception) -> JSONResponse:
    """For whatever of our family was raised on the way."""
    assert isinstance(error, RegardError), "asked for by its class"
    return as_response(error)


def tell_http(request: Request, error: Exception) -> JSONResponse:
    """For what the router finds: no such path, no such method, a body that is no JSON at all."""
    assert isinstance(error, HTTPException), "asked for by its class"
    if error.status_code == 404:
        return as_response(Missing("a path that leads nowhere", "one that /api/docs.json tells of"))
    if error.status_code == 400:
        return as_response(_no_json())
    response = as_response(Refusal("a request of another kind", "one that /api/docs.json tells of"))
    response.status_code = error.status_code
    response.headers.update(error.headers or {})
    return response


def tell_invalid(request: Request, error: Exception) -> JSONResponse:
    """For fields that do not fit; what came is not repeated, for it can be anything."""
    assert isinstance(error, RequestValidationError), "asked for by its class"
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    if first["type"] == "json_invalid":
        return as_response(_no_json())
    if first["type"] == "extra_forbidden":
        return as_response(
            Refusal("a field that nobody knows", "one that /api/docs.json tells of", where=_short(where))
        )
    came = "nothing" if first["type"] == "missing" else "something else"
    said = first["msg"].removeprefix("Input should be ").removeprefix("Field ")
    advice = "Content-Type has to be application/json." if where == "body" else ""
    return as_response(Refusal(came, said, where=_short(where), advice=advice))


def _short(where: str) -> str:
    return where.encode("utf-8", "replace").decode()[:80]


def _no_json() -> Malformed:
    return Malformed("a body that is no JSON", "a JSON object", where="body")
