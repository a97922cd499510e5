"""English morphology: plurals, verb forms, comparatives, and which words take *an*."""

from __future__ import annotations

from typing import NamedTuple

from regard.text.grammar.nouns import ENGLISH_PLURALS
from regard.text.grammar.verbs import DOUBLED, ENGLISH

SHORT_VOWELS = frozenset("big sad thin fat hot wet red".split())


class EnglishVerbForms(NamedTuple):
    """The forms of an English verb: eat, eats, ate, eaten, eating."""

    base: str
    third: str
    past: str
    participle: str
    ing: str


def begins_with_vowel(word: str) -> bool:
    """Whether the article before a word is *an*: by its sound, as far as the lexicon goes."""
    if word.startswith(("uni", "use", "euro", "one")):
        return False
    return word[0].lower() in "aeiou" or word.startswith(("honest", "hour"))


def plural(noun: str) -> str:
    """
    >>> plural("baby"), plural("box"), plural("wolf"), plural("apple tree")
    ('babies', 'boxes', 'wolves', 'apple trees')
    """
    head, _, last = noun.rpartition(" ")
    return f"{head} {_plural(last)}" if head else _plural(last)


def _plural(noun: str) -> str:
    if noun in ENGLISH_PLURALS:
        return ENGLISH_PLURALS[noun]
    return _with_s(noun)


def _with_s(word: str) -> str:
    if word.endswith(("s", "x", "z", "ch", "sh")) or word in ("go", "do", "tomato", "potato"):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"


def conjugate(base: str) -> EnglishVerbForms:
    """
    >>> conjugate("stop")
    EnglishVerbForms(base='stop', third='stops', past='stopped', participle='stopped', ing='stopping')
    """
    past, participle = _PAST.get(base) or (_regular_past(base),) * 2
    third = {"be": "is", "have": "has"}.get(base) or _with_s(base)
    return EnglishVerbForms(base, third, past, participle, _ing(base))


def _regular_past(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return (base + base[-1] if base in DOUBLED else base) + "ed"


def _ing(base: str) -> str:
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base.endswith("e") and not base.endswith(("ee", "oe")) and base != "be":
        return base[:-1] + "ing"
    return (base + base[-1] if base in DOUBLED else base) + "ing"


def comparative(adjective: str) -> str:
    """
    >>> comparative("happy"), comparative("big"), comparative("wise"), comparative("strong")
    ('happier', 'bigger', 'wiser', 'stronger')
    """
    if adjective.endswith("e"):
        return adjective + "r"
    if adjective.endswith("y") and len(adjective) > 3:
        return adjective[:-1] + "ier"
    return (adjective + adjective[-1] if adjective in SHORT_VOWELS else adjective) + "er"


_PAST = {
    base: (past, participle)
    for base, past, participle in (entry.split() for entry in ENGLISH.replace("\n", ", ").split(", ") if entry.strip())
}
