"""What a visitor is told who cannot be served: one family of errors, each with its HTTP status, and one shape."""

from __future__ import annotations

import re
from typing import ClassVar

from pydantic import BaseModel, Field

from regard.errors import RegardError

RETRY = 2  # seconds after which one may ask again
# Drives, shares and absolute paths: what stands before the last part of a path is no visitor's business.
_ROOT = r"(?:[A-Za-z]:[\\/]|\\\\|~?/)"
_FOLDERS = re.compile(
    rf"""(?<=['"]){_ROOT}(?:[^/\\'"\n]+[/\\])+"""  # in quotes a folder's name may have spaces
    rf"""|(?<![\w.~/\\-]){_ROOT}(?:[^\s/\\:'"<>|]+[/\\])+"""
)


class Refusal(RegardError):
    """A request that was understood and does not fit; those below have other reasons."""

    status = 422
    headers: ClassVar[dict[str, str]] = {}


class Malformed(Refusal):
    status = 400


class Foreign(Refusal):
    """Sent by the page of another site."""

    status = 403


class Missing(Refusal):
    status = 404


class Slow(Refusal):
    """The rest of the request did not come."""

    status = 408


class TooLarge(Refusal):
    status = 413


class Busy(Refusal):
    """The line is full."""

    status = 429
    headers: ClassVar = {"Retry-After": str(RETRY)}


class Failed(Refusal):
    status = 500


class Crowded(Refusal):
    """Too many connections, or a line that does not move."""

    status = 503
    headers: ClassVar = {"Retry-After": str(RETRY)}


class TooLong(Refusal):
    """The work was given up."""

    status = 504


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
    parts = (error.came, error.expected, error.where, error.advice)
    came, expected, where, advice = (_FOLDERS.sub("", part) for part in parts)
    return Problem(error=Told(came=came, expected=expected, where=where, advice=advice))


def status_of(error: RegardError) -> int:
    return error.status if isinstance(error, Refusal) else Refusal.status


def failed() -> Failed:
    """For what nobody foresaw: no word of it leaves the machine."""
    advice = "The terminal in which the server runs says more."
    return Failed("a failure of the server", "an answer", advice=advice)
