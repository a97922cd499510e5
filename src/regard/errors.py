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
    >>> str(RegardError("heads=3", "a divisor of 8", where="MultiHead"))  # the given value, and what it must be
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
    """Values of a type that cannot be used here, or of types that cannot be combined."""


class DeviceError(RegardError, ValueError):
    """Tensors that lie on different devices."""


class SettingError(RegardError, ValueError):
    """A setting outside its range, or an unknown name."""


class BackendError(RegardError, ValueError):
    """A backend that cannot serve this request; the message says why and which one can."""


class PlaceError(RegardError, LookupError):
    """A place that the model does not have, or whose attention was not called as often as needed."""


class CorpusError(RegardError, ValueError):
    """Text or an image that cannot be read, or not in the requested format; `where` is path:line of the user's file."""


class StoreError(RegardError, ValueError):
    """A token store that is stale, damaged or unfinished; the message says what differs."""


class CheckpointError(RegardError, ValueError):
    """Weights or a saved state that cannot be read, written, or used with this model."""


class RunError(RegardError, ValueError):
    """A folder that exists already, is not a run, or is in use by another process."""


class RunWarning(UserWarning):
    """A run is used with other weights than the final ones, such as those of a checkpoint; the message says which."""


class CheckpointWarning(UserWarning):
    """A checkpoint that loads as transformers' own model instead of one of ours; the message says why."""


class CaptureWarning(UserWarning):
    """Attention of a model that could not be captured; the message names the places."""


class RecordError(RegardError, ValueError):
    """A record of attention that cannot be read, or that does not store what was requested."""


class TrainingError(RegardError, RuntimeError):
    """Training that cannot continue: the loss is not finite, or memory ran out."""


def is_rust_panic(error: BaseException) -> bool:
    """Whether an error is a panic of a library written in Rust: no Exception, and of a class that nobody can import."""
    return type(error).__name__ == "PanicException" and not isinstance(error, Exception)


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
