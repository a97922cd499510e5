"""Attention patterns that a head can have: previous-token head, first-token head (attention sink), induction head, ...

Each is a value: a name, and the targets of each query, the keys that a head with this pattern attends to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.inspection.atlas.token_features import NEAREST, SIGN, SPECIAL, MapFeatures
from regard.inspection.atlas.word_statistics import NEAR, is_function, stem

Level = Literal["tokens", "words"]
Family = Literal["position", "landmark", "content", "pairs", "probe", "spread"]
MIN_CHOICES = 4  # visible keys, for broad attention; visible words, for the rarest one


@dataclass(frozen=True)
class HeadPattern:
    """`targets(features)`: booleans (T, S) between tokens, or (units, units) between words; None where the pattern does
    not apply. `family` decides the baseline:

    position, landmark   uniform attention to all visible keys
    content              the head's weight on words at the same distance that are function words too, or are not either
    pairs                the same, on words of the same kind (rarity, noun or not), which differ only in the words
    probe                its weight on the other half of a repeated text
    """

    name: str
    family: Family
    level: Level
    targets: Callable[[MapFeatures], Tensor | None]


def _offset(step: int) -> Callable[[MapFeatures], Tensor | None]:
    """Previous-token head, next-token head, and other fixed offsets."""

    def targets(features: MapFeatures) -> Tensor | None:
        if not features.is_self or features.probe:
            return None
        T, S = features.visible.shape
        return torch.arange(S) - torch.arange(T)[:, None] == step

    return targets


def _first(features: MapFeatures) -> Tensor | None:
    """First-token head, an attention sink."""
    found = torch.zeros_like(features.visible)
    found[:, :1] = True
    if features.is_self:
        found[:1] = False  # not the token itself
    return None if features.probe else found


def _delimiter(*kinds: int) -> Callable[[MapFeatures], Tensor | None]:
    """Special tokens or punctuation."""

    def targets(features: MapFeatures) -> Tensor | None:
        of_key = features.keys.kinds[features.keys.unit_of_token]
        found = torch.isin(of_key, torch.tensor(kinds))
        return None if features.probe else found.expand_as(features.visible) & ~_itself(features)

    return targets


def _itself(features: MapFeatures) -> Tensor:
    T, S = features.visible.shape
    return torch.eye(T, S, dtype=torch.bool) if features.is_self else torch.zeros(T, S, dtype=torch.bool)


def _identical(other_text: bool) -> Callable[[MapFeatures], Tensor | None]:
    def targets(features: MapFeatures) -> Tensor | None:
        pairs = _word_pairs(features, other_text)
        return None if pairs is None else pairs & _equal(features.queries.lower, features.keys.lower)

    return targets


def _related(other_text: bool) -> Callable[[MapFeatures], Tensor | None]:
    """Other words of the same stem, or that co-occur in this corpus; function words are related to none."""

    def targets(features: MapFeatures) -> Tensor | None:
        pairs = _word_pairs(features, other_text)
        if pairs is None:
            return None
        ours, theirs = features.queries.lower, features.keys.lower
        related = [[other in others for other in theirs] for others in map(features.statistics.related, ours)]
        found = torch.tensor(related) | _equal([stem(word) for word in ours], [stem(word) for word in theirs])
        open_ = [torch.tensor([not is_function(word) for word in words]) for words in (ours, theirs)]
        return pairs & found & ~_equal(ours, theirs) & open_[0][:, None] & open_[1]

    return targets


def _word_pairs(features: MapFeatures, other_text: bool) -> Tensor | None:
    """Pairs of words of one text, or of two."""
    pairs = features.visible_words & (features.other_text if other_text else ~features.other_text)
    return pairs if not features.probe and bool(pairs.any()) else None


def _equal(ours: Sequence[str], theirs: Sequence[str]) -> Tensor:
    numbers: dict[str, int] = {}
    one, other = (torch.tensor([numbers.setdefault(word, len(numbers)) for word in words]) for words in (ours, theirs))
    return one[:, None] == other


def _predicting(features: MapFeatures) -> Tensor | None:
    """Of the neighbours of a word, the one with the highest PMI (straw - berries)."""
    if features.probe or not features.is_self:
        return None
    near = features.visible_words & ~features.other_text & (features.distance.abs() <= NEAR)
    found = torch.zeros_like(near)
    for at, word in enumerate(features.queries.lower):
        strengths = [
            (features.statistics.predicts(word, features.keys.lower[key]), -key)
            for key in near[at].nonzero().squeeze(-1).tolist()
            if features.keys.lower[key] != word
        ]
        best, key = max(strengths, default=(0.0, 0))
        if best > 0:
            found[at, -key] = True
    return found


def _nouns(features: MapFeatures) -> Tensor | None:
    """Nouns and names, where other words are visible as well."""
    found = features.visible_words & features.key_nouns
    return None if features.probe else found & (features.visible_words & ~found).any(-1, keepdim=True)


def _rare(features: MapFeatures) -> Tensor | None:
    """The least frequent visible word in the corpus, or those that tie."""
    if features.probe:
        return None
    visible = features.visible_words
    counts = torch.tensor([float(features.statistics.count(word)) for word in features.keys.lower])
    counts = counts.expand(visible.shape).masked_fill(~visible, torch.inf)
    rarest = (counts == counts.amin(-1, keepdim=True)) & visible
    many = visible.sum(-1, keepdim=True)
    return rarest & (many >= MIN_CHOICES) & (MIN_CHOICES * rarest.sum(-1, keepdim=True) <= many)  # where few tie


def _gold(features: MapFeatures) -> Tensor | None:
    return None if features.gold is None or features.probe else features.gold & features.visible_words


def _diagonal(features: MapFeatures) -> Tensor | None:
    if features.is_self or features.probe or len(features.queries) < 2:
        return None
    return features.visible_words & (features.distance.abs() <= 1)


def _induction(step: int) -> Callable[[MapFeatures], Tensor | None]:
    """Induction head (Olsson et al. 2022): in a repeated text, the token `step` after its copy in the other half."""

    def targets(features: MapFeatures) -> Tensor | None:
        if not features.probe or not features.is_self:
            return None
        tokens = list(zip(features.keys.unit_of_token.tolist(), _pieces(features), strict=True))
        T, S = features.visible.shape
        found = torch.zeros(T, S, dtype=torch.bool)
        places: dict[str, list[int]] = {}
        for at, (_, piece) in enumerate(tokens):
            places.setdefault(piece, []).append(at)
        for at, (unit, piece) in enumerate(tokens):
            for other in places[piece] if features.keys.kinds[unit] != SPECIAL else ():
                if other != at and 0 <= other + step < S and other + step != at:
                    found[at, other + step] = True
        return found & other_half(features)

    return targets


def other_half(features: MapFeatures) -> Tensor:
    """(T, S): whether the key is in the other half of a repeated text."""
    keys = features.keys
    middle = (keys.positions[keys.is_word].max() + 1 + keys.positions[keys.is_word].min()) / 2
    late = keys.positions[keys.unit_of_token] >= middle
    word = keys.is_word[keys.unit_of_token]
    return (late[:, None] != late) & word[:, None] & word


def _pieces(features: MapFeatures) -> list[str]:
    """A key for each token: its word and its number in it."""
    counts: dict[int, int] = {}
    found = []
    for unit in features.keys.unit_of_token.tolist():
        counts[unit] = counts.get(unit, -1) + 1
        found.append(f"{features.keys.lower[unit]} {counts[unit]}")
    return found


def _none(features: MapFeatures) -> Tensor | None:
    return None


BROAD = "broad"  # measured by entropy, without targets
NAMED = {-1: "previous", 0: "self", 1: "next"}
PATTERNS: tuple[HeadPattern, ...] = (
    *(
        HeadPattern(NAMED.get(step, f"offset {step:+d}"), "position", "tokens", _offset(step))
        for step in range(-NEAREST, NEAREST + 1)
    ),
    HeadPattern("first token", "landmark", "tokens", _first),
    HeadPattern("delimiter", "landmark", "tokens", _delimiter(SPECIAL, SIGN)),
    HeadPattern("identical word", "pairs", "words", _identical(False)),
    HeadPattern("related word", "pairs", "words", _related(False)),
    HeadPattern("predicting word", "pairs", "words", _predicting),
    HeadPattern("identical word, other text", "pairs", "words", _identical(True)),
    HeadPattern("related word, other text", "pairs", "words", _related(True)),
    HeadPattern("nouns and names", "content", "words", _nouns),
    HeadPattern("rare word", "content", "words", _rare),
    HeadPattern("alignment", "pairs", "words", _gold),
    HeadPattern("diagonal", "landmark", "words", _diagonal),
    HeadPattern("induction", "probe", "tokens", _induction(1)),
    HeadPattern("induction, before", "probe", "tokens", _induction(-1)),
    HeadPattern(BROAD, "spread", "tokens", _none),
)
NUMBERS = {pattern.name: number for number, pattern in enumerate(PATTERNS)}
