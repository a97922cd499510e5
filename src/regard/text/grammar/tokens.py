"""Word forms, slots and word alignments of a sentence pair; elision, contraction, and a or an.

While a pair is built, an English word is a slot `[word, position]`, filled with its position at the end, and a French
word is `(word, slots)`: the word and the English slots it aligns to. Rules put both into the order of their language;
`linearise` numbers the positions, applies elision and contraction, and reads off the word links.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from regard.text.examples import Links
from regard.text.grammar import english, french


class WordForm(NamedTuple):
    """A word form: spelling, part of speech, lemma, and its form before a vowel."""

    form: str
    tag: str
    lemma: str
    vowel: bool  # begins with a vowel, so that the word before it elides
    before_vowel: str | None = None  # l' for le, an for a, bel for beau


Slot = list[Any]  # [word, position]
Slots = tuple[Slot, ...]
AlignedWord = tuple[WordForm, Slots]


class SentencePair(NamedTuple):
    """An English sentence and its French translation, word by word, with word alignments."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: Links
    source_words: tuple[WordForm, ...]
    target_words: tuple[WordForm, ...]


def en(form: str, tag: str, lemma: str | None = None, before_vowel: str | None = None) -> WordForm:
    return WordForm(form, tag, lemma or form, english.begins_with_vowel(form), before_vowel)


def fr(form: str, tag: str, lemma: str | None = None, before_vowel: str | None = None) -> WordForm:
    return WordForm(form, tag, lemma or form, french.begins_with_vowel(form), before_vowel)


# French words that elide or contract. An article contracts with à and de; the pronoun le does not (à le voir).
LE, LA, LES = fr("le", "DET", "le", "l'"), fr("la", "DET", "le", "l'"), fr("les", "DET", "le")
DE, A = fr("de", "ADP", "de", "d'"), fr("à", "ADP")
CONTRACTIONS = {
    ("de", "le"): fr("du", "ADP", "de"),
    ("de", "les"): fr("des", "ADP", "de"),
    ("à", "le"): fr("au", "ADP", "à"),
    ("à", "les"): fr("aux", "ADP", "à"),
}
FULL_STOP, QUESTION_MARK, COMMA = (WordForm(sign, "PUNCT", sign, False) for sign in ".?,")


def linearise(slots: list[Slot], aligned: list[AlignedWord]) -> SentencePair:
    """The sentence pair, with links, of words in the order of each language."""
    for place, slot in enumerate(slots):
        slot[1] = place
    words = [word for word, _ in aligned]
    contracting = [  # positions of articles after a preposition, unless elided: du pain, but de l'eau
        place
        for place, word in enumerate(words)
        if (word is LES or (word is LE and not words[place + 1].vowel))
        and (words[place - 1] is DE or words[place - 1] is A)
    ]
    if contracting:
        aligned = _contract(aligned, contracting)
        words = [word for word, _ in aligned]
    links = [(slot[1], place) for place, (_, slots_of_word) in enumerate(aligned) for slot in slots_of_word]
    links.sort()
    source_words = [slot[0] for slot in slots]
    return SentencePair(_spell_out(source_words), _spell_out(words), tuple(links), tuple(source_words), tuple(words))


def _contract(aligned: list[AlignedWord], places: list[int]) -> list[AlignedWord]:
    """Contract these articles with the prepositions before them: du, au, des, aux."""
    contracted = list(aligned)
    for place in reversed(places):
        (before, sources), (article, others) = contracted[place - 1 : place + 1]
        both = sources + tuple([slot for slot in others if slot not in sources])
        contracted[place - 1 : place + 1] = [(CONTRACTIONS[before.form, article.form], both)]
    return contracted


def _spell_out(words: list[WordForm]) -> tuple[str, ...]:
    """The spellings, adapted to the next word (l', an); the first one with a capital."""
    written = [word[0] for word in words]
    changes = [word[4] for word in words]
    if any(changes):
        for place, changed in enumerate(changes):
            if changed is not None and words[place + 1][3]:  # no such word ends a sentence
                written[place] = changed
    first = written[0]
    written[0] = first[0].upper() + first[1:]
    return tuple(written)
