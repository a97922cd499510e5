"""Collect a record: run a model on a text through its adapter, capture every place, store statistics and maps.

collect(adapter("runs/bert"), "The black cat sleeps .", spec=RecordSpec(heads=()))      # statistics alone
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.adapters import CANDIDATES, ForwardPass, ModelAdapter, PredictedTokens, expect_row, given_images
from regard.attention import (
    Attended,
    attention_modules,
    named_places,
    taps_of,
)
from regard.errors import PlaceError, SettingError
from regard.inspection.attribution.norms import output_projection, value_norms
from regard.inspection.record.axes import Axes
from regard.inspection.record.build_place import merge_slices, store_slices
from regard.inspection.record.collector import EVERYTHING, Collector, RecordSpec, record_calls
from regard.inspection.record.mask_codec import NotReconstructible
from regard.inspection.record.place import PlaceRecord, StoredGradients, StoredQK
from regard.inspection.record.quantize import Int16Tensor
from regard.inspection.record.record import GenerationStep, Record
from regard.inspection.record.sequences import BatchRow, PlaceCalls, batch_rows, row_slice, split_calls


@torch.no_grad()
def collect(
    adapter: ModelAdapter,
    text: Any,
    other: str | None = None,
    *,
    prefix: Sequence[int] | None = None,
    spec: RecordSpec = EVERYTHING,
    row: int = 0,
) -> Record:
    """The attention of a model to a text, to images, or to tensors where it takes other inputs; the model is restored
    afterwards.

    `other`: a second text, or a given translation. `prefix`: tokens that the generated text begins with. `row`: which
    row of a batch of tensors.
    """
    with adapter.borrow(evaluate=True, through_regard=spec.gradient or spec.on_target is not None):
        ready = _prepare(adapter, text, other, prefix, row)
        with record_calls(adapter.model, spec, ready.length) as heard:
            output = ready.forward()
            heard.take_gradients(output.target)
    rows = batch_rows({place: heard.calls(place) for place in heard}, output.rows)
    if rows > 1:
        expect_row(row, rows)
    parts = _parts(adapter, heard, BatchRow(row if rows > 1 else 0, rows, output.even))
    axes = Axes(adapter, output, parts)
    places = _build_places(adapter, parts, heard, spec, axes)
    facts = {"model": adapter.name, "kind": adapter.kind, **output.facts}
    facts |= {"row": row, "rows": rows} if rows > 1 else {}
    if rows == 1 and len(output.rows) == 1 and output.rows[0] > 1:
        facts |= {"row": None, "rows": output.rows[0]}
    facts |= {"notes": list(output.notes)} if output.notes else {}
    steps = () if output.predicted is None else generation_steps(output.predicted)
    used, places = axes.used_by(places)
    pictures = output.pictures if any(axis.grids for axis in used) else ()
    return Record(used, places, facts, steps, unheard=heard.unheard, pictures=pictures)


def _prepare(
    adapter: ModelAdapter, text: Any, other: str | None, prefix: Sequence[int] | None, row: int
) -> ForwardPass:
    """A forward pass over a text, over images, or over a mapping of tensors."""
    if isinstance(text, Mapping):
        if other is not None or prefix is not None:
            raise SettingError("Tensors and a second text or a prefix", "tensors alone", where="look")
        return adapter.prepare_tensors(text, row)
    images = given_images(text)
    if images and row:
        raise SettingError(f"row {row}", "row 0: images and a text are a batch of one row", where="look")
    if images:
        return adapter.prepare_images(images, other, prefix)
    if row:
        raise SettingError(f"row {row}", "row 0: a text is a batch of one row", where="look")
    return adapter.prepare(text, other, prefix)


def _parts(adapter: ModelAdapter, heard: Collector, batch: BatchRow) -> list[PlaceCalls]:
    """What a record shows as its places, in the order of their first calls."""
    called = [place for place in heard if heard.calls(place)]
    if not called:
        raise _nothing_heard(adapter.model, heard)
    found: list[PlaceCalls] = []
    has_taps = bool(taps_of(adapter.model))
    for place in called:
        calls, moments = heard.calls(place), heard.moments[place]
        if has_taps:
            numbers, slices = tuple(range(len(calls))), tuple(row_slice(call) for call in calls)
            found.append(PlaceCalls(place, place, numbers, slices, first=moments[0].number))
        else:
            found += split_calls(adapter.model.get_submodule(place), place, calls, moments, batch)
    return sorted(found, key=lambda part: part.first)


def _nothing_heard(model: nn.Module, heard: Collector) -> PlaceError:
    """The error for a model of which no attention was heard: what it has, and why it cannot be shown."""
    name = type(model).__name__
    if heard.unheard:
        count = len(heard.unheard)
        none = f"None of the {count} attention modules of this {name} could"
        none = f"The only attention module of this {name} could not" if count == 1 else none
        return PlaceError(
            f"{none} be heard: {named_places(heard.unheard)}",
            where="look",
            advice="They do not average values by one softmax of their scores over whole rows, so they have no map "
            "that could be shown exactly.",
        )
    if not taps_of(model) and not attention_modules(model):
        return PlaceError(
            f"No attention was captured in this {name}: it has no attention modules",
            where="look",
            advice="Layers that mix tokens otherwise, such as by recurrence or convolution, have no map. A module of "
            "your own must attend through regard.Tap or through torch.",
        )
    return PlaceError(
        f"No attention was captured in this {name}",
        where="look",
        advice="None of its attention modules ran at the chosen places; a module of your own must attend through "
        "regard.Tap or torch.",
    )


def _build_places(
    adapter: ModelAdapter, parts: Sequence[PlaceCalls], heard: Collector, spec: RecordSpec, axes: Axes
) -> tuple[PlaceRecord, ...]:
    """The places of a record; those of a module that is called several times are layers in the order of the calls."""
    found: list[PlaceRecord] = []
    for part in parts:
        place = _build_place(adapter, part, heard, spec, axes)
        found.append(place if part.call is None else replace(place, layer=len(found)))
    return tuple(found)


def _build_place(
    adapter: ModelAdapter, part: PlaceCalls, heard: Collector, spec: RecordSpec, axes: Axes
) -> PlaceRecord:
    stored, why = _stored_qk(part, spec.heads_of(part.name) if part.call is None else _heads_of_call(spec, part))
    if part.module in heard.intervened:
        stored, why = None, "Statistics only: an intervention changes the weights here."
    statistics = merge_slices(part.slices, stored, part.join)
    numbers = re.findall(r"\d+", part.module)
    gradients = None
    if stored is not None and part.module in heard.gradients:
        given = heard.gradients[part.module]
        gradients = _stored_gradients(stored, part, [given[number] for number in part.calls])
    return PlaceRecord(
        part.name,
        int(numbers[0]) if numbers else 0,
        *axes.of_place(part),
        statistics.entropy.size(0),
        statistics,
        stored,
        why,
        _value_norms(adapter.model, part, statistics.entropy.size(0)),
        gradients,
        module=None if part.module == part.name else part.module,
        call=part.call,
        joined=None if part.join == "steps" else part.join,
        note=part.note,
    )


def _heads_of_call(spec: RecordSpec, part: PlaceCalls) -> Sequence[int] | None:
    """The heads of a call may be given by its own name, or by that of its module."""
    given = spec.heads
    if isinstance(given, Mapping) and part.name not in given:
        return given.get(part.module, ())
    return spec.heads_of(part.name)


def _stored_qk(part: PlaceCalls, heads: Sequence[int] | None) -> tuple[StoredQK | None, str]:
    if heads is not None and not heads:
        return None, "Statistics only, as requested."
    try:
        return store_slices(part.slices, heads, part.join), ""
    except NotReconstructible as reason:
        return None, f"Statistics only: {reason}."


def _stored_gradients(stored: StoredQK, part: PlaceCalls, gradients: Sequence[Tensor]) -> StoredGradients:
    """The gradients of the outputs of the stored heads, and the values that were averaged."""
    by_call = dict(zip(map(id, _calls_of(part)), gradients, strict=True))
    output_grads = torch.cat([one.vectors(by_call[id(one.call)]) for one in part.slices], 1)
    values = _joined_values(part)
    assert values is not None, "an observation with values"
    group = output_grads.size(0) // values.size(0)
    used = sorted({head // group for head in stored.heads})
    value_heads = tuple(used.index(head // group) for head in stored.heads)
    grads = Int16Tensor.quantize(output_grads[list(stored.heads)])
    return StoredGradients(grads, Int16Tensor.quantize(values[used]), value_heads)


def _calls_of(part: PlaceCalls) -> list[Attended]:
    """The calls of a place, each once."""
    return list({id(one.call): one.call for one in part.slices}.values())


def _joined_values(part: PlaceCalls) -> Tensor | None:
    """The values (Hk, S, D) of a place: those of all sequences, or of the step with the most keys."""
    values = [one.vectors(one.call.values) for one in part.slices if one.call.values is not None]
    if not values:
        return None
    return max(values, key=lambda one: one.size(-2)) if part.join == "steps" else torch.cat(values, 1)


def _value_norms(model: nn.Module, part: PlaceCalls, heads: int) -> Tensor | None:
    """The norm of each value after the output projection; None where that matrix is not known."""
    values, matrix = _joined_values(part), output_projection(model, part.module)
    if values is None or matrix is None or matrix.size(1) != heads * values.size(-1):
        return None
    return value_norms(values, matrix.float().cpu())


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
