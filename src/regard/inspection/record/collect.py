"""Collect a record: run a model on a text through its adapter, capture every place, store statistics and maps.

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

from regard.adapters import CANDIDATES, ModelAdapter, ModelOutput, PredictedTokens, TokenRow
from regard.attention import Attended, Captured, Observe, capture_into, places_of
from regard.errors import PlaceError, SettingError
from regard.inspection.attribution.norms import output_projection, value_norms
from regard.inspection.interventions import is_intervened, reset_query_counts
from regard.inspection.record.build_place import merge_statistics, record_observe, store_qk
from regard.inspection.record.mask_codec import NotReconstructible
from regard.inspection.record.place import PlaceRecord, StoredGradients, StoredQK
from regard.inspection.record.quantize import Int16Tensor
from regard.inspection.record.record import GenerationStep, Record
from regard.inspection.record.token_axis import TokenAxis


@dataclass(frozen=True)
class RecordSpec:
    """The contents of a record.

    places     patterns, as `capture` takes them
    heads      whose maps are stored: all (None), the same ones at every place, or by the name of a place; () stores
               statistics alone
    gradient   also store the gradient of the model's output with respect to each attention weight
    on_target  called with the scalar that gradients are taken of, with its graph
    """

    places: str | Sequence[str] = "*"
    heads: Sequence[int] | Mapping[str, Sequence[int]] | None = None
    gradient: bool = False
    on_target: Callable[[Tensor | None], None] | None = None

    def heads_of(self, place: str) -> Sequence[int] | None:
        if isinstance(self.heads, Mapping):
            return self.heads.get(place, ())
        return self.heads


EVERYTHING = RecordSpec()


@torch.no_grad()
def collect(
    adapter: ModelAdapter,
    text: Any,
    other: str | None = None,
    *,
    prefix: Sequence[int] | None = None,
    spec: RecordSpec = EVERYTHING,
) -> Record:
    """The attention of a model to a text, or to tensors where it takes other inputs; the model is restored afterwards.

    `other`: a second text, or a given translation. `prefix`: tokens that the generated text begins with.
    """
    with adapter.borrow(evaluate=True, through_regard=spec.gradient or spec.on_target is not None):
        ready = adapter.prepare(text, other, prefix)
        with record_calls(adapter.model, spec, ready.length) as heard:
            output = ready.forward()
            heard.take_gradients(output.target)
    all_axes = _token_axes(output, heard)
    places = build_places(adapter, heard, spec, all_axes)
    query_axes = {place.queries for place in places}
    rows = output.axes or ()
    unused = {at for at, row in enumerate(rows) if row.optional and at not in query_axes}
    axes = tuple(axis for at, axis in enumerate(all_axes) if at not in unused)
    facts = {"model": adapter.name, "kind": adapter.kind, **output.facts}
    return Record(axes, places, facts, () if output.predicted is None else generation_steps(output.predicted))


class Collector(Captured):
    """Captured calls, and the gradients of the model's output with respect to their outputs."""

    def __init__(self, spec: RecordSpec) -> None:
        super().__init__()
        self.wants_gradients, self.on_target = spec.gradient, spec.on_target
        self.gradients = dict[str, list[Tensor]]()
        self.intervened: frozenset[str] = frozenset()  # places with an intervention, whose scores give other weights

    def take_gradients(self, target: Tensor | None) -> None:
        """`target`: a scalar that the model computed in the captured pass, such as ln p of the generated tokens."""
        if self.on_target is not None:
            self.on_target(target)
        if not self.wants_gradients:
            return
        if target is None or not target.requires_grad:
            raise SettingError(
                "This model has no output to take gradients of",
                where="look gradient",
                advice="Gradients need a model that outputs logits of words or classes.",
            )
        outputs = [(place, call.output) for place in self for call in self.calls(place)]
        if not outputs:
            return  # a model without attention, which is refused below
        found = torch.autograd.grad(target, [output for _, output in outputs], allow_unused=True)
        if all(gradient is None for gradient in found):
            raise SettingError(
                "The model's output does not depend on its captured attention",
                where="look gradient",
                advice="Gradients work for models of this library and of transformers.",
            )
        for (place, output), gradient in zip(outputs, found, strict=True):
            self.gradients.setdefault(place, []).append(torch.zeros_like(output) if gradient is None else gradient)


@contextmanager
def record_calls(model: nn.Module, spec: RecordSpec, length: int) -> Iterator[Collector]:
    """Capture all that a record of a text of this length needs."""
    heard = Collector(spec)
    heard.intervened = frozenset(place for who, place in places_of(model, spec.places).items() if is_intervened(who))
    reset_query_counts()
    observe = record_observe(length) | Observe(values=True)
    gradient = spec.gradient or spec.on_target is not None
    with torch.set_grad_enabled(gradient), capture_into(model, spec.places, observe, heard, in_graph=gradient):
        yield heard


def build_places(
    adapter: ModelAdapter, heard: Collector, spec: RecordSpec, axes: Sequence[TokenAxis]
) -> tuple[PlaceRecord, ...]:
    """The places of a record, in the order of their first calls."""
    called = [place for place in heard if heard.calls(place)]
    if not called:
        raise PlaceError(
            f"No attention was captured in this {type(adapter.model).__name__}",
            where="look",
            advice="A recurrent model without attention has none; a transformers model needs attn_implementation "
            '"sdpa" or "regard"; a module of your own must attend through regard.Tap or torch.',
        )
    found = []
    for name in called:
        place = _build_place(adapter, name, heard, spec, axes)
        gradients = _stored_gradients(place.stored, heard.calls(name), heard.gradients.get(name))
        found.append(replace(place, stored_gradients=gradients))
    return tuple(found)


def _stored_gradients(
    stored: StoredQK | None, calls: Sequence[Attended], gradients: Sequence[Tensor] | None
) -> StoredGradients | None:
    """The gradients of the outputs of the stored heads, and the values that were averaged."""
    if stored is None or gradients is None:
        return None
    output_grads = torch.cat([_by_head(one) for one in gradients], 1)
    values = _by_head(max((call.values for call in calls if call.values is not None), key=lambda one: one.size(-2)))
    group = output_grads.size(0) // values.size(0)
    used = sorted({head // group for head in stored.heads})
    value_heads = tuple(used.index(head // group) for head in stored.heads)
    grads = Int16Tensor.quantize(output_grads[list(stored.heads)])
    return StoredGradients(grads, Int16Tensor.quantize(values[used]), value_heads)


def _by_head(x: Tensor) -> Tensor:
    """(1, H, N, D) or (1, N, D) as (H, N, D)."""
    return x.detach().float().cpu().reshape(-1, *x.shape[-2:])


def _build_place(
    adapter: ModelAdapter, name: str, heard: Collector, spec: RecordSpec, axes: Sequence[TokenAxis]
) -> PlaceRecord:
    queries, keys, kind = adapter.axes_of(name)
    calls = heard.calls(name)
    stored, why = _stored_qk(calls, spec.heads_of(name))
    if name in heard.intervened:
        stored, why = None, "Statistics only: an intervention changes the weights here."
    statistics = merge_statistics(calls, stored)
    heads, T, S = *statistics.entropy.shape, statistics.received.size(-1)
    for count, number, what in ((T, queries, "queries"), (S, keys, "keys")):
        if count != len(axes[number]):
            expected = f"one for each of the {len(axes[number])} tokens of {axes[number].name}"
            raise PlaceError(f"{count} {what} at {name}", expected, where="look")
    numbers = re.findall(r"\d+", name)
    layer = int(numbers[0]) if numbers else 0
    norms = _value_norms(adapter.model, name, calls)
    return PlaceRecord(name, layer, kind, queries, keys, heads, statistics, stored, why, norms)


def _stored_qk(calls: Sequence[Attended], heads: Sequence[int] | None) -> tuple[StoredQK | None, str]:
    if heads is not None and not heads:
        return None, "Statistics only, as requested."
    try:
        return store_qk(calls, heads), ""
    except NotReconstructible as reason:
        return None, f"Statistics only: {reason}."


def _value_norms(model: nn.Module, place: str, calls: Sequence[Attended]) -> Tensor | None:
    """The norm of each value after the output projection; None where that matrix is not known."""
    values = max((call.values for call in calls if call.values is not None), key=lambda one: one.size(-2), default=None)
    matrix = output_projection(model, place)
    if values is None or matrix is None:
        return None
    heads = calls[0].lse.reshape(-1, calls[0].lse.size(-1)).size(0) // max(1, calls[0].lse.size(0))
    values = values[0] if values.dim() > 2 else values
    values = values if values.dim() == 3 else values.unsqueeze(0)
    if matrix.size(1) != heads * values.size(-1):
        return None
    return value_norms(values.float().cpu(), matrix.float().cpu())


def _token_axes(output: ModelOutput, heard: Collector) -> tuple[TokenAxis, ...]:
    """The axes of a record; of inputs without tokens, as many as there are keys."""
    axes = output.axes
    if axes is None:
        assert output.unnamed_axis is not None, "an output without axes has unnamed_axis"
        counts = {heard.calls(place)[0].lse.size(-1) for place in heard}
        if len(counts) != 1:
            raise SettingError(f"places of {sorted(counts)} tokens", "the same number at every place", where="look")
        axes = (output.unnamed_axis(counts.pop()),)
    return tuple(to_token_axis(axis) for axis in axes)


def to_token_axis(row: TokenRow) -> TokenAxis:
    """The tokens of an adapter as an axis of a record."""
    segments = tuple(row.segments) if row.segment else None
    return TokenAxis(row.name, row.text, tuple(row.tokens), tuple(row.spans), tuple(row.words), segments)


def generation_steps(predicted: PredictedTokens, count: int = CANDIDATES) -> tuple[GenerationStep, ...]:
    """The predicted tokens, each with its most likely alternatives."""
    logs, decode = predicted.log_probs, predicted.decode
    values, indices = logs.float().topk(min(count, logs.size(-1)))
    each = zip(predicted.positions, predicted.tokens, logs, values.tolist(), indices.tolist(), strict=True)
    return tuple(
        GenerationStep(
            at, token, float(log[token]), tuple((n, decode(n), value) for n, value in zip(which, best, strict=True))
        )
        for at, token, log, best, which in each
    )
