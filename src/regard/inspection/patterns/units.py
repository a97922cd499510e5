"""The words along a side of a map: what they are, where they stand, and how a map of pieces becomes one of words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.adapters.tokens import NOWHERE
from regard.inspection.measures.words import between_words
from regard.inspection.patterns.passages import Nouns, Passage
from regard.inspection.record.sides import Side
from regard.text.words import Span, numbers, separated

SPECIAL, SIGN, WORD = range(3)  # what stands for nothing in the text, punctuation, words


@dataclass(frozen=True, eq=False)
class Units:
    """The words, signs and special tokens of a side, in its order.

    of_token (T,): the unit of each token. spelled: in small letters; shown: as they stand. kinds, segments, order (N,):
    SPECIAL, SIGN or WORD; which text; the number of the unit in its text. spans: where each stands in the side's text.
    """

    of_token: Tensor
    spelled: tuple[str, ...]
    shown: tuple[str, ...]
    kinds: Tensor
    segments: Tensor
    order: Tensor
    spans: tuple[Span, ...]

    def __len__(self) -> int:
        return len(self.spelled)

    @property
    def words(self) -> Tensor:
        """(N,): which units are words."""
        return self.kinds == WORD

    @property
    def inside(self) -> Tensor:
        """(N, T): 1 at the tokens of a unit."""
        return torch.zeros(len(self), len(self.of_token), dtype=torch.float64).index_put_(
            (self.of_token, torch.arange(len(self.of_token))), torch.ones((), dtype=torch.float64)
        )


def units_of(side: Side) -> Units:
    """Words and punctuation apart, whatever the tokenizer takes for a word; what stands nowhere is a unit by itself."""
    words = separated(side.text)
    segments = side.segments or (0,) * len(side)
    of_word = numbers(words, side.spans)
    found: dict[tuple[int, int, int], int] = {}
    of_token, spans, spelled, own = [], [], [], []
    for at, (token, span, word) in enumerate(zip(side.tokens, side.spans, of_word, strict=True)):
        alone = span == NOWHERE or word >= len(words)
        key = (segments[at], -1 if alone else word, at if alone else 0)
        if key not in found:
            found[key] = len(found)
            spans.append(span if alone else words[word])
            spelled.append(token if alone else side.text[slice(*words[word])])
            own.append(segments[at])
        of_token.append(found[key])
    kinds = [_kind(text, span) for text, span in zip(spelled, spans, strict=True)]
    return Units(
        torch.tensor(of_token, dtype=torch.long),
        tuple(text.lower() for text in spelled),
        tuple(spelled),
        torch.tensor(kinds, dtype=torch.long),
        torch.tensor(own, dtype=torch.long),
        torch.tensor(_order(own), dtype=torch.long),
        tuple(spans),
    )


def between_units(weights: Tensor, queries: Units, keys: Units) -> Tensor:
    """weights (H, T, S) between tokens, float64: (H, units, units), summed *to* and averaged *from* the pieces of a
    word (Clark et al. 2019)."""
    return between_words(weights, keys.of_token.tolist(), queries.of_token.tolist())


def nouns_of(side: Side, units: Units, passage: Passage, rule: Callable[[Sequence[str]], list[bool]]) -> Tensor:
    """(N,): which units are nouns or names, as the passage knows, or by a rule where it does not."""
    found = torch.zeros(len(units), dtype=torch.bool)
    known: dict[int, bool] = {}
    for text, nouns, last in ((passage.text, passage.nouns[0], False), (passage.other, passage.nouns[1], True)):
        start = -1 if text is None else side.text.rfind(text) if last else side.text.find(text)
        if nouns is not None and start >= 0:
            known |= _by_start(nouns, start, units)
    guessed: dict[int, bool] = {}
    for segment in units.segments.unique().tolist():
        own = [at for at in range(len(units)) if units.segments[at] == segment and units.kinds[at] != SPECIAL]
        guessed |= dict(zip(own, rule([units.shown[at] for at in own]), strict=True))
    for at in range(len(units)):
        found[at] = units.kinds[at] == WORD and known.get(at, guessed.get(at, False))
    return found


def _by_start(nouns: Nouns, start: int, units: Units) -> dict[int, bool]:
    """What is known of the units that begin inside a tagged word."""
    tags = [(a + start, b + start, noun) for (a, b), noun in nouns]
    found = {}
    for at, (begin, _) in enumerate(units.spans):
        inside = [noun for a, b, noun in tags if a <= begin < b]
        if inside:
            found[at] = inside[0]
    return found


def _kind(text: str, span: Span) -> int:
    if span == NOWHERE:
        return SPECIAL
    return WORD if any(sign.isalnum() for sign in text) else SIGN


def _order(segments: Sequence[int]) -> list[int]:
    counts: dict[int, int] = {}
    found = []
    for segment in segments:
        found.append(counts.get(segment, 0))
        counts[segment] = found[-1] + 1
    return found
