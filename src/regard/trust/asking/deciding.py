"""From which token a decision is read: [CLS], the last one, or no single one; found out, not assumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from regard.inspection.measures.gradients import gradients, weights_through
from regard.trust.asking.case import Asker, Row

Decider = Literal["first", "last"] | None


def find_decider(asker: Asker, row: Row) -> Decider:
    """Which query of the last place that has several moves what the model says; None if that is more than one."""
    points = weights_through(asker.model)
    found = [
        slope
        for place, weights, slope in gradients(points, lambda: asker.say([row]).max(-1).values.sum())
        if asker.looks_at_text(place) and weights.size(-2) > 1
    ]
    if not found:
        return None
    moved = found[-1][0].abs().sum((0, -1)).nonzero().squeeze(-1).tolist()
    if moved == [0]:
        return "first"
    return "last" if moved == [found[-1].size(-2) - 1] else None


def at_decider(decider: Decider, rows: Sequence[Row]) -> list[int] | None:
    if decider is None:
        return None
    return [0 if decider == "first" else len(row.ids) - 1 for row in rows]
