"""Who acts, and on what: subjects and objects drawn by kind."""

from __future__ import annotations

from regard.text.grammar import particles as small
from regard.text.grammar.chance import Draw
from regard.text.grammar.nominals import described, name, noun_phrase, owned_by
from regard.text.grammar.particles import Pronoun
from regard.text.grammar.phrases import Phrase, both, own, pronoun

PEOPLE = ("person", "person", "person", "kin")
OWNABLE = frozenset(("thing", "text", "vehicle", "craft", "garment", "building", "animal"))


def somebody(draw: Draw, newcomer: bool = False) -> Phrase:
    """A person who acts: a pronoun, a name, a noun phrase, or two of them.

    A newcomer to a sentence is not called he, she or they: one would take them for somebody already spoken of.
    """
    chance = draw.random()
    if chance < 0.27:
        return pronoun(draw.pick(small.SPEAKERS if newcomer else small.PERSONS))
    if chance < 0.46:
        return name(draw)
    if chance < 0.49:
        return both(*two_names(draw))
    if chance < 0.53:
        first = noun_phrase(draw, draw.pick(draw.lexicon.nouns["person"]), subject=True)
        return both(first, relative(draw, first.stands_for))
    if draw.pick(PEOPLE) == "kin":
        return relative(draw)
    return noun_phrase(draw, draw.pick(draw.lexicon.nouns["person"]), subject=True)


def two_names(draw: Draw) -> tuple[Phrase, Phrase]:
    first = name(draw)
    while True:
        second = name(draw)
        if second.spots[-1][0] is not first.spots[-1][0]:
            return first, second


def relative(draw: Draw, owner: Pronoun | None = None) -> Phrase:
    """my brother, or Paul's brother."""
    noun = draw.pick(draw.lexicon.nouns["kin"])
    if owner is None and draw.random() < 0.3:
        return owned_by(draw, name(draw), noun)
    phrase = described(draw, noun, False, 0.85)
    own(phrase, owner if owner is not None else draw.pick(small.PERSONS))
    draw.said(phrase.spots)
    return phrase


def something(draw: Draw, kinds: tuple[str, ...], subject: Phrase) -> Phrase:
    """An object of one of these kinds; what is owned belongs to the subject."""
    kind = draw.pick(kinds)
    if kind == "kin":
        return relative(draw, subject.stands_for)
    if kind == "person" and draw.random() < 0.35:
        return name(draw)
    noun = draw.pick(draw.lexicon.nouns[kind])
    if kind in OWNABLE and draw.random() < 0.08:
        return owned_by(draw, name(draw), noun, draw.random() < 0.3)
    return noun_phrase(draw, noun, subject.stands_for)


def other_than(draw: Draw, subject: Phrase) -> Pronoun:
    """A pronoun for somebody else than the subject: he sees me, I see her, never he sees him nor we see me."""
    while True:
        other = draw.pick(small.PERSONS)
        if other.person in (0, 3) and subject.person in (0, 3):
            continue
        if other.person != subject.person and {other.person, subject.person} != {2, 5}:
            return other
