"""Noun phrases: described, counted and owned nouns; subjects and objects; places with their prepositions."""

from __future__ import annotations

from regard.text.grammar import nouns, particles as small
from regard.text.grammar.lexicon import Noun
from regard.text.grammar.particles import Pronoun
from regard.text.grammar.phrases import (
    Phrase,
    both,
    define,
    describe,
    determine,
    head_of,
    indefinite,
    own,
    pronoun,
    proper,
    spots_of,
    titled,
)
from regard.text.grammar.rng import Draw
from regard.text.grammar.tokens import DE, LA, LE, A, Answer, Spot


def name(draw: Draw) -> Phrase:
    """Paul, or Ms. Belmond: the same in both languages."""
    feminine = draw.random() < 0.5
    if draw.families is nouns.FAMILIES and draw.random() < 0.5:
        english, french = proper(draw.pick(nouns.WOMEN if feminine else nouns.MEN))
        spot: Spot = [english, 0]
        return Phrase([spot], [(french, (spot,))], feminine, False)
    return titled(draw.pick(draw.families), feminine)


def noun_phrase(
    draw: Draw, noun: Noun, owner: Pronoun | None = None, plain: float = 0.62, subject: bool = False
) -> Phrase:
    """A noun with an article, perhaps adjectives. `owner`: whose it may be; `plain`: how often no adjective comes."""
    chance = draw.random()
    plural = noun.plural_only or (not noun.mass and chance < 0.28 and noun.kind not in ("kin", "sky"))
    phrase = described(draw, noun, plural, plain)
    if noun.mass:
        _mass_article(draw, phrase, owner)
    elif noun.kind == "sky":
        define(phrase)
    elif noun.kind == "kin" and draw.random() < 0.8:
        own(phrase, owner if owner is not None else draw.pick(small.PERSONS))
    elif plural:
        _plural_article(draw, phrase, owner, subject)
    else:
        _singular_article(draw, phrase, owner, subject)
    draw.said(phrase.spots)
    return phrase


def described(draw: Draw, noun: Noun, plural: bool, plain: float) -> Phrase:
    """The noun with its adjectives, still without an article."""
    spots = [[word, 0] for word in noun.english[plural]]
    its = tuple(spots)
    answers: list[Answer] = [(word, its) for word in noun.french[plural]]
    phrase = Phrase(spots, answers, noun.feminine, plural)
    phrase.noun = noun
    choices = draw.lexicon.adjectives[noun.kind] if draw.random() > plain else None
    if choices:
        first = draw.pick(choices)
        if draw.random() < 0.15:
            second = draw.pick(choices)
            if (
                second.before != first.before
            ):  # a small black cat, un petit chat noir: the trailing one is nearer in English
                trailing, leading = (second, first) if first.before else (first, second)
                describe(phrase, trailing)
                describe(phrase, leading)
                return phrase
        # très vieux, never extrêmement vieux, before a noun; and pauvre and nouveau mean something else there
        if first.graded and first.english.form not in ("poor", "new") and draw.random() < 0.08:
            describe(phrase, first, draw.lexicon.degree[0] if first.before else draw.lexicon.degree[-1])
        else:
            describe(phrase, first)
    return phrase


def _mass_article(draw: Draw, phrase: Phrase, owner: Pronoun | None) -> None:
    chance = draw.random()
    if chance < 0.4:
        define(phrase)
    elif chance < 0.85:  # some bread, du pain; bread, du pain
        spot: Spot = [small.SOME, 0]
        its: tuple[Spot, ...] = (spot,)
        if chance < 0.65:
            phrase.spots.insert(0, spot)
        else:
            its = head_of(phrase)
        phrase.answers[:0] = [(DE, its), (LA if phrase.feminine else LE, its)]
        phrase.article = 2
    elif owner is not None:
        own(phrase, owner)
    else:
        determine(phrase, small.THIS, small.CETTE if phrase.feminine else small.CE)


def _singular_article(draw: Draw, phrase: Phrase, owner: Pronoun | None, subject: bool) -> None:
    chance = draw.random()
    if chance < 0.46:
        define(phrase)
    elif chance < 0.70:
        indefinite(phrase)
    elif chance < 0.84 and _can_be_owned(phrase):
        own(phrase, owner if owner is not None else draw.pick(small.PERSONS))
    elif chance < 0.93:
        determine(phrase, small.THIS, small.CETTE if phrase.feminine else small.CE)
    elif chance < 0.97 and subject:
        determine(phrase, small.EVERY, small.CHAQUE)
    else:  # another, un autre
        spot: Spot = [small.ANOTHER, 0]
        phrase.spots.insert(0, spot)
        phrase.answers[:0] = [(small.UNE if phrase.feminine else small.UN, (spot,)), (small.AUTRE, (spot,))]
        phrase.article = 1


def _can_be_owned(phrase: Phrase) -> bool:
    """My woman would be ma femme, which is my wife."""
    return phrase.noun is None or phrase.noun.english[0][0].form not in ("man", "woman", "boy", "girl", "lady")


def _plural_article(draw: Draw, phrase: Phrase, owner: Pronoun | None, subject: bool) -> None:
    chance = draw.random()
    if chance < 0.42:
        define(phrase)
    elif chance < 0.58 and not subject:
        indefinite(phrase)
    elif chance < 0.70 and _can_be_owned(phrase):
        own(phrase, owner if owner is not None else draw.pick(small.PERSONS))
    elif chance < 0.79:
        determine(phrase, small.THESE, small.CES)
    elif chance < 0.89:
        number, nombre = draw.pick(small.NUMBERS)
        determine(phrase, number, nombre)
    elif chance < 0.93:
        determine(phrase, small.SEVERAL, small.PLUSIEURS)
    elif chance < 0.96:  # all the, tous les
        define(phrase)
        determine(phrase, small.ALL, small.TOUTES if phrase.feminine else small.TOUS)
    else:  # many, beaucoup de
        spot: Spot = [small.MANY, 0]
        phrase.spots.insert(0, spot)
        phrase.answers[:0] = [(small.BEAUCOUP, (spot,)), (DE, (spot,))]


def owned_by(draw: Draw, owner: Phrase, noun: Noun, plural: bool = False) -> Phrase:
    """Paul's book, le livre de Paul: the order turns round."""
    phrase = described(draw, noun, plural, 0.8)
    mark: Spot = [small.S, 0]
    article = (small.ARTICLES[phrase.feminine + 2 * phrase.plural], (mark,))
    phrase.spots = [*owner.spots, mark, *phrase.spots]
    phrase.answers = [article, *phrase.answers, (DE, (mark,)), *owner.after(DE)]
    draw.said(phrase.spots)
    return phrase


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


def whereabouts(draw: Draw, motion: bool = False) -> tuple[list[Spot], list[Answer]]:
    """In the garden, at Paul's... : a place with its prepositions; with motion, the place one goes to."""
    chance = draw.random()
    if chance < 0.2:
        return _town(draw, motion)
    if chance < 0.3:
        return _country(draw, motion)
    within, dans, noun = draw.pick(draw.lexicon.places)
    phrase = described(draw, noun, False, 0.75)
    define(phrase)
    if not motion and chance > 0.8:
        return beside(draw, phrase)
    spot: Spot = [small.TOWARDS if motion else within, 0]
    draw.said([spot, *phrase.spots])
    return [spot, *phrase.spots], [(dans, (spot,)), *phrase.answers]


def beside(draw: Draw, phrase: Phrase) -> tuple[list[Spot], list[Answer]]:
    """Near the river, près de la rivière."""
    english, french = draw.pick(small.BESIDE)
    spots = spots_of(english)
    its = tuple(spots)
    return spots + phrase.spots, [(word, its) for word in french] + phrase.after(french[-1])


def _town(draw: Draw, motion: bool) -> tuple[list[Spot], list[Answer]]:
    english, french = proper(draw.pick(draw.towns))
    spots: list[Spot] = [[small.TOWARDS if motion else small.IN, 0], [english, 0]]
    return spots, [(A, (spots[0],)), (french, (spots[1],))]


def _country(draw: Draw, motion: bool) -> tuple[list[Spot], list[Answer]]:
    country, pays, feminine = draw.pick(draw.lexicon.countries)
    spots: list[Spot] = [[small.TOWARDS if motion else small.IN, 0], [country, 0]]
    within: list[Answer] = (
        [(small.EN, (spots[0],))] if feminine or pays.vowel else [(A, (spots[0],)), (LE, (spots[0],))]
    )
    return spots, [*within, (pays, (spots[1],))]
