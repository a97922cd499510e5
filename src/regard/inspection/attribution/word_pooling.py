"""Pooling from subword pieces to words: attention to the pieces of a word is summed, attention from them averaged.

A token that belongs to no word, such as [CLS], stands for itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.adapters import NO_WORD, NOWHERE
from regard.errors import ShapeError
from regard.inspection.record.token_axis import Side


def between_words(weights: Tensor, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """weights (..., T, S) between pieces, and the number of each piece's word: (..., target words, source words).

    What goes *to* the pieces of a word is summed, what comes *from* them is averaged (Clark et al. 2019). Rows and
    columns beyond the pieces, such as those of the end, are left out.
    """
    if weights.dim() < 2 or weights.size(-2) < len(target) or weights.size(-1) < len(source):
        raise ShapeError(
            f"weights {tuple(weights.shape)}", f"at least ({len(target)}, {len(source)})", where="between_words"
        )
    lead = weights.shape[:-2]
    cols, rows = (torch.tensor(words, dtype=torch.long) for words in (source, target))
    to = torch.zeros(*lead, len(target), 1 + max(source, default=-1), dtype=weights.dtype)
    to.index_add_(-1, cols, weights[..., : len(target), : len(source)].cpu())
    mean = torch.zeros(*lead, 1 + max(target, default=-1), to.size(-1), dtype=weights.dtype).index_add_(-2, rows, to)
    return mean / rows.bincount(minlength=mean.size(-2)).clamp(min=1).unsqueeze(-1)


def of_words(measure: Tensor, keys: Side, queries: Side) -> Tensor:
    """A measure (T, S) between the tokens of two sides: the same between words.

    The words of a side are those that `grouped` numbers and `shown` spells.
    """
    asked = (len(queries), len(keys))
    if tuple(measure.shape) != asked:
        raise ShapeError(f"a measure {tuple(measure.shape)}", f"{asked}, as the tokens", where="of_words")
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
