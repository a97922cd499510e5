"""Heads of a subject other than they are, and what it says then: switched off, flattened, or one query's row edited.

with changed(subject, [Change("decoder.1.cross", 2, "zero")]): subject.look("The black cat sleeps .")
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal

from torch import Tensor

from regard.inspection.intervene import Function, intervene
from regard.inspection.subjects.subject import Subject

Edits = tuple[tuple[int, float], ...]
"""Keys, each with the weight that it is to have."""


@dataclass(frozen=True)
class Change:
    """At a place, a head (None: all of them), and a query (None: all): no weights, the same for all keys, or edits."""

    place: str
    head: int | None
    weights: Literal["zero", "uniform"] | Edits
    query: int | None = None


@contextmanager
def changed(subject: Subject, changes: Sequence[Change]) -> Iterator[None]:
    """Let a subject be so until the block ends."""
    with ExitStack() as stack:
        for one in changes:
            weights: Literal["zero", "uniform"] | Function
            weights = one.weights if isinstance(one.weights, str) else partial(edited, edits=one.weights)
            how = intervene(subject.model, one.place, heads=one.head, weights=weights, rows=one.query)
            stack.enter_context(how)
        yield


def edited(weights: Tensor, edits: Edits) -> Tensor:
    """Weights (..., T, S) with those of some keys set; the others share what is left as they did before."""
    known = [(key, value) for key, value in edits if key < weights.size(-1)]
    rest = weights.clone()
    for key, _ in known:
        rest[..., key] = 0.0
    total = rest.sum(-1, keepdim=True)
    left = max(0.0, 1.0 - sum(value for _, value in known))
    rest = rest * (left / total.masked_fill(total == 0, 1.0))
    for key, value in known:
        rest[..., key] = value
    return rest
