"""From what was heard to the places of a record: which side looks at which, what is kept, and how long values are."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from regard.attention.hearing import Heard, hearing
from regard.attention.observe import Attended, Observe
from regard.attention.tap import places_of
from regard.errors import PlaceError, SettingError
from regard.inspection.intervene import count_anew, is_changed
from regard.inspection.measures.norms import joining, value_norms
from regard.inspection.record.fixed import Fixed
from regard.inspection.record.making import kept_of, observing, statistics_of
from regard.inspection.record.place import Kept, Place, Slopes
from regard.inspection.record.record import Step
from regard.inspection.record.sides import Side
from regard.inspection.record.terms import Unkept
from regard.inspection.subjects.subject import CANDIDATES, Wanted

Sides = Callable[[str], tuple[int, int, Literal["self", "cross"]]]
"""For a place, by its name: the side that looks, the one that is looked at, and how that is called."""


class Ear(Heard):
    """What was heard, and the gradients of what was said by the averages that were heard."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__()
        self.wants, self.said, self.gradients = wanted.gradient, wanted.said, dict[str, list[Tensor]]()
        self.changed: frozenset[str] = frozenset()  # places where somebody intervenes, whose scores no longer tell

    def explain(self, said: Tensor | None) -> None:
        """`said`: one number that the model computed while it was heard, such as ln p of what it wrote."""
        if self.said is not None:
            self.said(said)
        if not self.wants:
            return
        if said is None or not said.requires_grad:
            raise SettingError(
                "gradients of a model that says nothing", "one that says words or classes", where="look gradient"
            )
        outputs = [(place, call.output) for place in self for call in self.calls(place)]
        found = torch.autograd.grad(said, [output for _, output in outputs], allow_unused=True)
        if all(gradient is None for gradient in found):
            came = "averages that have no part in what the model says"
            raise SettingError(came, "a model of this library or of transformers", where="look gradient")
        for (place, output), gradient in zip(outputs, found, strict=True):
            self.gradients.setdefault(place, []).append(torch.zeros_like(output) if gradient is None else gradient)


@contextmanager
def listened(model: nn.Module, wanted: Wanted, length: int) -> Iterator[Ear]:
    """Hear all that a record of a text of this length needs."""
    ear = Ear(wanted)
    ear.changed = frozenset(place for who, place in places_of(model, wanted.places).items() if is_changed(who))
    count_anew()
    observe = observing(length) | Observe(values=True)
    with (
        torch.set_grad_enabled(wanted.gradient or wanted.said is not None),
        hearing(model, wanted.places, observe, ear),
    ):
        yield ear


def gathered(model: nn.Module, heard: Ear, wanted: Wanted, sides: Sequence[Side], where: Sides) -> tuple[Place, ...]:
    """The places of a record, in the order in which they were heard first."""
    spoken = [place for place in heard if heard.calls(place)]
    if not spoken:
        raise PlaceError(
            f"a {type(model).__name__} that attended nowhere",
            "a model with attention that can be heard",
            where="look",
            advice="A recurrent model without attention has none; one of transformers' needs attn_implementation "
            '"sdpa" or "regard".',
        )
    found = []
    for name in spoken:
        place = _place(model, name, heard, wanted, sides, where)
        found.append(replace(place, slopes=_slopes(place.kept, heard.calls(name), heard.gradients.get(name))))
    return tuple(found)


def _slopes(kept: Kept | None, calls: Sequence[Attended], gradients: Sequence[Tensor] | None) -> Slopes | None:
    """Gradients by the averages of the heads that were kept, beside the values that were averaged."""
    if kept is None or gradients is None:
        return None
    asks = torch.cat([_of_heads(one) for one in gradients], 1)
    sends = _of_heads(max((call.values for call in calls if call.values is not None), key=lambda one: one.size(-2)))
    group = asks.size(0) // sends.size(0)
    used = sorted({head // group for head in kept.heads})
    groups = tuple(used.index(head // group) for head in kept.heads)
    return Slopes(Fixed.of(asks[list(kept.heads)]), Fixed.of(sends[used]), groups)


def _of_heads(x: Tensor) -> Tensor:
    """(1, H, N, D) or (1, N, D) as (H, N, D)."""
    return x.detach().float().cpu().reshape(-1, *x.shape[-2:])


def _place(model: nn.Module, name: str, heard: Ear, wanted: Wanted, sides: Sequence[Side], where: Sides) -> Place:
    queries, keys, kind = where(name)
    calls = heard.calls(name)
    kept, why = _kept(calls, wanted.heads_of(name))
    if name in heard.changed:
        kept, why = None, "Only statistics were kept: somebody intervenes here."
    statistics = statistics_of(calls, kept)
    heads, T, S = *statistics.entropy.shape, statistics.received.size(-1)
    for count, number, what in ((T, queries, "queries"), (S, keys, "keys")):
        if count != len(sides[number]):
            came = f"{count} {what} at {name}"
            raise PlaceError(
                came, f"one for each of the {len(sides[number])} tokens of {sides[number].name}", where="look"
            )
    numbers = re.findall(r"\d+", name)
    layer = int(numbers[0]) if numbers else 0
    norms = _norms(model, name, calls)
    return Place(name, layer, kind, queries, keys, heads, statistics, kept, why, norms)


def _kept(calls: Sequence[Attended], heads: Sequence[int] | None) -> tuple[Kept | None, str]:
    if heads is not None and not heads:
        return None, "Only statistics were asked for."
    try:
        return kept_of(calls, heads), ""
    except Unkept as reason:
        return None, f"Only statistics were kept: {reason}."


def _norms(model: nn.Module, place: str, calls: Sequence[Attended]) -> Tensor | None:
    """How long the vector is that each key sends into the stream; None where what joins the heads is not known."""
    values = max((call.values for call in calls if call.values is not None), key=lambda one: one.size(-2), default=None)
    matrix = joining(model, place)
    if values is None or matrix is None:
        return None
    heads = calls[0].lse.reshape(-1, calls[0].lse.size(-1)).size(0) // max(1, calls[0].lse.size(0))
    values = values[0] if values.dim() > 2 else values
    values = values if values.dim() == 3 else values.unsqueeze(0)
    if matrix.size(1) != heads * values.size(-1):
        return None
    return value_norms(values.float().cpu(), matrix.float().cpu())


def steps_of(
    logs: Tensor, tokens: Sequence[int], first: int, spell: Callable[[int], str], count: int = CANDIDATES
) -> tuple[Step, ...]:
    """What was written and what else could have been: logs (n, V) before each of n tokens, the first of which is number
    `first` of its side."""
    values, indices = logs.float().topk(min(count, logs.size(-1)))
    found = []
    for at, (token, log, best, which) in enumerate(zip(tokens, logs, values.tolist(), indices.tolist(), strict=True)):
        others = tuple((number, spell(number), value) for number, value in zip(which, best, strict=True))
        found.append(Step(first + at, token, float(log[token]), others))
    return tuple(found)


def shares_of(logs: Tensor, spell: Callable[[int], str], count: int = CANDIDATES) -> list[tuple[str, float]]:
    """What could come next: logs (V,), as it is shown and how likely it is, likeliest first."""
    values, indices = logs.detach().float().topk(min(count, logs.size(-1)))
    return [(spell(number), math.exp(value)) for number, value in zip(indices.tolist(), values.tolist(), strict=True)]
