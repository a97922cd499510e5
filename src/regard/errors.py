"""The exceptions of regard: each message says what is wrong, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import partial
from typing import Any, Self


class RegardError(Exception):
    """The base class: `except RegardError` catches every error that this library raises on purpose.

    >>> str(RegardError("File not found: train.en", advice="`regard corpus DIR` writes the built-in corpus."))
    'File not found: train.en. `regard corpus DIR` writes the built-in corpus.'
    >>> str(RegardError("heads=3", "a divisor of 8", where="MultiHead"))   # a value that was given, and what it must be
    'MultiHead: got heads=3, expected a divisor of 8.'
    """

    def __init__(self, problem: str, expected: str = "", *, where: str = "", advice: str = "") -> None:
        self.problem, self.expected, self.where, self.advice = problem, expected, where, advice
        place = f"{where}: " if where else ""
        said = f"got {problem}, expected {expected}" if expected else problem
        super().__init__(f"{place}{said}{'' if said.endswith(('.', '?')) else '.'}" + (f" {advice}" if advice else ""))

    def replace(self, *, where: str | None = None, advice: str | None = None) -> Self:
        """The same error at another place, or with other advice."""
        where, advice = self.where if where is None else where, self.advice if advice is None else advice
        return type(self)(self.problem, self.expected, where=where, advice=advice)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickling, so that an error survives the way back from a worker process."""
        return partial(type(self), where=self.where, advice=self.advice), (self.problem, self.expected)


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


class CaptureWarning(UserWarning):
    """Attention of a model that could not be heard; the message names the places."""


class RecordError(RegardError, ValueError):
    """A record of attention that cannot be read, or has not kept what is asked of it."""


class TrainingError(RegardError, RuntimeError):
    """A training that cannot go on: a loss that is no number, memory that is not enough."""


def unknown(
    name: object, known: Iterable[str], *, kind: str, where: str, error: type[RegardError] = SettingError
) -> RegardError:
    """The error for a name that is not among the known ones: it suggests the nearest and lists them all.

    >>> str(unknown("sdap", ["plain", "sdpa"], kind="backend", where="attend"))
    "attend: Unknown backend 'sdap'. Did you mean 'sdpa'? Known: plain, sdpa."
    """
    choices = sorted(known)
    near = get_close_matches(str(name), choices, n=1)
    suggestion = f"Did you mean {near[0]!r}? " if near else ""
    return error(f"Unknown {kind} {name!r}", where=where, advice=f"{suggestion}Known: {', '.join(choices)}.")
