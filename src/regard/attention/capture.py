"""Capture attention weights: `with capture(model) as heard:` records what a model attends to, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import nn

from regard.attention.observe import Attended, Observe
from regard.attention.tap import TapListener, listen, places_of, taps_of
from regard.attention.torch_hooks import intercept_sdpa
from regard.errors import PlaceError, unknown


class Captured:
    """The attention of each place, call by call.

    >>> heard["decoder.3.cross"]        # that place's only call  # doctest: +SKIP
    >>> heard.calls("decoder.3.cross")  # all of them, first to last  # doctest: +SKIP
    """

    def __init__(self, places: Sequence[str] = ()) -> None:
        self._calls: dict[str, list[Attended]] = {place: [] for place in places}

    @property
    def places(self) -> list[str]:
        """The captured places, in the order of the model; in a model without taps, those with a call."""
        return list(self._calls)

    def add(self, place: str, got: Attended) -> None:
        self._calls.setdefault(place, []).append(got)

    def calls(self, place: str) -> list[Attended]:
        """All calls at this place, in order."""
        if not self._calls:
            raise PlaceError(
                f"There is no place {place!r}: no attention was captured",
                where="heard",
                advice="A Hugging Face model is heard with attn_implementation='sdpa' or 'regard', no other.",
            )
        if place not in self._calls:
            raise unknown(place, self._calls, kind="place", where="heard", error=PlaceError)
        return self._calls[place]

    def __getitem__(self, place: str) -> Attended:
        calls = self.calls(place)
        if not calls:
            advice = "Run the model inside the with-block."
            raise PlaceError(f"No call was captured at {place!r}", where="heard", advice=advice)
        if len(calls) > 1:
            advice = f"heard.calls({place!r}) lists them."
            raise PlaceError(f"There were {len(calls)} calls at {place!r}, not one", where="heard", advice=advice)
        return calls[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        """The places, with the one call at each or the number of calls."""
        lines = [
            f"  {place or '(the model itself)'}: {calls[0] if len(calls) == 1 else f'{len(calls)} calls'}"
            for place, calls in self._calls.items()
        ]
        return "\n".join([f"Captured({len(lines)} place{'' if len(lines) == 1 else 's'})", *_shortened(lines)])


MAX_LINES = 24  # of a repr


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= MAX_LINES:
        return lines
    half = MAX_LINES // 2
    return [*lines[:half], f"  ... {len(lines) - 2 * half} more", *lines[-half:]]


@contextmanager
def capture(model: nn.Module, places: str | Sequence[str] = "*", observe: Observe | None = None) -> Iterator[Captured]:
    """Record every call at the places that match, such as "*.cross" or ["encoder.0.self", "encoder.1.*"].

    By default the full weights are recorded. Neither the model's output nor its gradients change by one bit.

    A model without taps is recorded where it calls torch's own attention, or transformers' under "regard"; its places
    are the modules that make the calls.
    """
    heard = Captured(list(places_of(model, places).values()) if taps_of(model) else [])
    with capture_into(model, places, observe or Observe(weights=True), heard):
        yield heard


@contextmanager
def capture_into(
    model: nn.Module, places: str | Sequence[str], observe: Observe, heard: Captured, in_graph: bool = False
) -> Iterator[None]:
    """Add the calls of this model to `heard` until the block ends.

    `in_graph`: the recorded outputs are the very tensors that the model goes on with, so that gradients with respect to
    them can be taken; a loop with a derivative of its own then runs step by step.
    """
    taps = taps_of(model)
    hooks: AbstractContextManager[object] = nullcontext() if taps else intercept_sdpa(model)
    with listen(TapListener(places_of(model, places), observe, heard.add, replaces=in_graph)), hooks:
        yield
