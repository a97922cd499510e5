"""Capture attention weights: `with capture(model) as heard:` records what a model attends to, and changes nothing."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields
from typing import Any

from torch import nn

from regard.attention.observe import Attended, Observe
from regard.attention.tap import Tap, TapListener, listen, places_of
from regard.attention.torch_hooks import (
    REGARD,
    Interception,
    attention_modules,
    implementation_of,
    intercept_attention,
    reports_itself,
)
from regard.errors import CaptureWarning, PlaceError, unknown


class Captured:
    """The attention of each place, call by call.

    >>> heard["decoder.3.cross"]        # that place's only call  # doctest: +SKIP
    >>> heard.calls("decoder.3.cross")  # all of them, first to last  # doctest: +SKIP
    """

    def __init__(self, places: Iterable[str] = ()) -> None:
        self._calls: dict[str, list[Attended]] = {place: [] for place in places}
        self.unheard: dict[str, str] = {}
        """Attention modules that ran and could not be heard: their places, and the names of their classes."""

    @property
    def places(self) -> list[str]:
        """The captured places, in the order of the model; in a model without taps, those with a call."""
        return list(self._calls)

    def add(self, place: str, got: Attended) -> None:
        self._calls.setdefault(place, []).append(got)

    def remove(self, place: str) -> None:
        """Forget a place of which only a part was heard."""
        self._calls.pop(place, None)

    def calls(self, place: str) -> list[Attended]:
        """All calls at this place, in order."""
        if not self._calls:
            raise PlaceError(
                f"There is no place {place!r}: no attention was captured",
                where="heard",
                advice=f"Not heard: {named_places(self.unheard)}." if self.unheard else "No attention was computed.",
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
        """The places, each with the shape of its output and what was observed, or with the number of calls."""
        lines = [f"  {place or '(the model itself)'}: {_describe(calls)}" for place, calls in self._calls.items()]
        return "\n".join([f"Captured({len(lines)} place{'' if len(lines) == 1 else 's'})", *_shortened(lines)])


MAX_LINES = 6  # of a repr


def _describe(calls: list[Attended]) -> str:
    if len(calls) != 1:
        return f"{len(calls)} calls"
    observed = [one.name for one in fields(Attended) if one.default is None and getattr(calls[0], one.name) is not None]
    return ", ".join([f"output {tuple(calls[0].output.shape)}", *observed])


def _shortened(lines: list[str]) -> list[str]:
    if len(lines) <= MAX_LINES:
        return lines
    half = MAX_LINES // 2
    return [*lines[:half], f"  ... {len(lines) - 2 * half} more", *lines[-half:]]


@contextmanager
def capture(model: nn.Module, places: str | Sequence[str] = "*", observe: Observe | None = None) -> Iterator[Captured]:
    """Record every call at the places that match, such as "*.cross" or ["encoder.0.self", "encoder.1.*"].

    By default the full weights are recorded. Neither the model's output nor its gradients change by one bit, except
    that torch's fast path of nn.TransformerEncoder and nn.MultiheadAttention (eval mode, no gradients), inside of which
    nothing can be captured, gives way to their ordinary path: real positions then differ by rounding.

    A model without taps is recorded where it calls torch's attention, transformers' under "regard", or a softmax of its
    own (eager attention, whose whole map is held); its places are the modules that make the calls. Attention that could
    not be heard is named by a CaptureWarning and in `heard.unheard`.
    """
    chosen = places_of(model, places)
    heard = Captured(chosen.values() if _has_taps(chosen) else ())
    with _capturing(model, chosen, observe or Observe(weights=True), heard):
        yield heard


@contextmanager
def capture_into(
    model: nn.Module, places: str | Sequence[str], observe: Observe, heard: Captured, in_graph: bool = False
) -> Iterator[None]:
    """Add the calls of this model to `heard` until the block ends.

    `in_graph`: the recorded outputs are the very tensors that the model goes on with, so that gradients with respect to
    them can be taken; a loop with a derivative of its own then runs step by step.
    """
    with _capturing(model, places_of(model, places), observe, heard, in_graph):
        yield


@contextmanager
def _capturing(
    model: nn.Module, chosen: Mapping[nn.Module, str], observe: Observe, heard: Captured, in_graph: bool = False
) -> Iterator[None]:
    has_taps = _has_taps(chosen)
    innermost = {} if has_taps else attention_modules(model)
    hooked = not has_taps and not reports_itself(model, innermost)
    hooks: AbstractContextManager[Interception | None] = nullcontext()
    if hooked:
        hooks = intercept_attention(model, innermost)
    how: dict[str, Any] = {"replaces": in_graph, "in_graph": in_graph, "hooked": hooked}
    if not has_taps:
        how["attending"] = innermost
    listener = TapListener(chosen, observe, heard.add, **how)
    with listen(listener), hooks as seen:
        yield
    if seen is not None:
        _note_unheard(heard, seen, chosen, innermost)
    elif not has_taps:
        _note_switched(heard, model, chosen, innermost)


def _has_taps(chosen: Mapping[nn.Module, str]) -> bool:
    """Whether these are taps, which all places of a model are that has any."""
    return any(isinstance(module, Tap) for module in chosen)


def _note_unheard(
    heard: Captured, seen: Interception, chosen: Mapping[nn.Module, str], innermost: Mapping[nn.Module, str]
) -> None:
    """Put down the attention modules that ran without being heard, and forget those that were heard in part."""
    partly = {chosen[module]: module for module in seen.incomplete() if module in chosen}
    for place, module in partly.items():
        for inner in [one for one in heard if _is_inside(one, place) and one in _eager_places(seen, chosen)]:
            heard.remove(inner)
        heard.unheard[place] = type(module).__name__
    ran = {chosen[module]: module for module in innermost if module in seen.called and module in chosen}
    for place, module in ran.items():
        if not any(_is_inside(one, place) or _is_inside(place, one) for one in (*heard, *partly)):
            heard.unheard[place] = type(module).__name__
    if heard.unheard:
        count = len({*ran, *heard.unheard})
        warnings.warn(
            f"{count - len(heard.unheard)} of {count} attention modules were heard; not heard: "
            f"{named_places(heard.unheard)}. They do not average values by one softmax of their scores",
            CaptureWarning,
            stacklevel=4,
        )


def _note_switched(
    heard: Captured, model: nn.Module, chosen: Mapping[nn.Module, str], innermost: Iterable[nn.Module]
) -> None:
    """Put down the attention modules that stopped reporting inside the block: the model, or its generation, chose
    another attention implementation for them."""
    left = {module: how for module in innermost if (how := implementation_of(module, model)) != REGARD}
    heard.unheard |= {chosen[module]: type(module).__name__ for module in left if module in chosen}
    if heard.unheard:
        warnings.warn(
            f"The model switched to attn_implementation={next(iter(left.values()))!r} inside the block (Whisper does, "
            f"for word timestamps), and what these modules attended to since then was not heard: "
            f"{named_places(heard.unheard)}. Call set_attn_implementation with that name before the block: it is "
            "heard then",
            CaptureWarning,
            stacklevel=4,
        )


def _eager_places(seen: Interception, chosen: Mapping[nn.Module, str]) -> set[str]:
    return {chosen[module] for module in seen.eager.matched if module in chosen}


def _is_inside(place: str, around: str) -> bool:
    return place == around or place.startswith(f"{around}.") or not around


def named_places(unheard: Mapping[str, str], most: int = 8) -> str:
    """Places with the names of their classes, for a sentence."""
    named = [f"{place or '(the model itself)'} ({kind})" for place, kind in unheard.items()]
    return ", ".join(named if len(named) <= most else [*named[:most], f"and {len(named) - most} more"])
