"""Random words said twice: who looks from a word at what came after it the first time, has induced."""

from __future__ import annotations

from random import Random

from regard.inspection.patterns.lexicon import Lexicon, words_of
from regard.inspection.patterns.passages import Passage

PROBES = 24
LENGTHS = (6, 16)  # words of one half; they differ, so that a fixed distance finds nothing
KNOWN = 2000  # words to draw from, the most frequent ones


def probes(lexicon: Lexicon, pairs: bool, seed: int = 0, count: int = PROBES) -> list[Passage]:
    """Texts of random words, each text twice over; with `pairs`, for models that need a second text, it is the same."""
    words = [word for word, _ in lexicon.counts.most_common(KNOWN) if words_of(word) == [word]]
    chance, found = Random(f"probes/{seed}"), []
    for _ in range(count if len(words) >= LENGTHS[1] else 0):
        half = chance.sample(words, chance.randint(*LENGTHS))
        text = " ".join(half + half)
        found.append(Passage(text, text if pairs else None, probe=True))
    return found
