"""Measures between words instead of pieces: what goes to the pieces of a word is summed, what comes from them averaged.

A token that belongs to no word, such as [CLS], stands for itself.
"""

from __future__ import annotations

from torch import Tensor

from regard.adapters.tokens import NO_WORD, NOWHERE
from regard.errors import ShapeError
from regard.inspection.alignment import between_words
from regard.inspection.record.sides import Side


def of_words(measure: Tensor, keys: Side, queries: Side | None = None) -> Tensor:
    """A measure (T, S), or without `queries` (S,), between pieces: the same between words.

    The words of a side are those that `grouped` numbers and `shown` spells.
    """
    asked = (len(keys),) if queries is None else (len(queries), len(keys))
    if tuple(measure.shape) != asked:
        raise ShapeError(f"a measure {tuple(measure.shape)}", f"{asked}, as the tokens", where="of_words")
    if queries is None:
        return between_words(measure.unsqueeze(0), grouped(keys), [0]).squeeze(0)
    return between_words(measure, grouped(keys), grouped(queries))


def grouped(side: Side) -> list[int]:
    """Which word each token belongs to, counted from 0 in the order in which they begin."""
    numbers: dict[tuple[int, int, int], int] = {}
    found = []
    for at, word in enumerate(side.words):
        segment = 0 if side.segments is None else side.segments[at]
        one = (segment, word, at if word == NO_WORD else 0)
        found.append(numbers.setdefault(one, len(numbers)))
    return found


def shown(side: Side) -> list[str]:
    """The words of a side as its text spells them; a token that stands nowhere in it is spelt as it is."""
    spans: dict[int, tuple[int, int]] = {}
    spelt: dict[int, str] = {}
    for number, token, (start, stop) in zip(grouped(side), side.tokens, side.spans, strict=True):
        if (start, stop) == NOWHERE:
            spelt[number] = spelt.get(number, "") + token
            continue
        first, last = spans.get(number, (start, stop))
        spans[number] = (min(first, start), max(last, stop))
        spelt[number] = side.text[slice(*spans[number])]
    return [spelt[number] for number in sorted(spelt)]
