"""Planted heads: texts, and for each of them a map with one pattern and no other."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from random import Random

import torch
from torch import Tensor

from regard.adapters.token_row import TokenRow
from regard.inspection.atlas.accumulate import PatternSums, PatternTargets, accumulate
from regard.inspection.atlas.label_criteria import PatternMeasure, earned_names, measure_patterns
from regard.inspection.atlas.passages import Passage
from regard.inspection.atlas.token_features import MapFeatures, map_features
from regard.inspection.atlas.word_statistics import WordStatistics, count_words
from regard.inspection.record.token_axis import TokenAxis, to_token_axis as side_from

TEXTS = 24
NOUNS = "cat dog house tree road ship stone bread river judge".split()
OPEN = "walk sing old green quickly run heavy bright eat slowly".split()
FUNCTION = "the a of in and but with he she not".split()
COUPLES = {"straw": "berries", "ice": "cream", "new": "york"}

Plant = Callable[[MapFeatures], Tensor]  # a scene to a map (T, S), not yet normalised


def texts(seed: int = 0, count: int = TEXTS) -> list[Passage]:
    """Every word comes twice, in any order; each text has a word that is in no other, signs, and a couple of words
    that always stand near each other."""
    rng = Random(seed)
    found = []
    for number in range(count):
        words = rng.sample(NOUNS, 4) + rng.sample(OPEN, 4) + rng.sample(FUNCTION, 4)
        words = words + words
        rng.shuffle(words)
        for one, other in COUPLES.items():
            at = rng.randrange(len(words))
            gap = rng.randrange(3)
            words[at:at] = rng.choice(([one, *words[:gap], other], [other, *words[:gap], one]))
        words.insert(rng.randrange(len(words)), f"rarity{number}")
        for at in sorted(rng.sample(range(3, len(words)), 2), reverse=True):
            words.insert(at, rng.choice([",", ";"]))
        spans, start = [], 0
        for word in words:
            spans.append(((start, start + len(word)), word in NOUNS))
            start += len(word) + 1
        found.append(Passage(" ".join(words), nouns=(tuple(spans), None)))
    return found


def side_of(text: str, other: str | None = None, special: bool = True) -> TokenAxis:
    """As a BERT reads it: words of more than four letters in two pieces."""
    row = TokenRow("text")
    if special:
        row.add_special("[CLS]")
    for number, part in enumerate((text, other)):
        if part is None:
            continue
        if number:
            row.next_segment()
        pieces, spans, words, start = [], [], [], 0
        for at, word in enumerate(part.split()):
            cuts = (0, 3, len(word)) if len(word) > 4 else (0, len(word))
            for a, b in pairwise(cuts):
                pieces.append(word[a:b])
                spans.append((start + a, start + b))
                words.append(at)
            start += len(word) + 1
        row.add_text(part, pieces, spans, words)
        if special:
            row.add_special("[SEP]")
    return side_from(row)


@cache
def lexicon() -> WordStatistics:
    return count_words(texts())


def scene(passage: Passage, visible: str = "all", special: bool = True) -> MapFeatures:
    side = side_of(passage.text, passage.other, special)
    seen = torch.ones(len(side), len(side), dtype=torch.bool)
    return map_features((side, side), True, seen.tril() if visible == "past" else seen, passage, lexicon())


plan_of = cache(PatternTargets)


def read(plants: Sequence[Plant], scenes: Sequence[MapFeatures]) -> list[dict[str, PatternMeasure]]:
    """What is measured of heads that have these maps."""
    sums = PatternSums.zeros(len(plants), 0, True)
    for number, one in enumerate(scenes):
        maps = torch.stack([plant(one) for plant in plants]).double() * one.visible
        maps = maps / maps.sum(-1, keepdim=True).clamp(min=1e-12)
        accumulate(sums, plan_of(one), maps, number)
    return measure_patterns(sums)


def named(plant: Plant, scenes: Sequence[MapFeatures]) -> list[str]:
    return earned_names(read([plant], scenes)[0])
