"""Entries of the lexicon: a noun, an adjective, a verb or an expression with all its forms in both languages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from regard.text.grammar import adjectives, english, french, verbs
from regard.text.grammar.particles import TAG_OF
from regard.text.grammar.tokens import DE, A, Word, en, fr

Phrase = tuple[Word, ...]


class Noun(NamedTuple):
    english: tuple[Phrase, Phrase]  # singular, plural
    french: tuple[Phrase, Phrase]
    feminine: bool
    kind: str
    mass: bool
    plural_only: bool = False


class Adjective(NamedTuple):
    english: Word
    comparative: tuple[Word, ...]  # happier, or more famous
    french: tuple[Phrase, Phrase, Phrase, Phrase]  # masculine, feminine, their plurals
    leading: tuple[Phrase, Phrase, Phrase, Phrase]  # the same before a noun: bel arbre
    better: tuple[Phrase, Phrase, Phrase, Phrase] | None  # meilleur, where it is not plus ...
    before: bool
    graded: bool  # very old, but not very wooden


class Verb(NamedTuple):
    base: Word
    third: Word
    past: Word
    participle: Word
    ing: Word
    particles: Phrase  # look *for*
    present: Phrase  # six persons
    imperfect: Phrase
    future: Phrase
    infinitive: Word
    participles: Phrase  # masculine, feminine, their plurals
    tail: Phrase  # avoir *besoin*
    preposition: Word | None  # obéir *à*
    reflexive: bool
    etre: bool
    going_on: bool  # it has a progressive
    state: bool  # its simple past is an imparfait
    motion: bool  # goes to a place rather than being there
    away: bool  # leads away from a place, so none is named
    separable: bool  # put it on
    shifts: bool  # gives somebody something, or only something to somebody
    lemma: str


class Fixed(NamedTuple):
    """An expression that never changes, and for each French word the English ones it answers to."""

    english: Phrase
    french: Phrase
    answers: tuple[tuple[int, ...], ...]


def make_noun(english_noun: str, french_noun: str, gender: str, kind: str) -> Noun:
    french_noun, _, own = french_noun.partition("/")
    gender = own or gender
    plurals = english.plural(english_noun), french.plural(french_noun)
    shown = [tuple(en(word, "NOUN", english_noun) for word in form.split()) for form in (english_noun, plurals[0])]
    return Noun(
        (shown[0], shown[1]),
        (_french_noun(french_noun), _french_noun(plurals[1])),
        "f" in gender,
        kind.rstrip("*"),
        kind.endswith("*"),
        "p" in gender,
    )


def _french_noun(text: str) -> Phrase:
    words = list(_split(text))
    small = {"de": DE, "d'": DE, "à": A}
    return tuple([small.get(word) or fr(word, "NOUN", text) for word in words])


def make_adjective(english_one: str, french_one: str, before: bool) -> Adjective:
    long = french_one.endswith("+")
    french_one = french_one.rstrip("+")
    better, meilleur = adjectives.COMPARED.get(english_one, (None, None))
    word = en(english_one, "ADJ")
    more = (en("more", "ADV"), word) if long else (en(better or english.comparative(english_one), "ADJ", english_one),)
    forms = french.agreed(french_one)
    return Adjective(
        word,
        more,
        _agreed(forms, french_one),  # type: ignore[arg-type]
        _agreed(forms, french_one, adjectives.BEFORE_VOWEL.get(french_one)),  # type: ignore[arg-type]
        _agreed(french.agreed(meilleur), meilleur) if meilleur else None,  # type: ignore[arg-type]
        before,
        english_one not in adjectives.ABSOLUTE,
    )


def _agreed(words: tuple[str, str, str, str], lemma: str, before_vowel: str | None = None) -> tuple[Phrase, ...]:
    """The four forms; before a vowel only the masculine singular changes: vieil arbre, vieux arbres."""
    return tuple(
        tuple(
            fr(part, TAG_OF.get(part, "ADJ") if " " in form else "ADJ", lemma, before_vowel if which == 0 else None)
            for part in form.split()
        )
        for which, form in enumerate(words)
    )


def make_verb(english_one: str, french_one: str) -> Verb:
    bare = french_one.rstrip("!~<>-")
    marks = french_one[len(bare) :]
    reflexive = bare.startswith(("se ", "s'"))
    head, *tail = _split(bare.removeprefix("se ").removeprefix("s'"))
    preposition = {"à": A, "de": DE, "dans": fr("dans", "ADP")}.get(tail[-1]) if tail else None
    tail = tail[:-1] if preposition else tail
    first, *particles = english_one.split()
    said, dit = english.conjugate(first), french.conjugate(head)
    tag = "VERB"
    base, third, past, participle, ing = (en(form, tag, english_one) for form in said)
    return Verb(
        base,
        third,
        past,
        participle,
        ing,
        tuple(en(particle, TAG_OF[particle]) for particle in particles),
        tuple(fr(form, tag, bare) for form in dit.present),
        tuple(fr(form, tag, bare) for form in dit.imperfect),
        tuple(fr(form, tag, bare) for form in dit.future),
        fr(dit.infinitive, tag, bare),
        tuple(fr(form, tag, bare) for form in french.agreed(dit.participle)),
        tuple(fr(word, TAG_OF[word], bare) for word in tail),
        preposition,
        reflexive,
        reflexive or head in verbs.WITH_ETRE,
        "!" not in marks and "~" not in marks,
        "!" in marks,
        ">" in marks,
        "<" in marks,
        english_one in verbs.SEPARABLE,
        "-" not in marks,
        bare,
    )


def make_expression(english_one: str, french_one: str, tag: str) -> Fixed:
    french_one, _, which = french_one.partition("/")
    said = tuple(en(word, TAG_OF.get(word, tag), word) for word in english_one.split())
    dit = tuple(fr(word, TAG_OF.get(word, tag), word) for word in _split(french_one))
    groups = which.split(".") if "." in which else list(which)
    answers = tuple(tuple(map(int, group)) for group in groups) if which else (tuple(range(len(said))),) * len(dit)
    return Fixed(said, dit, answers)


def _split(text: str) -> Iterator[str]:
    """The words of an expression: l'année is two of them, aujourd'hui is one."""
    for part in text.split():
        head, mark, rest = part.partition("'")
        if mark and rest and head in ("l", "d", "s", "qu", "n"):
            yield head + mark
            yield rest
        else:
            yield part
