"""Examples of a head's pattern: the pairs of words at which it shows most."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from regard.inspection.patterns.scene import Scene
from regard.inspection.patterns.traits import Level
from regard.inspection.patterns.units import Units

SHOWN = 3  # of each head's pattern
SNIPPET = 90  # characters of a text around an example
STEPS = 2**32

Example = tuple[int, int, int, int, str, str, str]
"""The weight in steps of 2^-32, negative so that the largest comes first; the numbers of the text, the query and the
key; both as words; and the text around the query."""


def best(examples: Iterable[Example]) -> list[Example]:
    """The first few of different words, largest weights first; of equal ones those of earlier texts."""
    found: dict[tuple[str, str], Example] = {}
    for one in sorted(examples):
        found.setdefault((one[4].lower(), one[5].lower()), one)
    return list(found.values())[:SHOWN]


def strongest(weights: Tensor, wanted: Tensor) -> list[tuple[int, int]]:
    """For each head the target that got most, weights (H, N, M) and targets (N, M): the weight in steps, and its place
    in the flat map."""
    values, places = (weights * wanted).flatten(1).max(1)
    return [(-round(value * STEPS), place) for value, place in zip(values.tolist(), places.tolist(), strict=True)]


def added(known: list[Example], found: tuple[int, int], scene: Scene, level: Level, number: int) -> list[Example]:
    """The examples of a head's pattern after another text."""
    steps, place = found
    if not steps or (len(known) == SHOWN and (steps, number) > known[-1][:2]):
        return known
    query, key = divmod(place, len(scene.keys.of_token if level == "tokens" else scene.keys))
    return best([*known, (steps, number, query, key, *_told(scene, level, query, key))])


def _told(scene: Scene, level: Level, query: int, key: int) -> tuple[str, str, str]:
    one, other = (
        int(units.of_token[at]) if level == "tokens" else at
        for units, at in ((scene.queries, query), (scene.keys, key))
    )
    return scene.queries.shown[one], scene.keys.shown[other], _around(scene.queries, one)


def _around(units: Units, at: int) -> str:
    """The words about a unit, as many as fit."""
    low, high = at, at + 1
    while high - low < len(units):
        wider = (max(0, low - 1), min(len(units), high + 1))
        if sum(len(word) + 1 for word in units.shown[slice(*wider)]) > SNIPPET:
            break
        low, high = wider
    return " ".join(units.shown[low:high])
