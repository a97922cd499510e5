"""Pooling from subword tokens (word pieces) to words, for word maps and word alignment.

Attention to the tokens of a word is summed, attention from them averaged. A token that belongs to no word, such as
[CLS], is a word of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.adapters import NO_SPAN, NO_WORD
from regard.errors import ShapeError
from regard.inspection.record.token_axis import TokenAxis


def pool_to_words(weights: Tensor, source: Sequence[int], target: Sequence[int]) -> Tensor:
    """weights (..., T, S) between tokens, and the number of each token's word: (..., target words, source words).

    Weights *to* the tokens of a word are summed, weights *from* them averaged (Clark et al. 2019). Rows and columns
    beyond these tokens, such as those of the end token, are left out.
    """
    if weights.dim() < 2 or weights.size(-2) < len(target) or weights.size(-1) < len(source):
        expected = f"at least ({len(target)}, {len(source)})"
        raise ShapeError(f"weights {tuple(weights.shape)}", expected, where="pool_to_words")
    lead = weights.shape[:-2]
    cols, rows = (torch.tensor(words, dtype=torch.long) for words in (source, target))
    to = torch.zeros(*lead, len(target), 1 + max(source, default=-1), dtype=weights.dtype)
    to.index_add_(-1, cols, weights[..., : len(target), : len(source)].cpu())
    mean = torch.zeros(*lead, 1 + max(target, default=-1), to.size(-1), dtype=weights.dtype).index_add_(-2, rows, to)
    return mean / rows.bincount(minlength=mean.size(-2)).clamp(min=1).unsqueeze(-1)


def pool_measure(measure: Tensor, keys: TokenAxis, queries: TokenAxis) -> Tensor:
    """A measure (T, S) between the tokens of two axes: the same between words.

    The words of an axis have the numbers of `word_groups` and the texts of `word_texts`.
    """
    expected = (len(queries), len(keys))
    if tuple(measure.shape) != expected:
        raise ShapeError(f"a measure {tuple(measure.shape)}", f"{expected}, as the tokens", where="pool_measure")
    return pool_to_words(measure, word_groups(keys), word_groups(queries))


def word_groups(axis: TokenAxis) -> list[int]:
    """The number of each token's word, counted from 0 in the order in which words begin."""
    numbers: dict[tuple[int, int, int], int] = {}
    found = []
    for at, word in enumerate(axis.words):
        segment = 0 if axis.segments is None else axis.segments[at]
        one = (segment, word, at if word == NO_WORD else 0)
        found.append(numbers.setdefault(one, len(numbers)))
    return found


def word_texts(axis: TokenAxis) -> list[str]:
    """The words of an axis as its text spells them; a token that is not in the text stands for itself."""
    spans: dict[int, tuple[int, int]] = {}
    texts: dict[int, str] = {}
    for number, token, (start, stop) in zip(word_groups(axis), axis.tokens, axis.spans, strict=True):
        if (start, stop) == NO_SPAN:
            texts[number] = texts.get(number, "") + token
            continue
        first, last = spans.get(number, (start, stop))
        spans[number] = (min(first, start), max(last, stop))
        texts[number] = axis.text[slice(*spans[number])]
    return [texts[number] for number in sorted(texts)]
