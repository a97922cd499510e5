"""Interventions over HTTP: heads that a client changes, and the model's output with and without the change."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field

from regard.inspection import Change, Edits, Place, Record, Step
from regard.page.serve.serve_errors import ServeError

SLACK = 1e-6  # of a sum of weights that were rounded
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Strict(BaseModel):
    """A request body: takes the fields it names and no others, of their own types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Edit(Strict):
    """The weight that a key is to have."""

    key: Number
    weight: float = Field(ge=0, le=1, allow_inf_nan=False)


class HeadChange(Strict):
    """A head other than it is. `head`: null for all; `weights`: none, the same for all keys, or those of some keys of
    one query's row, the others sharing what is left; `query`: null for all."""

    place: Number
    head: Number | None = None
    weights: Literal["zero", "uniform"] | Annotated[list[Edit], Field(min_length=1)]
    query: Number | None = None

    def change(self, record: Record) -> Change:
        """The change at a place of this record; what the record does not have is refused."""
        place = place_of(record, self.place, self.head)
        if self.query is not None and self.query >= place.T:
            raise ServeError(f"query {self.query}", f"one of {place.T}, counted from 0", where="query")
        if isinstance(self.weights, str):
            return Change(place.name, self.head, self.weights, self.query)
        edits = tuple((one.key, one.weight) for one in self.weights)
        self._check(place, edits)
        return Change(place.name, self.head, edits, self.query)

    def _check(self, place: Place, edits: Edits) -> None:
        """Refuse edits that are no row of this place."""
        if self.query is None:
            raise ServeError("weights of no query", "the query whose row they are", where="query")
        keys = [key for key, _ in edits]
        if len(set(keys)) < len(keys) or max(keys, default=0) >= place.S:
            raise ServeError("keys that are not there, or there twice", f"from 0 to {place.S - 1}", where="weights")
        if sum(value for _, value in edits) > 1 + SLACK:
            raise ServeError("weights that are more than 1 together", "at most 1", where="weights")
        given, row = [key for key, value in edits if value > 0], torch.tensor([self.query])
        for head in range(place.heads) if self.head is None else [self.head]:
            seen = None if place.kept is None else place.kept.sight.allowed(head, row, torch.tensor(given).long())[0]
            if seen is not None and not bool(seen.all()):
                hidden = given[int(seen.int().argmin())]
                raise ServeError(f"key {hidden}, which query {self.query} cannot see", "one it sees", where="weights")


class Intervention(Strict):
    """Changes of heads, the first one first."""

    changes: list[HeadChange] = Field(min_length=1)


class Word(BaseModel):
    """A word that was written, or put behind a mask: how likely it was and is, null where it is not among the
    likeliest; and what is likeliest now."""

    text: str
    before: float
    after: float | None
    best: str
    share: float


class Share(BaseModel):
    """A class, or a word that could come next: how likely it was and is; null: not among the likeliest."""

    text: str
    before: float | None
    after: float | None


class Outcome(BaseModel):
    """What the changed model makes of the same words, and what it writes by itself, where it writes."""

    words: list[Word]
    classes: list[Share]
    next: list[Share]
    estimate: tuple[float, float] | None
    written: list[str] | None


def place_of(record: Record, number: int, head: int | None) -> Place:
    """A place of a record by its number, if it has such a head."""
    if number >= len(record.places):
        raise ServeError(f"place {number}", f"one of {len(record.places)}, counted from 0", where="place", status=404)
    place = record.places[number]
    if head is not None and head >= place.heads:
        raise ServeError(f"head {head}", f"one of {place.heads}, counted from 0", where="head", status=404)
    return place


def outcome(before: Record, same: Record, anew: Record | None) -> Outcome:
    """`same`: what the changed model makes of the same words; `anew`: what it writes by itself, where it writes."""
    was, now = before.facts.get("estimate"), same.facts.get("estimate")
    return Outcome(
        words=[_word(before, old, new) for old, new in zip(before.steps, same.steps, strict=False)],
        classes=_shares(before.facts.get("classes"), same.facts.get("classes")),
        next=_shares(before.facts.get("next"), same.facts.get("next")),
        estimate=None if was is None or now is None else (was, now),
        written=None if anew is None else [_spelled(anew, step) for step in anew.steps],
    )


def _word(record: Record, old: Step, new: Step) -> Word:
    known = {number: value for number, _, value in new.candidates} | {new.token: new.log_prob}
    after = known.get(old.token)
    _, best, share = new.candidates[0]
    return Word(
        text=_spelled(record, old),
        before=math.exp(old.log_prob),
        after=None if after is None else math.exp(after),
        best=best,
        share=math.exp(share),
    )


def _spelled(record: Record, step: Step) -> str:
    told = next((text for number, text, _ in step.candidates if number == step.token), None)
    if told is not None:
        return told
    tokens = record.sides[-1].tokens
    return tokens[step.at] if step.at < len(tokens) else ""


def _shares(before: Any, after: Any) -> list[Share]:
    """Names with how likely each was and is; None where it is not among the likeliest that were told."""
    was, now = (dict(map(tuple, one or ())) for one in (before, after))
    return [Share(text=name, before=was.get(name), after=now.get(name)) for name in {**was, **now}]


def forced_prefix(record: Record, asked: Mapping[str, Any]) -> list[int] | None:
    """The tokens that a changed model is made to write again (teacher forcing); None: the model wrote nothing."""
    writes = record.facts.get("kind") in ("translates", "continues") and bool(record.steps)
    return [step.token for step in record.steps] if writes and asked.get("other") is None else None
