"""Interventions over HTTP: changes of attention heads, and the model's output with and without them."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from regard.inspection import GenerationStep, HeadIntervention, PlaceRecord, Record, WeightEdits
from regard.page.serve.serve_errors import ServeError

SUM_TOLERANCE = 1e-6  # of a sum of rounded weights
NonNegativeInt = Annotated[int, Field(ge=0, le=2**31 - 1)]


class StrictModel(BaseModel):
    """A request body without unknown fields or type conversions."""

    model_config = ConfigDict(extra="forbid", strict=True)


class WeightEdit(StrictModel):
    """The new weight of a key."""

    key: NonNegativeInt
    weight: float = Field(ge=0, le=1, allow_inf_nan=False)


class HeadChange(StrictModel):
    """A change of a head's weights. `head`, `query`: null for all; `weights`: zero, uniform, or the weights of some
    keys of one query, while those of the other keys are rescaled."""

    place: NonNegativeInt
    head: NonNegativeInt | None = None
    weights: Literal["zero", "uniform"] | Annotated[list[WeightEdit], Field(min_length=1)]
    query: NonNegativeInt | None = None

    def change(self, record: Record) -> HeadIntervention:
        """The intervention on a place of this record; raises where the record has no such place, head or query."""
        place = find_place(record, self.place, self.head)
        if place.call is not None or place.joined is not None:
            expected = "a place whose module computes no more than this map in a pass"
            raise ServeError(f"a change at {place.name}", expected, where="place")
        if self.query is not None and self.query >= place.T:
            raise ServeError(f"query {self.query}", f"0 to {place.T - 1}", where="query")
        if isinstance(self.weights, str):
            return HeadIntervention(place.name, self.head, self.weights, self.query)
        edits = tuple((one.key, one.weight) for one in self.weights)
        self._check(place, edits)
        return HeadIntervention(place.name, self.head, edits, self.query)

    def _check(self, place: PlaceRecord, edits: WeightEdits) -> None:
        """Raise where the edits are no valid row of this place."""
        if self.query is None:
            raise ServeError("Edited weights need the query whose row they change", where="query")
        keys = [key for key, _ in edits]
        if len(set(keys)) < len(keys):
            raise ServeError("A key is edited twice", where="weights")
        if max(keys, default=0) >= place.S:
            raise ServeError(f"key {max(keys)}", f"0 to {place.S - 1}", where="weights")
        total = sum(value for _, value in edits)
        if total > 1 + SUM_TOLERANCE:
            raise ServeError(f"weights that sum to {total:.3g}", "a sum of at most 1", where="weights")
        weighted, row = [key for key, value in edits if value > 0], torch.tensor([self.query])
        for head in range(place.heads) if self.head is None else [self.head]:
            visible = (
                None if place.stored is None else place.stored.mask.allowed(head, row, torch.tensor(weighted).long())[0]
            )
            if visible is not None and not bool(visible.all()):
                hidden = weighted[int(visible.int().argmin())]
                raise ServeError(f"Query {self.query} cannot attend to key {hidden}, which is masked", where="weights")


class Intervention(StrictModel):
    """Changes of heads, applied in order."""

    changes: list[HeadChange] = Field(min_length=1)


class TokenChange(BaseModel):
    """A generated or masked token: its probability before and after, null where it is not among the top candidates; the
    most likely token after the change, and its probability."""

    text: str
    before: float
    after: float | None
    best: str
    best_probability: float


class ProbabilityChange(BaseModel):
    """The probability of a class or of a next token before and after; null where it is not among the top candidates."""

    text: str
    before: float | None
    after: float | None


class InterventionResult(BaseModel):
    """The output of the changed model for the same tokens, and the text that it generates, if it generates any."""

    tokens: list[TokenChange]
    classes: list[ProbabilityChange]
    next_tokens: list[ProbabilityChange]
    estimate: tuple[float, float] | None
    generated: list[str] | None


def find_place(record: Record, number: int, head: int | None) -> PlaceRecord:
    """A place of a record by its index; raises where there is no such place or head."""
    if number >= len(record.places):
        raise ServeError(f"place {number}", f"0 to {len(record.places) - 1}", where="place", status=404)
    place = record.places[number]
    if head is not None and head >= place.heads:
        raise ServeError(f"head {head}", f"0 to {place.heads - 1}", where="head", status=404)
    return place


def compare_records(before: Record, after: Record, generated: Record | None) -> InterventionResult:
    """`after`: the changed model on the same tokens; `generated`: the text that it generates, if it generates any."""
    was, now = before.facts.get("estimate"), after.facts.get("estimate")
    return InterventionResult(
        tokens=[_token_change(before, old, new) for old, new in zip(before.steps, after.steps, strict=False)],
        classes=_probability_changes(before.facts.get("classes"), after.facts.get("classes")),
        next_tokens=_probability_changes(before.facts.get("next"), after.facts.get("next")),
        estimate=None if was is None or now is None else (was, now),
        generated=None if generated is None else [_token_text(generated, step) for step in generated.steps],
    )


def _token_change(record: Record, old: GenerationStep, new: GenerationStep) -> TokenChange:
    known = {number: value for number, _, value in new.candidates} | {new.token: new.log_prob}
    after = known.get(old.token)
    _, best, log_prob = new.candidates[0]
    return TokenChange(
        text=_token_text(record, old),
        before=math.exp(old.log_prob),
        after=None if after is None else math.exp(after),
        best=best,
        best_probability=math.exp(log_prob),
    )


def _token_text(record: Record, step: GenerationStep) -> str:
    text = next((text for number, text, _ in step.candidates if number == step.token), None)
    if text is not None:
        return text
    tokens = [axis for axis in record.axes if not axis.numbered][-1].tokens
    return tokens[step.at] if step.at < len(tokens) else ""


def _probability_changes(before: Any, after: Any) -> list[ProbabilityChange]:
    """Names with their probabilities before and after; None where a name is not among the top candidates."""
    was, now = (dict(map(tuple, one or ())) for one in (before, after))
    return [ProbabilityChange(text=name, before=was.get(name), after=now.get(name)) for name in {**was, **now}]


def forced_prefix(record: Record, request: Mapping[str, Any]) -> list[int] | None:
    """The generated tokens, for teacher forcing of the changed model; None where the model generated nothing."""
    writes = record.facts.get("kind") in ("translates", "continues") and bool(record.steps)
    return [step.token for step in record.steps] if writes and request.get("other") is None else None
