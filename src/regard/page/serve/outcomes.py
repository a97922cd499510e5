"""What a change of some heads has done: the words, classes and next words of a record beside those of the changed
model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from regard.inspection.intervene import Change, Edits
from regard.inspection.record.place import Place
from regard.inspection.record.record import Record, Step
from regard.page.serve.refusals import Missing, Refusal

SLACK = 1e-6  # of a sum of weights that were rounded


@dataclass(frozen=True)
class Wish:
    """A change as a visitor names it: the place by its number."""

    place: int
    head: int | None
    weights: Literal["zero", "uniform"] | Edits
    query: int | None

    def meant(self, record: Record) -> Change:
        """The change at a place of this record; what it cannot have is refused."""
        if self.place >= len(record.places):
            raise Missing(f"place {self.place}", f"one of {len(record.places)}, counted from 0", where="place")
        place = record.places[self.place]
        if self.head is not None and self.head >= place.heads:
            raise Missing(f"head {self.head}", f"one of {place.heads}, counted from 0", where="head")
        if self.query is not None and self.query >= place.T:
            raise Refusal(f"query {self.query}", f"one of {place.T}, counted from 0", where="query")
        if not isinstance(self.weights, str):
            self._fit(place, self.weights)
        return Change(place.name, self.head, self.weights, self.query)

    def _fit(self, place: Place, edits: Edits) -> None:
        """Refuse edits that are no row of this place."""
        if self.query is None:
            raise Refusal("weights of no query", "the query whose row they are", where="query")
        keys = [key for key, _ in edits]
        if len(set(keys)) < len(keys) or max(keys, default=0) >= place.S:
            raise Refusal("keys that are not there, or there twice", f"from 0 to {place.S - 1}", where="weights")
        if sum(value for _, value in edits) > 1 + SLACK:
            raise Refusal("weights that are more than 1 together", "at most 1", where="weights")
        given, row = [key for key, value in edits if value > 0], torch.tensor([self.query])
        for head in range(place.heads) if self.head is None else [self.head]:
            seen = None if place.kept is None else place.kept.sight.allowed(head, row, torch.tensor(given).long())[0]
            if seen is not None and not bool(seen.all()):
                hidden = given[int(seen.int().argmin())]
                raise Refusal(f"key {hidden}, which query {self.query} cannot see", "one it sees", where="weights")


def outcome(before: Record, same: Record, anew: Record | None) -> dict[str, Any]:
    """`same`: what the changed model makes of the same words; `anew`: what it writes by itself, where it writes."""
    words = [_word(before, old, new) for old, new in zip(before.steps, same.steps, strict=False)]
    shown = ("classes", "next")
    shares = {name: _shares(before.facts.get(name), same.facts.get(name)) for name in shown}
    estimates = [record.facts.get("estimate") for record in (before, same)]
    return {
        "words": words,
        **shares,
        "estimate": estimates if None not in estimates else None,
        "written": None if anew is None else [_spelled(anew, step) for step in anew.steps],
    }


def _word(record: Record, old: Step, new: Step) -> dict[str, Any]:
    known = {number: value for number, _, value in new.candidates} | {new.token: new.log_prob}
    after = known.get(old.token)
    _, best, share = new.candidates[0]
    return {
        "text": _spelled(record, old),
        "before": _share(old.log_prob),
        "after": None if after is None else _share(after),
        "best": best,
        "share": _share(share),
    }


def _spelled(record: Record, step: Step) -> str:
    told = next((text for number, text, _ in step.candidates if number == step.token), None)
    if told is not None:
        return told
    tokens = record.sides[-1].tokens
    return tokens[step.at] if step.at < len(tokens) else ""


def _shares(before: Any, after: Any) -> list[dict[str, Any]]:
    """Names with how likely each was and is; None where it is not among the likeliest that were told."""
    was, now = (dict(map(tuple, one or ())) for one in (before, after))
    return [{"text": name, "before": was.get(name), "after": now.get(name)} for name in {**was, **now}]


def _share(log: float) -> float:
    return math.exp(log) if log > -math.inf else 0.0


def prefixes(record: Record, asked: Mapping[str, Any]) -> tuple[list[int] | None, bool]:
    """The tokens that a changed model is made to write again, if it wrote any; and whether it is let write anew."""
    writes = record.facts.get("kind") in ("translates", "continues") and bool(record.steps)
    if not writes or asked.get("other") is not None:
        return None, False
    return [step.token for step in record.steps], True
