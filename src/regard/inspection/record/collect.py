"""The record of one run of a model: text in by its adapter, every place captured, statistics and maps kept.

collect(adapter("runs/bert"), "The black cat sleeps .", spec=RecordSpec(heads=()))      # statistics alone
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.adapters import CANDIDATES, ModelAdapter, Output, Predicted, TokenRow
from regard.attention import Attended, Heard, Observe, hearing, places_of
from regard.errors import PlaceError, SettingError
from regard.inspection.attribution.norms import joining, value_norms
from regard.inspection.interventions import count_anew, is_changed
from regard.inspection.record.build import kept_of, observing, statistics_of
from regard.inspection.record.mask_codec import Unkept
from regard.inspection.record.place import Kept, Place, Slopes
from regard.inspection.record.quantize import Fixed
from regard.inspection.record.record import Record, Step
from regard.inspection.record.token_axis import Side


@dataclass(frozen=True)
class RecordSpec:
    """What a record is to hold: `places` by pattern, as `capture` takes them, and of which `heads` the maps are kept:
    all (None), the same ones at every place, or some for each place by its name. No heads: statistics alone.
    `gradient`: the gradient of what the model says with respect to each weight is kept too. `said`: is given the number
    that gradients are taken of, with its graph."""

    places: str | Sequence[str] = "*"
    heads: Sequence[int] | Mapping[str, Sequence[int]] | None = None
    gradient: bool = False
    said: Callable[[Tensor | None], None] | None = None

    def heads_of(self, place: str) -> Sequence[int] | None:
        if isinstance(self.heads, Mapping):
            return self.heads.get(place, ())
        return self.heads


ALL = RecordSpec()


@torch.no_grad()
def collect(
    adapter: ModelAdapter,
    text: Any,
    other: str | None = None,
    *,
    prefix: Sequence[int] | None = None,
    spec: RecordSpec = ALL,
) -> Record:
    """What a model attends to in a text, or in tensors where it takes other inputs; the model is given back as it was.

    `other`: a second text, or the translation to be read. `prefix`: tokens that what it writes begins with.
    """
    with adapter.borrowed(evaluate=True, through_regard=spec.gradient or spec.said is not None):
        ready = adapter.prepare(text, other, prefix)
        with listened(adapter.model, spec, ready.length) as heard:
            output = ready.forward()
            heard.explain(output.target)
    sides = _sides(output, heard)
    places = gathered(adapter, heard, spec, sides)
    asking = {place.queries for place in places}
    axes = output.axes or ()
    unused = {at for at, axis in enumerate(axes) if axis.optional and at not in asking}
    used = tuple(side for at, side in enumerate(sides) if at not in unused)
    facts = {"model": adapter.name, "kind": adapter.kind, **output.facts}
    return Record(used, places, facts, () if output.predicted is None else steps_of(output.predicted))


class Collector(Heard):
    """What was heard, and the gradients of what was said by the averages that were heard."""

    def __init__(self, spec: RecordSpec) -> None:
        super().__init__()
        self.wants, self.said, self.gradients = spec.gradient, spec.said, dict[str, list[Tensor]]()
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
        if not outputs:
            return  # a model that attended nowhere, which is refused in words
        found = torch.autograd.grad(said, [output for _, output in outputs], allow_unused=True)
        if all(gradient is None for gradient in found):
            came = "averages that have no part in what the model says"
            raise SettingError(came, "a model of this library or of transformers", where="look gradient")
        for (place, output), gradient in zip(outputs, found, strict=True):
            self.gradients.setdefault(place, []).append(torch.zeros_like(output) if gradient is None else gradient)


@contextmanager
def listened(model: nn.Module, spec: RecordSpec, length: int) -> Iterator[Collector]:
    """Hear all that a record of a text of this length needs."""
    heard = Collector(spec)
    heard.changed = frozenset(place for who, place in places_of(model, spec.places).items() if is_changed(who))
    count_anew()
    observe = observing(length) | Observe(values=True)
    gradient = spec.gradient or spec.said is not None
    with torch.set_grad_enabled(gradient), hearing(model, spec.places, observe, heard, in_graph=gradient):
        yield heard


def gathered(adapter: ModelAdapter, heard: Collector, spec: RecordSpec, sides: Sequence[Side]) -> tuple[Place, ...]:
    """The places of a record, in the order in which they were heard first."""
    spoken = [place for place in heard if heard.calls(place)]
    if not spoken:
        raise PlaceError(
            f"a model, {type(adapter.model).__name__}, that attended nowhere",
            "a model with attention that can be heard",
            where="look",
            advice="A recurrent model without attention has none; one of transformers' needs attn_implementation "
            '"sdpa" or "regard"; a module of your own is heard where it attends through regard.Tap or torch.',
        )
    found = []
    for name in spoken:
        place = _place(adapter, name, heard, spec, sides)
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


def _place(adapter: ModelAdapter, name: str, heard: Collector, spec: RecordSpec, sides: Sequence[Side]) -> Place:
    queries, keys, kind = adapter.axes_of(name)
    calls = heard.calls(name)
    kept, why = _kept(calls, spec.heads_of(name))
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
    norms = _norms(adapter.model, name, calls)
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


def _sides(output: Output, heard: Collector) -> tuple[Side, ...]:
    """The axes of a record; of inputs that have no names, as many as were attended to."""
    axes = output.axes
    if axes is None:
        assert output.unnamed is not None, "an output without axes says how they are called"
        counts = {heard.calls(place)[0].lse.size(-1) for place in heard}
        if len(counts) != 1:
            raise SettingError(f"places of {sorted(counts)} tokens", "one number everywhere", where="look")
        axes = (output.unnamed(counts.pop()),)
    return tuple(side_of(axis) for axis in axes)


def side_of(axis: TokenRow) -> Side:
    """The tokens of an adapter as a record keeps them."""
    segments = tuple(axis.segments) if axis.segment else None
    return Side(axis.name, axis.text, tuple(axis.tokens), tuple(axis.spans), tuple(axis.words), segments)


def steps_of(predicted: Predicted, count: int = CANDIDATES) -> tuple[Step, ...]:
    """What was written, and what else could have been, likeliest first."""
    logs, spell = predicted.logs, predicted.spell
    values, indices = logs.float().topk(min(count, logs.size(-1)))
    each = zip(predicted.positions, predicted.tokens, logs, values.tolist(), indices.tolist(), strict=True)
    return tuple(
        Step(at, token, float(log[token]), tuple((n, spell(n), value) for n, value in zip(which, best, strict=True)))
        for at, token, log, best, which in each
    )
