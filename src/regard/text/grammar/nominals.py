"""Noun phrases drawn by chance: names, nouns with their adjectives, and which article they take."""

from __future__ import annotations

from regard.text.grammar import names
from regard.text.grammar import particles as small
from regard.text.grammar.chance import Draw
from regard.text.grammar.entries import Noun
from regard.text.grammar.particles import Pronoun
from regard.text.grammar.phrases import Phrase, define, describe, determine, head_of, indefinite, own, proper, titled
from regard.text.grammar.tokens import DE, LA, LE, Answer, Spot


def name(draw: Draw) -> Phrase:
    """Paul, or Ms. Belmond: the same in both languages."""
    feminine = draw.random() < 0.5
    if draw.families is names.FAMILIES and draw.random() < 0.5:
        english, french = proper(draw.pick(names.WOMEN if feminine else names.MEN))
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
