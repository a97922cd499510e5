"""Noun phrases in both languages: what they are made of, and what others must know to agree with them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from regard.text.grammar import particles as small
from regard.text.grammar.lexicon import Adjective, Fixed, Noun
from regard.text.grammar.particles import Pronoun
from regard.text.grammar.tokens import DE, Answer, Spot, Word, en, fr

MISTER, MISS = (en("Mr.", "NOUN"), fr("M.", "NOUN")), (en("Ms.", "NOUN"), fr("Mme", "NOUN"))


class Phrase:
    """A noun phrase in both languages, with what others must know to agree with it."""

    article = 0  # how many French words its indefinite article has; after a negation de stands for them
    noun: Noun | None = None
    pronoun: Pronoun | None = None  # set where the phrase is nothing but a pronoun

    def __init__(self, spots: list[Spot], answers: list[Answer], feminine: bool, plural: bool, person: int = 2) -> None:
        self.spots, self.answers, self.feminine, self.plural = spots, answers, feminine, plural
        self.person = 5 if plural and person == 2 else person

    @property
    def human(self) -> bool:
        if self.noun is None:
            return self.pronoun is None or self.pronoun.subject is not small.IT.subject
        return self.noun.kind in ("person", "kin")

    @property
    def several(self) -> bool:
        """Whether it is two phrases: Paul and Marie."""
        return self.plural and self.noun is None and self.pronoun is None

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
        self.many()
        if not self.article:
            return self.answers
        if self.spots[0][0] is small.SOME:
            self.spots[0][0] = small.ANY
        return [(DE, self.answers[0][1]), *self.answers[self.article :]]

    def many(self) -> None:
        """Under a negation several turns into many: ne voit pas beaucoup de chats."""
        if self.spots[0][0] is small.SEVERAL:
            self.spots[0][0] = small.MANY
            its = self.answers[0][1]
            self.answers = [(small.BEAUCOUP, its), (DE, its), *self.answers[1:]]

    def in_general(self) -> None:
        """What one likes or hates as such: likes soup, aime la soupe; never likes a soup."""
        if not self.article:
            return
        spot = self.spots[0]
        if spot[0] is small.SOME:
            self.spots = self.spots[1:]
        elif spot[0] is small.AN or spot[0] is small.ANOTHER:
            spot[0] = small.THE
        its = head_of(self) if spot[0] is small.SOME else self.answers[0][1]
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


def both(first: Phrase, second: Phrase) -> Phrase:
    """A and B; masculine unless both are feminine."""
    link: Spot = [small.AND, 0]
    return Phrase(
        [*first.spots, link, *second.spots],
        [*first.answers, (small.ET, (link,)), *second.answers],
        first.feminine and second.feminine,
        True,
    )


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
        phrase.answers.insert(0, (article, head_of(phrase)))
    phrase.article = 1


def head_of(phrase: Phrase) -> tuple[Spot, ...]:
    """The spots of the noun itself, which an article that English lacks answers to."""
    return next(its for word, its in phrase.answers if word.tag == "NOUN")
