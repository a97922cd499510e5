"""Words on their way into a sentence pair, and what happens where they meet: elision, contraction, a or an.

An English word in the making is a spot, `[word, place]`, so that it can be found again once its place is known. A
French word in the making is `(word, spots)`: the word and the English ones it answers to. Rules put both into the order
of their language; `finish` counts the places, joins what has to be joined, and reads the links off.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from regard.text.examples import Links
from regard.text.grammar import english, french


class Word(NamedTuple):
    """A form: how it is written, its part of speech, its lemma, and what happens to it before a vowel."""

    form: str
    tag: str
    lemma: str
    vowel: bool  # does it begin with a vowel, so that the word before it must know
    before_vowel: str | None = None  # l' for le, an for a, bel for beau


Spot = list[Any]  # [word, place]
Spots = tuple[Spot, ...]
Answer = tuple[Word, Spots]


class Sentence(NamedTuple):
    """An English sentence and a French one, word by word, with who answers to whom."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: Links
    source_words: tuple[Word, ...]
    target_words: tuple[Word, ...]


def en(form: str, tag: str, lemma: str | None = None, before_vowel: str | None = None) -> Word:
    return Word(form, tag, lemma or form, english.begins_with_vowel(form), before_vowel)


def fr(form: str, tag: str, lemma: str | None = None, before_vowel: str | None = None) -> Word:
    return Word(form, tag, lemma or form, french.begins_with_vowel(form), before_vowel)


# The French words that meet their neighbours. An article contracts with à and de; the pronoun le does not (à le voir).
LE, LA, LES = fr("le", "DET", "le", "l'"), fr("la", "DET", "le", "l'"), fr("les", "DET", "le")
DE, A = fr("de", "ADP", "de", "d'"), fr("à", "ADP")
CONTRACTED = {
    ("de", "le"): fr("du", "ADP", "de"),
    ("de", "les"): fr("des", "ADP", "de"),
    ("à", "le"): fr("au", "ADP", "à"),
    ("à", "les"): fr("aux", "ADP", "à"),
}
FULL_STOP, QUESTION_MARK, COMMA = (Word(sign, "PUNCT", sign, False) for sign in ".?,")


def finish(spots: list[Spot], answers: list[Answer]) -> Sentence:
    """Turn the two word orders into a sentence pair."""
    for place, spot in enumerate(spots):
        spot[1] = place
    words = [answer[0] for answer in answers]
    meeting = [  # places of articles that stand behind a preposition, unless they are elided: du pain, but de l'eau
        place
        for place, word in enumerate(words)
        if (word is LES or (word is LE and not words[place + 1].vowel))
        and (words[place - 1] is DE or words[place - 1] is A)
    ]
    if meeting:
        answers = _contracted(answers, meeting)
        words = [word for word, _ in answers]
    links = [(spot[1], place) for place, answer in enumerate(answers) for spot in answer[1]]
    links.sort()
    source_words = [spot[0] for spot in spots]
    return Sentence(_written(source_words), _written(words), tuple(links), tuple(source_words), tuple(words))


def _contracted(answers: list[Answer], places: list[int]) -> list[Answer]:
    """The words with these articles drawn into the prepositions before them: du, au, des, aux."""
    said = list(answers)
    for place in reversed(places):
        (before, its), (article, others) = said[place - 1 : place + 1]
        both = its + tuple([spot for spot in others if spot not in its])
        said[place - 1 : place + 1] = [(CONTRACTED[before.form, article.form], both)]
    return said


def _written(words: list[Word]) -> tuple[str, ...]:
    """The forms as they stand, each knowing the word after it; the first one with a capital."""
    written = [word[0] for word in words]
    changes = [word[4] for word in words]
    if any(changes):
        for place, changed in enumerate(changes):
            if changed is not None and words[place + 1][3]:  # no such word ends a sentence
                written[place] = changed
    first = written[0]
    written[0] = first[0].upper() + first[1:]
    return tuple(written)
