"""Heads made by hand: texts, and for each of them a map that has one pattern and no other."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from random import Random

import torch
from torch import Tensor

from regard.adapters.tokens import TokenRow
from regard.inspection.atlas.accumulate import Plan, Sums, count
from regard.inspection.atlas.examples import Passage
from regard.inspection.atlas.label_heads import Measured, measured, names
from regard.inspection.atlas.lexicon import Lexicon, learned
from regard.inspection.atlas.token_features import Scene, scene_of
from regard.inspection.record.collect import side_of as side_from
from regard.inspection.record.token_axis import Side

TEXTS = 24
NOUNS = "cat dog house tree road ship stone bread river judge".split()
OPEN = "walk sing old green quickly run heavy bright eat slowly".split()
FUNCTION = "the a of in and but with he she not".split()
COUPLES = {"straw": "berries", "ice": "cream", "new": "york"}

Plant = Callable[[Scene], Tensor]  # a scene to a map (T, S), not yet normalised


def texts(seed: int = 0, count: int = TEXTS) -> list[Passage]:
    """Every word comes twice, in any order; each text has a word that is in no other, signs, and a couple of words
    that always stand near each other."""
    chance = Random(seed)
    found = []
    for number in range(count):
        words = chance.sample(NOUNS, 4) + chance.sample(OPEN, 4) + chance.sample(FUNCTION, 4)
        words = words + words
        chance.shuffle(words)
        for one, other in COUPLES.items():
            at = chance.randrange(len(words))
            gap = chance.randrange(3)
            words[at:at] = chance.choice(([one, *words[:gap], other], [other, *words[:gap], one]))
        words.insert(chance.randrange(len(words)), f"rarity{number}")
        for at in sorted(chance.sample(range(3, len(words)), 2), reverse=True):
            words.insert(at, chance.choice([",", ";"]))
        spans, start = [], 0
        for word in words:
            spans.append(((start, start + len(word)), word in NOUNS))
            start += len(word) + 1
        found.append(Passage(" ".join(words), nouns=(tuple(spans), None)))
    return found


def side_of(text: str, other: str | None = None, special: bool = True) -> Side:
    """As a BERT reads it: words of more than four letters in two pieces."""
    row = TokenRow("text")
    if special:
        row.special("[CLS]")
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
        row.part(part, pieces, spans, words)
        if special:
            row.special("[SEP]")
    return side_from(row)


@cache
def lexicon() -> Lexicon:
    return learned(texts())


def scene(passage: Passage, visible: str = "all", special: bool = True) -> Scene:
    side = side_of(passage.text, passage.other, special)
    seen = torch.ones(len(side), len(side), dtype=torch.bool)
    return scene_of((side, side), True, seen.tril() if visible == "past" else seen, passage, lexicon())


plan_of = cache(Plan)


def read(plants: Sequence[Plant], scenes: Sequence[Scene]) -> list[dict[str, Measured]]:
    """What is measured of heads that have these maps."""
    sums = Sums.none(len(plants), 0, True)
    for number, one in enumerate(scenes):
        maps = torch.stack([plant(one) for plant in plants]).double() * one.visible
        maps = maps / maps.sum(-1, keepdim=True).clamp(min=1e-12)
        count(sums, plan_of(one), maps, number)
    return measured(sums)


def named(plant: Plant, scenes: Sequence[Scene]) -> list[str]:
    return names(read([plant], scenes)[0])
