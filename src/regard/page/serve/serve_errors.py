"""Errors of the server: an exception with its HTTP status, and the one JSON shape of all error responses."""

from __future__ import annotations

import re

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from regard.errors import RegardError

RETRY_AFTER = {429: {"Retry-After": "2"}, 503: {"Retry-After": "2"}}  # seconds
SEE_DOCS = "/api/docs.json describes the API."
# Drives, shares and absolute paths: clients see the last part of a path, never the folders before it.
_ROOT = r"(?:[A-Za-z]:[\\/]|\\\\|~?/)"
_FOLDERS = re.compile(
    rf"""(?<=['"]){_ROOT}(?:[^/\\'"\n]+[/\\])+"""  # in quotes the name of a folder may have spaces
    rf"""|(?<![\w.~/\\-]){_ROOT}(?:[^\s/\\:'"<>|]+[/\\])+"""
)


class ServeError(RegardError):
    """A request that cannot be served, with its HTTP status; by default it is invalid."""

    def __init__(
        self, problem: str, expected: str = "", *, where: str = "", advice: str = "", status: int = 422
    ) -> None:
        super().__init__(problem, expected, where=where, advice=advice)
        self.status = status


class ErrorDetail(BaseModel):
    """An error: the whole message, and its parts."""

    message: str = Field(description="The error in one sentence, with advice.")
    problem: str = Field(description="What is wrong, or the value that was given.")
    expected: str = Field(description="The expected value, where a wrong value was given.")
    where: str = Field(description="The field, header or run.")
    advice: str = Field(description="What to do about it.")


class ErrorResponse(BaseModel):
    """The body of every error response."""

    error: ErrorDetail


def error_body(error: RegardError) -> ErrorResponse:
    parts = {name: getattr(error, name) for name in ("problem", "expected", "where", "advice")}
    hidden = {name: _FOLDERS.sub("", text) for name, text in {"message": str(error), **parts}.items()}
    return ErrorResponse(error=ErrorDetail(**hidden))


def error_response(error: RegardError) -> JSONResponse:
    status = error.status if isinstance(error, ServeError) else 422
    return JSONResponse(error_body(error).model_dump(), status, RETRY_AFTER.get(status))


def handle_error(request: Request, error: Exception) -> JSONResponse:
    """The application's exception handler: for our errors, the router's (path, method) and pydantic's (fields)."""
    if isinstance(error, RequestValidationError):
        return error_response(_validation_error(error))
    if not isinstance(error, HTTPException):
        assert isinstance(error, RegardError), "registered for these classes"
        return error_response(error)
    if error.status_code == 404:
        return error_response(ServeError("Path not found", advice=SEE_DOCS, status=404))
    if error.status_code == 400:
        return error_response(_not_json())
    response = error_response(ServeError("Method not allowed for this path", advice=SEE_DOCS))
    response.status_code = error.status_code
    response.headers.update(error.headers or {})
    return response


def _validation_error(error: RequestValidationError) -> ServeError:
    """The first invalid field; the value is not repeated, because it can be anything."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    short = where.encode("utf-8", "replace").decode()[:80]
    if first["type"] == "json_invalid":
        return _not_json()
    if first["type"] == "extra_forbidden":
        return ServeError("Unknown field", where=short, advice=SEE_DOCS)
    if first["type"] == "missing":
        return ServeError("This field is missing", where=short, advice=SEE_DOCS)
    expected = first["msg"].removeprefix("Input should be ")
    advice = "The Content-Type must be application/json." if where == "body" else ""
    return ServeError("an invalid value", expected, where=short, advice=advice)


def _not_json() -> ServeError:
    return ServeError("The body is not a JSON object", where="body", status=400)
