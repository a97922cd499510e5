"""Errors of the server: an exception with its HTTP status, and every error answered as JSON of one shape."""

from __future__ import annotations

import re

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from regard.errors import RegardError

RETRY = {429: {"Retry-After": "2"}, 503: {"Retry-After": "2"}}  # seconds after which a client may ask again
DOCUMENTED = "one that /api/docs.json tells of"
# Drives, shares and absolute paths: clients see the last part of a path, never the folders before it.
_ROOT = r"(?:[A-Za-z]:[\\/]|\\\\|~?/)"
_FOLDERS = re.compile(
    rf"""(?<=['"]){_ROOT}(?:[^/\\'"\n]+[/\\])+"""  # in quotes a folder's name may have spaces
    rf"""|(?<![\w.~/\\-]){_ROOT}(?:[^\s/\\:'"<>|]+[/\\])+"""
)


class ServeError(RegardError):
    """A request that cannot be served, with its HTTP status; by default it was understood and does not fit."""

    def __init__(self, came: str, expected: str, *, where: str = "", advice: str = "", status: int = 422) -> None:
        super().__init__(came, expected, where=where, advice=advice)
        self.status = status


class Told(BaseModel):
    """What came, what was expected, where, and what one may do."""

    came: str
    expected: str
    where: str = ""
    advice: str = ""


class Problem(BaseModel):
    """The answer to whatever cannot be served."""

    error: Told = Field(description=str(Told.__doc__))


def problem(error: RegardError) -> Problem:
    parts = {name: _FOLDERS.sub("", getattr(error, name)) for name in Told.model_fields}
    return Problem(error=Told(**parts))


def error_response(error: RegardError) -> JSONResponse:
    status = error.status if isinstance(error, ServeError) else 422
    return JSONResponse(problem(error).model_dump(), status, RETRY.get(status))


def handle_error(request: Request, error: Exception) -> JSONResponse:
    """The application's exception handler: for our errors, the router's (path, method) and pydantic's (fields)."""
    if isinstance(error, RequestValidationError):
        return error_response(_invalid(error))
    if not isinstance(error, HTTPException):
        assert isinstance(error, RegardError), "registered for these classes"
        return error_response(error)
    if error.status_code == 404:
        return error_response(ServeError("a path that leads nowhere", DOCUMENTED, status=404))
    if error.status_code == 400:
        return error_response(_no_json())
    response = error_response(ServeError("a request of another kind", DOCUMENTED))
    response.status_code = error.status_code
    response.headers.update(error.headers or {})
    return response


def _invalid(error: RequestValidationError) -> ServeError:
    """The first field that does not fit; what came is not repeated, for it can be anything."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    short = where.encode("utf-8", "replace").decode()[:80]
    if first["type"] == "json_invalid":
        return _no_json()
    if first["type"] == "extra_forbidden":
        return ServeError("a field that nobody knows", DOCUMENTED, where=short)
    came = "nothing" if first["type"] == "missing" else "something else"
    expected = first["msg"].removeprefix("Input should be ").removeprefix("Field ")
    advice = "Content-Type has to be application/json." if where == "body" else ""
    return ServeError(came, expected, where=short, advice=advice)


def _no_json() -> ServeError:
    return ServeError("a body that is no JSON", "a JSON object", where="body", status=400)
