"""One family of errors; each message says what came, what was expected, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from typing import Any


class RegardError(Exception):
    """The root of the family: `except RegardError` catches whatever this library refuses in words.

    >>> str(RegardError("heads=3", "a divisor of 8", where="MultiHead"))
    'MultiHead: got heads=3, expected a divisor of 8.'
    """

    def __init__(self, came: str, expected: str, *, where: str = "", advice: str = "") -> None:
        self.came, self.expected, self.where, self.advice = came, expected, where, advice
        place = f"{where}: " if where else ""
        super().__init__(f"{place}got {came}, expected {expected}." + (f" {advice}" if advice else ""))

    def __reduce__(self) -> tuple[Any, ...]:
        """So that an error can come home from a worker process."""
        return partial(type(self), where=self.where, advice=self.advice), (self.came, self.expected)


class ShapeError(RegardError, ValueError):
    """Tensors whose shapes do not fit each other."""


class DtypeError(RegardError, TypeError):
    """Values of a kind that cannot be used here, or of kinds that do not go together."""


class DeviceError(RegardError, ValueError):
    """Tensors that lie on different devices."""


class SettingError(RegardError, ValueError):
    """A setting outside its range, or a name that nobody knows."""


class BackendError(RegardError, ValueError):
    """A backend that cannot serve this request; the message says why and which one can."""


class PlaceError(RegardError, LookupError):
    """A place in a model, or a call of it, that nobody heard."""


class CorpusError(RegardError, ValueError):
    """Text that cannot be read, or not as it was asked; `where` is path:line of the user's file."""


class StoreError(RegardError, ValueError):
    """A token store that is stale, damaged or unfinished; the message says which thing differs."""


class CheckpointError(RegardError, ValueError):
    """Weights or a saved state that cannot be read, written, or used with this model."""


class RunError(RegardError, ValueError):
    """A run folder that is in the way, is no run, or is in use."""


class RunWarning(UserWarning):
    """A run that is used, but not with the weights that its training was to end with; the message says with which."""


class RecordError(RegardError, ValueError):
    """A record of attention that cannot be read, or has not kept what is asked of it."""


class TrainingError(RegardError, RuntimeError):
    """A training that cannot go on: a loss that is no number, memory that is not enough."""


def unknown(name: object, known: Iterable[str], *, kind: str, where: str) -> SettingError:
    """The error for a name nobody knows: lists the known ones and points at the nearest."""
    choices = sorted(known)
    near = get_close_matches(str(name), choices, n=1)
    return SettingError(
        f"{kind} {name!r}",
        f"one of {', '.join(choices)}",
        where=where,
        advice=f"Did you mean {near[0]!r}?" if near else "",
    )
