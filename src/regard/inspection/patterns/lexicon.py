"""What a corpus tells of its words before any model sees it: how often they come, and which ones come together.

PMI(a, b) = ln (times together / times together by chance), among words that come often enough to say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import log

from regard.inspection.patterns.nouns import is_function
from regard.inspection.patterns.passages import Passage
from regard.text.words import separated

SEEN = 5  # a word has to come so often before anything is said of it
TOGETHER = 3  # and two words so often side by side, or in one text
STRONG = log(4)  # PMI: together four times as often as by chance
SURE = 10.83  # log-likelihood ratio: one in a thousand by chance (Dunning 1993)
NEAR = 3  # words to either side that may predict a word
FAR = 10  # words to either side that may be related to it
ACROSS = 40  # words of each of two texts, the first ones, that may be related across
MOST = 20_000  # words of which pairs are counted, the most frequent ones

Pair = tuple[str, str]  # in the order of the alphabet


@dataclass(frozen=True)
class Lexicon:
    """counts: of every word, in small letters. near: PMI of words that stand within three words of each other; far: of
    open words in one text, or across two; only strong and sure ones."""

    counts: Counter[str]
    near: dict[Pair, float]
    far: dict[Pair, float]

    def count(self, word: str) -> int:
        return self.counts.get(word, 0)

    def frequency(self, word: str) -> float:
        return self.count(word) / self._total

    @cached_property
    def _total(self) -> int:
        return max(1, self.counts.total())

    def predicts(self, one: str, other: str) -> float:
        """PMI of two words as neighbours; 0 where nothing is known."""
        return self.near.get(_pair(one, other), 0.0)

    def related(self, word: str) -> frozenset[str]:
        """The open words that come together with this one far more often than by chance."""
        return self._kin.get(word, frozenset())

    @cached_property
    def _kin(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for one, other in self.far:
            found.setdefault(one, set()).add(other)
            found.setdefault(other, set()).add(one)
        return {word: frozenset(others) for word, others in found.items()}


def learned(passages: Iterable[Passage]) -> Lexicon:
    """One look at the texts for words, another for pairs; `passages` must be iterable twice."""
    counts: Counter[str] = Counter()
    for one in passages:
        for text in one.texts:
            counts.update(words_of(text))
    known = {word for word, count in counts.most_common(MOST) if count >= SEEN}
    near: Counter[Pair] = Counter()
    far: Counter[Pair] = Counter()
    sides: tuple[Counter[str], Counter[str]] = (Counter(), Counter())  # in how many first, and second, texts a word is
    across: Counter[Pair] = Counter()
    both = 0
    for one in passages:
        rows = [words_of(text) for text in one.texts]
        for row in rows:
            near.update(_within(row, known, NEAR))
            far.update(_within(["" if is_function(word) else word for word in row], known, FAR))
        if len(rows) == 2:
            both += 1
            across.update(_across(rows, known, sides))
    total = max(1, counts.total())

    def beside(reach: int) -> Callable[[str, str], float]:
        return lambda one, other: counts[one] * counts[other] * 2 * reach / total

    def facing(one: str, other: str) -> float:
        first, second = sides
        return (first[one] * second[other] + first[other] * second[one]) / max(1, both)

    return Lexicon(counts, _strong(near, beside(NEAR)), _strong(far, beside(FAR)) | _strong(across, facing))


def words_of(text: str) -> list[str]:
    """Words, in small letters, without punctuation."""
    found = (text[a:b].lower() for a, b in separated(text))
    return [word for word in found if any(sign.isalnum() for sign in word)]


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """A word without its English endings: walks, walked and walking are walk. Of short words nothing is cut."""
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            rest = word[: len(word) - len(ending)] + instead
            doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "lsz" and ending in _DOUBLING
            return rest[:-1] if doubled else rest.removesuffix("e") if len(rest) > 3 else rest
    return word.removesuffix("e") if len(word) > 3 else word


_DOUBLING = ("ing", "ed", "er", "ers")
_ENDINGS = (
    *(("'s", ""), ("ies", "y"), ("ied", "y"), ("ers", ""), ("ing", ""), ("ed", ""), ("er", ""), ("es", "")),
    *(("ly", ""), ("ness", ""), ("s", "")),
)


def _pair(one: str, other: str) -> Pair:
    return (one, other) if one <= other else (other, one)


def _within(row: Sequence[str], known: set[str], reach: int) -> Iterator[Pair]:
    """Every two different known words that stand within reach of each other."""
    for at, word in enumerate(row):
        if word in known:
            for other in row[at + 1 : at + 1 + reach]:
                if other in known and other != word:
                    yield _pair(word, other)


def _across(rows: Sequence[Sequence[str]], known: set[str], sides: Sequence[Counter[str]]) -> Iterator[Pair]:
    """Every two different open words of two texts, one of each."""
    found = [{word for word in row[:ACROSS] if word in known and not is_function(word)} for row in rows]
    for words, side in zip(found, sides, strict=True):
        side.update(words)
    for one in found[0]:
        for other in found[1] - {one}:
            yield _pair(one, other)


def _strong(pairs: Counter[Pair], chance: Callable[[str, str], float]) -> dict[Pair, float]:
    """PMI of the pairs that come together far more often than by chance, and often enough to be sure."""
    return {pair: log(count / chance(*pair)) for pair, count in pairs.items() if _holds(count, chance(*pair))}


def _holds(count: int, chance: float) -> bool:
    if count < TOGETHER or not chance or count <= chance:
        return False
    pmi = log(count / chance)
    return pmi >= STRONG and 2 * (count * pmi - (count - chance)) >= SURE
