"""Noun phrases and what goes with them: articles, adjectives, owners, names, places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import TypeVar

from regard.text.grammar import names
from regard.text.grammar import particles as small
from regard.text.grammar.lexicon import Adjective, Fixed, Lexicon, Noun, lexicon
from regard.text.grammar.particles import Pronoun
from regard.text.grammar.tokens import DE, LA, LE, A, Answer, Spot, Word, en, fr

Thing = TypeVar("Thing")
MISTER, MISS = (en("Mr.", "NOUN"), fr("M.", "NOUN")), (en("Ms.", "NOUN"), fr("Mme", "NOUN"))


class Phrase:
    """A noun phrase in both languages, with what others must know to agree with it."""

    __slots__ = ("answers", "article", "feminine", "noun", "person", "plural", "pronoun", "spots")

    def __init__(self, spots: list[Spot], answers: list[Answer], feminine: bool, plural: bool, person: int = 2) -> None:
        self.spots, self.answers, self.feminine, self.plural = spots, answers, feminine, plural
        self.person = 5 if plural and person == 2 else person
        self.article = 0  # how many French words its indefinite article has; after a negation de stands for them
        self.noun: Noun | None = None
        self.pronoun: Pronoun | None = None  # set where the phrase is nothing but a pronoun

    @property
    def human(self) -> bool:
        if self.noun is None:
            return self.pronoun is None or self.pronoun.subject is not small.IT.subject
        return self.noun.kind in ("person", "kin")

    @property
    def stands_for(self) -> Pronoun:
        """The pronoun that takes the place of this phrase when it comes up again."""
        if self.pronoun is not None:
            return self.pronoun
        if self.plural:
            return small.THEY_F if self.feminine else small.THEY
        if self.human:
            return small.SHE if self.feminine else small.HE
        return small.IT_F if self.feminine else small.IT

    def after_negation(self) -> list[Answer]:
        """The French words as a direct object after ne ... pas: un, une, des, du turn into de. English says any."""
        if not self.article:
            return self.answers
        if self.spots[0][0] is small.SOME:
            self.spots[0][0] = small.ANY
        return [(DE, self.answers[0][1]), *self.answers[self.article :]]

    def in_general(self) -> None:
        """What one likes or hates as such: likes soup, aime la soupe; never likes a soup."""
        if not self.article:
            return
        spot = self.spots[0]
        if spot[0] is small.SOME:
            self.spots = self.spots[1:]
        elif spot[0] is small.AN or spot[0] is small.ANOTHER:
            spot[0] = small.THE
        its = _head(self) if spot[0] is small.SOME else self.answers[0][1]
        again = 2 if self.answers[1][0] is small.AUTRE else self.article
        definite = (small.ARTICLES[self.feminine + 2 * self.plural], its)
        self.answers, self.article = [definite, *self.answers[again:]], 0

    def after(self, preposition: Word) -> list[Answer]:
        """The French words after a preposition; de swallows the plural and partitive article: besoin de pommes."""
        if (
            preposition is DE
            and self.article
            and self.answers[0][0] is not small.UN
            and self.answers[0][0] is not small.UNE
        ):
            return self.answers[self.article :]
        return self.answers


class Draw:
    """Where chance comes from: every decision of the grammar is one number of this sequence."""

    __slots__ = ("families", "lexicon", "pick", "random", "towns")

    def __init__(self, seed: str, unseen: bool = False) -> None:
        random = Random(seed).random

        def pick(choices: Sequence[Thing]) -> Thing:
            return choices[int(random() * len(choices))]

        self.random: Callable[[], float] = random
        self.pick = pick
        self.lexicon: Lexicon = lexicon()
        self.families = names.UNSEEN_FAMILIES if unseen else names.FAMILIES
        self.towns = names.UNSEEN_TOWNS if unseen else names.TOWNS


def spots_of(words: Sequence[Word]) -> list[Spot]:
    return [[word, 0] for word in words]


def fixed(expression: Fixed) -> tuple[list[Spot], list[Answer]]:
    """An expression that never changes, as words in the making."""
    spots = spots_of(expression.english)
    answers = [
        (word, tuple([spots[i] for i in which]))
        for word, which in zip(expression.french, expression.answers, strict=True)
    ]
    return spots, answers


def pronoun(who: Pronoun) -> Phrase:
    spot: Spot = [who.subject, 0]
    phrase = Phrase([spot], [(who.french, (spot,))], who.feminine, who.plural, who.person)
    phrase.pronoun = who
    return phrase


def name(draw: Draw) -> Phrase:
    """Paul, or Ms. Belmond: the same in both languages."""
    feminine = draw.random() < 0.5
    if draw.families is names.FAMILIES and draw.random() < 0.5:
        english, french = proper(draw.pick(names.WOMEN if feminine else names.MEN))
        spot: Spot = [english, 0]
        return Phrase([spot], [(french, (spot,))], feminine, False)
    return titled(draw.pick(draw.families), feminine)


@cache
def proper(form: str) -> tuple[Word, Word]:
    """A name in either language."""
    return en(form, "PROPN"), fr(form, "PROPN")


def titled(family: str, feminine: bool) -> Phrase:
    title, titre = MISS if feminine else MISTER
    english, french = proper(family)
    spots: list[Spot] = [[title, 0], [english, 0]]
    answers: list[Answer] = [(titre, (spots[0],)), (french, (spots[1],))]
    return Phrase(spots, answers, feminine, False)


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
            ):  # a small black cat: the trailing French one stands next to the English noun
                trailing, leading = (second, first) if first.before else (first, second)
                describe(phrase, trailing)
                describe(phrase, leading)
                return phrase
        if (
            first.graded and draw.random() < 0.08
        ):  # a long adverb would not stand before a noun: très vieux, never extrêmement
            describe(phrase, first, draw.lexicon.degree[0] if first.before else draw.lexicon.degree[-1])
        else:
            describe(phrase, first)
    return phrase


def describe(phrase: Phrase, adjective: Adjective, degree: Fixed | None = None) -> None:
    """Put an adjective to a phrase that has no article yet."""
    spot: Spot = [adjective.english, 0]
    which = phrase.feminine + 2 * phrase.plural
    forms = adjective.leading[which] if adjective.before else adjective.french[which]
    spots: list[Spot] = [spot]
    answers: list[Answer] = [(word, (spot,)) for word in forms]
    if degree is not None:
        more, plus = fixed(degree)
        spots, answers = more + spots, plus + answers
    phrase.spots = spots + phrase.spots
    phrase.answers = answers + phrase.answers if adjective.before else phrase.answers + answers


def determine(phrase: Phrase, english: Word, french: Word) -> None:
    spot: Spot = [english, 0]
    phrase.spots.insert(0, spot)
    phrase.answers.insert(0, (french, (spot,)))


def define(phrase: Phrase) -> None:
    """the, le, la, les."""
    determine(phrase, small.THE, small.ARTICLES[phrase.feminine + 2 * phrase.plural])


def own(phrase: Phrase, owner: Pronoun) -> None:
    """my, mon, ma, mes: English agrees with the owner, French with what is owned."""
    determine(phrase, owner.owner, owner.owned[phrase.feminine + 2 * phrase.plural])


def indefinite(phrase: Phrase) -> None:
    """a, un, une; in the plural nothing at all in English, des in French, and de before an adjective."""
    if not phrase.plural:
        determine(phrase, small.AN, small.UNE if phrase.feminine else small.UN)
    else:
        leading = phrase.answers[0]
        article = small.DES if leading[0].tag == "NOUN" else DE
        phrase.answers.insert(0, (article, _head(phrase)))
    phrase.article = 1


def _head(phrase: Phrase) -> tuple[Spot, ...]:
    """The spots of the noun itself, which an article that English lacks answers to."""
    return next(its for word, its in phrase.answers if word.tag == "NOUN")


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
            its = _head(phrase)
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
    elif chance < 0.84:
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


def _plural_article(draw: Draw, phrase: Phrase, owner: Pronoun | None, subject: bool) -> None:
    chance = draw.random()
    if chance < 0.42:
        define(phrase)
    elif chance < 0.58 and not subject:
        indefinite(phrase)
    elif chance < 0.70:
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
    return phrase


def both(first: Phrase, second: Phrase) -> Phrase:
    """A and B; masculine unless both are feminine."""
    link: Spot = [small.AND, 0]
    return Phrase(
        [*first.spots, link, *second.spots],
        [*first.answers, (small.ET, (link,)), *second.answers],
        first.feminine and second.feminine,
        True,
    )


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
