"""Listen to a model: `with capture(model) as heard:` tells what it attends to at every place, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from torch import nn

from regard.attention.observe import Attended, Observe
from regard.attention.tap import Listener, listening, places_of, taps_of
from regard.attention.torch_hooks import overheard
from regard.errors import PlaceError


class Heard:
    """What was attended at each place, call by call.

    >>> heard["decoder.3.cross"]        # that place's only call  # doctest: +SKIP
    >>> heard.calls("decoder.3.cross")  # all of them, first to last  # doctest: +SKIP
    """

    def __init__(self, places: Sequence[str] = ()) -> None:
        self._calls: dict[str, list[Attended]] = {place: [] for place in places}

    @property
    def places(self) -> list[str]:
        """Where somebody listens, in the order of the model; in one without taps, where something was heard."""
        return list(self._calls)

    def add(self, place: str, got: Attended) -> None:
        self._calls.setdefault(place, []).append(got)

    def calls(self, place: str) -> list[Attended]:
        """Everything heard at this place, in the order of the calls."""
        if place not in self._calls:
            known = ", ".join(self._calls) or "places where something was heard, which is nowhere"
            silent = "A Hugging Face model is heard with attn_implementation='sdpa' or 'regard', no other."
            advice = "" if self._calls else silent
            raise PlaceError(f"place {place!r}", f"one of {known}", where="heard", advice=advice)
        return self._calls[place]

    def __getitem__(self, place: str) -> Attended:
        calls = self.calls(place)
        if len(calls) != 1:
            advice = "Run the model inside the with-block." if not calls else f"heard.calls({place!r}) lists them."
            raise PlaceError(f"{len(calls)} calls at {place!r}", "one call", where="heard", advice=advice)
        return calls[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return "Heard(" + ", ".join(f"{place}: {len(calls)}" for place, calls in self._calls.items()) + ")"


@contextmanager
def capture(model: nn.Module, places: str | Sequence[str] = "*", observe: Observe | None = None) -> Iterator[Heard]:
    """Hear every call at the places that match, such as "*.cross" or ["encoder.0.self", "encoder.1.*"].

    By default the whole weights are heard. Neither the model's output nor its gradients change by one bit.

    A model without taps is heard where it calls torch's own attention, or transformers' under "regard"; its places go
    by the module that made the call.
    """
    heard = Heard(list(places_of(model, places).values()) if taps_of(model) else [])
    with hearing(model, places, observe or Observe(weights=True), heard):
        yield heard


@contextmanager
def hearing(
    model: nn.Module, places: str | Sequence[str], observe: Observe, heard: Heard, in_graph: bool = False
) -> Iterator[None]:
    """Let `heard` hear this model until the block ends.

    `in_graph`: the outputs that it hears are the very tensors that the model goes on with, so that gradients by them
    can be taken; a loop with a derivative of its own gives way to its steps.
    """
    taps = taps_of(model)
    elsewhere: AbstractContextManager[object] = nullcontext() if taps else overheard(model)
    with listening(Listener(places_of(model, places), observe, heard.add, replaces=in_graph)), elsewhere:
        yield
