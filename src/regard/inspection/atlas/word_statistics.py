"""Word statistics without a tagger: nouns and names by rule, word frequencies, and co-occurrence in a corpus (PMI).

PMI(a, b) = ln (joint count / joint count expected by chance), of words that are frequent enough. The accuracy of the
noun rule is measured on the built-in grammar, which has tags (`evaluate_noun_rule`); docs/atlas.md has the figures.
Tags are better: `Passage.nouns`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import log
from typing import NamedTuple

from regard.inspection.atlas.passages import NOUNS, Passage
from regard.text import Tagged, tokenize_words

_DETERMINERS = frozenset(
    "a an the this that these those my your his her its our their some any no every each all both another many "
    "several few much more most one two three four five six seven eight nine ten which whose un une le la l' les "
    "ce cet cette ces mon ma mes ton ta tes sa ses notre nos votre vos leur leurs du des aux au quelques "
    "plusieurs deux trois quatre cinq six sept huit neuf dix quel quelle quels quelles chaque".split()
)
_PREPOSITIONS = frozenset(
    "of in on at by for from with without to into onto over under between among through during before after since "
    "until against about around near behind beyond across along towards toward upon within outside inside per via "
    "off out up down as than like opposite far beside besides despite except de d' à en dans sur sous par pour "
    "avec sans chez vers entre contre depuis pendant avant après devant derrière près loin malgré sauf parmi".split()
)
_OTHERS = frozenset(
    "i you he she it we they me him us them who whom what where when why how there here himself herself itself "
    "themselves myself yourself someone somebody something nobody nothing everyone everything anyone anything "
    "mine yours hers ours and or but nor so yet if because although though while whereas unless whether even that "
    "am is are was were be been being have has had having do does did done will would shall should can could may "
    "might must ought not n't 's 'll 've 're 'd 'm also too very rather quite extremely really just only still "
    "already always never often sometimes again then now soon later today yesterday tomorrow ago well away back "
    "once such other own same je j' tu il elle on nous vous ils elles me m' te t' se s' lui leur y qui que qu' "
    "quoi dont où ne n' pas plus jamais rien et ou mais ni car donc si parce puisque quand lorsque comme même est "
    "sont était étaient être été a ai as avons avez ont avait avaient avoir sera seront suis es sommes êtes fut "
    "très trop aussi bien encore déjà toujours souvent hier demain".split()
)
FUNCTION = _DETERMINERS | _PREPOSITIONS | _OTHERS
_ENDS = ".!?:;\u2026"
_SUFFIXES = tuple("tion sion ness ment ity ism ship hood ance ence ology".split())
_DEGREES = frozenset("very rather quite extremely really too other own same such très trop".split())
_VERBAL = ("ed", "ing")
_ADVERBIAL = ("ly",)


def is_function(word: str) -> bool:
    """Whether a lower-case word is in a closed class: articles, prepositions, pronouns, auxiliaries."""
    return word in FUNCTION


def guess_nouns(words: Sequence[str]) -> list[bool]:
    """For each word of a text, whether the rule takes it for a noun or a name.

    A capital inside a sentence; a suffix such as -tion; and in a run of open-class words after a determiner or a
    preposition, the last one, or where that looks like a verb the one before it.
    """
    found = [_capital(words, at) or words[at].lower().endswith(_SUFFIXES) for at in range(len(words))]
    for start, stop in _runs(words):
        before = next((word.lower() for word in reversed(words[:start]) if word.lower() not in _DEGREES), "")
        if before in _DETERMINERS or before in _PREPOSITIONS:
            found[_head(words, start, stop)] = True
    return found


def _capital(words: Sequence[str], at: int) -> bool:
    inside = at > 0 and words[at - 1][-1:] not in _ENDS and words[at - 1] not in "\"'\u201c\u00ab("
    return inside and words[at][:1].isupper() and words[at] != "I"


def _runs(words: Sequence[str]) -> Iterable[tuple[int, int]]:
    """Runs of open-class words, between function words and punctuation."""
    start = None
    for at in range(len(words) + 1):
        open_ = at < len(words) and words[at].lower() not in FUNCTION and any(sign.isalpha() for sign in words[at])
        if open_ and start is None:
            start = at
        elif not open_ and start is not None:
            yield start, at
            start = None


def _head(words: Sequence[str], start: int, stop: int) -> int:
    """The noun of a run: the last word, unless that looks like a verb or an adverb, or agrees like a verb with the word
    before it (the dentist cuts)."""
    last = stop - 1
    while last > start and words[last].lower().endswith(_ADVERBIAL):
        last -= 1
    if last == start:
        return last
    word, before = words[last].lower(), words[last - 1].lower()
    agrees = word.endswith("s") and not word.endswith("ss") and not before.endswith("s")
    return last - 1 if word.endswith(_VERBAL) or agrees else last


class RuleAccuracy(NamedTuple):
    """Precision and recall of the noun rule, over `words` words."""

    precision: float
    recall: float
    words: int


def evaluate_noun_rule(sentences: Iterable[Tagged]) -> RuleAccuracy:
    """The noun rule on tagged sentences."""
    right = taken = there = words = 0
    for sentence in sentences:
        for guess, tag in zip(guess_nouns(sentence.words), sentence.tags, strict=True):
            noun = tag.startswith(NOUNS)
            right, taken, there, words = right + (guess and noun), taken + guess, there + noun, words + 1
    return RuleAccuracy(right / max(1, taken), right / max(1, there), words)


MIN_COUNT = 5  # occurrences of a word
MIN_PAIR_COUNT = 3  # joint occurrences of two words
MIN_PMI = log(4)  # four times as often together as by chance
MIN_LOG_LIKELIHOOD = 10.83  # p = 0.001 (Dunning 1993)
NEAR = 3  # words on either side that may predict a word
FAR = 10  # words on either side that may be related to it
PAIR_WORDS = 40  # the first words of each of two texts, which may be related across
MAX_VOCABULARY = 20_000  # the most frequent words, whose pairs are counted

Pair = tuple[str, str]  # in alphabetical order


@dataclass(frozen=True)
class WordStatistics:
    """Counts of words, lower-cased, and the significant PMI of pairs: `near` of words within three words of each other,
    `far` of open-class words in one text, or across two."""

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
        """PMI of two words as neighbours; 0 if not significant."""
        return self.near.get(_pair(one, other), 0.0)

    def related(self, word: str) -> frozenset[str]:
        """The open-class words that co-occur with this one significantly more often than by chance."""
        return self._kin.get(word, frozenset())

    @cached_property
    def _kin(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for one, other in self.far:
            found.setdefault(one, set()).add(other)
            found.setdefault(other, set()).add(one)
        return {word: frozenset(others) for word, others in found.items()}


def count_words(passages: Iterable[Passage]) -> WordStatistics:
    """Count words, then pairs; `passages` must be iterable twice."""
    counts: Counter[str] = Counter()
    for one in passages:
        for text in one.texts:
            counts.update(words_of(text))
    known = {word for word, count in counts.most_common(MAX_VOCABULARY) if count >= MIN_COUNT}
    near: Counter[Pair] = Counter()
    far: Counter[Pair] = Counter()
    sides: tuple[Counter[str], Counter[str]] = (
        Counter(),
        Counter(),
    )  # first, and second, texts with a word
    across: Counter[Pair] = Counter()
    both = 0
    for one in passages:
        rows = [words_of(text) for text in one.texts]
        for row in rows:
            near.update(_pairs_within(row, known, NEAR))
            far.update(_pairs_within(["" if is_function(word) else word for word in row], known, FAR))
        if len(rows) == 2:
            both += 1
            across.update(_pairs_across(rows, known, sides))
    total = max(1, counts.total())

    def expected_within(reach: int) -> Callable[[str, str], float]:
        return lambda one, other: counts[one] * counts[other] * 2 * reach / total

    def expected_across(one: str, other: str) -> float:
        first, second = sides
        return (first[one] * second[other] + first[other] * second[one]) / max(1, both)

    return WordStatistics(
        counts,
        _strong_pairs(near, expected_within(NEAR)),
        _strong_pairs(far, expected_within(FAR)) | _strong_pairs(across, expected_across),
    )


def words_of(text: str) -> list[str]:
    """Words, lower-cased, without punctuation."""
    found = (text[a:b].lower() for a, b in tokenize_words(text))
    return [word for word in found if any(sign.isalnum() for sign in word)]


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """A word without its English suffixes: walks, walked and walking are walk. Short words are unchanged."""
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


def _pairs_within(row: Sequence[str], known: set[str], reach: int) -> Iterator[Pair]:
    """All pairs of different known words within reach of each other."""
    for at, word in enumerate(row):
        if word in known:
            for other in row[at + 1 : at + 1 + reach]:
                if other in known and other != word:
                    yield _pair(word, other)


def _pairs_across(rows: Sequence[Sequence[str]], known: set[str], sides: Sequence[Counter[str]]) -> Iterator[Pair]:
    """All pairs of different open-class words of two texts, one of each."""
    found = [{word for word in row[:PAIR_WORDS] if word in known and not is_function(word)} for row in rows]
    for words, side in zip(found, sides, strict=True):
        side.update(words)
    for one in found[0]:
        for other in found[1] - {one}:
            yield _pair(one, other)


def _strong_pairs(pairs: Counter[Pair], expected: Callable[[str, str], float]) -> dict[Pair, float]:
    """PMI of the pairs that co-occur significantly more often than by chance."""
    return {pair: log(count / expected(*pair)) for pair, count in pairs.items() if _is_strong(count, expected(*pair))}


def _is_strong(count: int, expected: float) -> bool:
    if count < MIN_PAIR_COUNT or not expected or count <= expected:
        return False
    pmi = log(count / expected)
    return pmi >= MIN_PMI and 2 * (count * pmi - (count - expected)) >= MIN_LOG_LIKELIHOOD
