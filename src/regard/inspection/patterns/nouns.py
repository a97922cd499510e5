"""Which words are nouns or names, guessed without a tagger: by capitals, by endings, by what stands around them.

How often the guess is right is measured on the built-in grammar, which knows (`judged`); docs/atlas.md has the figures.
Tags that somebody has are better: `Passage.nouns`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from regard.inspection.patterns.passages import NOUNS
from regard.text.examples import Tagged

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
    """Whether a word, in small letters, belongs to a closed class: articles, prepositions, pronouns, auxiliaries."""
    return word in FUNCTION


def nouns(words: Sequence[str]) -> list[bool]:
    """For each word of a text, as it stands, whether it is taken for a noun or a name.

    A capital inside a sentence; an ending such as -tion; and in a run of open words behind a determiner or a
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
    """Stretches of open words, without function words and punctuation."""
    start = None
    for at in range(len(words) + 1):
        open_ = at < len(words) and words[at].lower() not in FUNCTION and any(sign.isalpha() for sign in words[at])
        if open_ and start is None:
            start = at
        elif not open_ and start is not None:
            yield start, at
            start = None


def _head(words: Sequence[str], start: int, stop: int) -> int:
    """The noun of a run: the last word, unless that looks like a verb or an adverb, or agrees as one with what stands
    before it (the dentist cuts)."""
    last = stop - 1
    while last > start and words[last].lower().endswith(_ADVERBIAL):
        last -= 1
    if last == start:
        return last
    word, before = words[last].lower(), words[last - 1].lower()
    agrees = word.endswith("s") and not word.endswith("ss") and not before.endswith("s")
    return last - 1 if word.endswith(_VERBAL) or agrees else last


class Judged(NamedTuple):
    """How right a rule is: of what it took for nouns and names, so many are; of those there are, it found so many."""

    precision: float
    recall: float
    words: int


def judged(sentences: Iterable[Tagged]) -> Judged:
    """The rule on sentences whose tags are known."""
    right = taken = there = words = 0
    for sentence in sentences:
        for guess, tag in zip(nouns(sentence.words), sentence.tags, strict=True):
            noun = tag.startswith(NOUNS)
            right, taken, there, words = right + (guess and noun), taken + guess, there + noun, words + 1
    return Judged(right / max(1, taken), right / max(1, there), words)
