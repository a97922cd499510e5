"""Noun phrases in both languages: their words, their articles, and the features that other words agree with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from regard.text.grammar import function_words as fw
from regard.text.grammar.function_words import Pronoun
from regard.text.grammar.lexicon import Adjective, FixedExpression, Noun
from regard.text.grammar.tokens import DE, AlignedWord, Slot, WordForm, en, fr

MISTER, MISS = (en("Mr.", "NOUN"), fr("M.", "NOUN")), (en("Ms.", "NOUN"), fr("Mme", "NOUN"))


class NounPhrase:
    """A noun phrase in both languages, with its agreement features: gender, number, person."""

    article = 0  # French words of its indefinite article, which de replaces under negation
    noun: Noun | None = None
    pronoun: Pronoun | None = None  # set where the phrase is a pronoun

    def __init__(
        self, slots: list[Slot], aligned: list[AlignedWord], feminine: bool, plural: bool, person: int = 2
    ) -> None:
        self.slots, self.aligned, self.feminine, self.plural = slots, aligned, feminine, plural
        self.person = 5 if plural and person == 2 else person

    @property
    def is_human(self) -> bool:
        if self.noun is None:
            return self.pronoun is None or self.pronoun.subject is not fw.IT.subject
        return self.noun.kind in ("person", "kin")

    @property
    def is_coordination(self) -> bool:
        """Whether it coordinates two phrases: Paul and Marie."""
        return self.plural and self.noun is None and self.pronoun is None

    @property
    def as_pronoun(self) -> Pronoun:
        """The pronoun that refers back to this phrase."""
        if self.pronoun is not None:
            return self.pronoun
        if self.plural:
            return fw.THEY_F if self.feminine else fw.THEY
        if self.is_human:
            return fw.SHE if self.feminine else fw.HE
        return fw.IT_F if self.feminine else fw.IT

    def after_negation(self) -> list[AlignedWord]:
        """The French words as a direct object after ne ... pas: un, une, des, du become de; English uses any."""
        self.several_to_many()
        if not self.article:
            return self.aligned
        if self.slots[0][0] is fw.SOME:
            self.slots[0][0] = fw.ANY
        return [(DE, self.aligned[0][1]), *self.aligned[self.article :]]

    def several_to_many(self) -> None:
        """Under negation several becomes many: ne voit pas beaucoup de chats."""
        if self.slots[0][0] is fw.SEVERAL:
            self.slots[0][0] = fw.MANY
            sources = self.aligned[0][1]
            self.aligned = [(fw.BEAUCOUP, sources), (DE, sources), *self.aligned[1:]]

    def make_generic(self) -> None:
        """The generic reading, as objects of like and hate have it: likes soup, aime la soupe; never likes a soup."""
        if not self.article:
            return
        slot = self.slots[0]
        if slot[0] is fw.SOME:
            self.slots = self.slots[1:]
        elif slot[0] is fw.AN or slot[0] is fw.ANOTHER:
            slot[0] = fw.THE
        sources = head_slots(self) if slot[0] is fw.SOME else self.aligned[0][1]
        skipped = 2 if self.aligned[1][0] is fw.AUTRE else self.article
        definite = (fw.ARTICLES[self.feminine + 2 * self.plural], sources)
        self.aligned, self.article = [definite, *self.aligned[skipped:]], 0

    def after_preposition(self, preposition: WordForm) -> list[AlignedWord]:
        """The French words after a preposition; de absorbs the plural and partitive article: besoin de pommes."""
        if preposition is DE and self.article and self.aligned[0][0] is not fw.UN and self.aligned[0][0] is not fw.UNE:
            return self.aligned[self.article :]
        return self.aligned


def slots_of(words: Sequence[WordForm]) -> list[Slot]:
    return [[word, 0] for word in words]


def fixed_phrase(expression: FixedExpression) -> tuple[list[Slot], list[AlignedWord]]:
    """The slots and aligned words of an invariable expression."""
    slots = slots_of(expression.english)
    aligned = [
        (word, tuple([slots[i] for i in which]))
        for word, which in zip(expression.french, expression.aligned, strict=True)
    ]
    return slots, aligned


def pronoun_phrase(who: Pronoun) -> NounPhrase:
    slot: Slot = [who.subject, 0]
    phrase = NounPhrase([slot], [(who.french, (slot,))], who.feminine, who.plural, who.person)
    phrase.pronoun = who
    return phrase


@cache
def proper_noun(form: str) -> tuple[WordForm, WordForm]:
    """A proper noun in either language."""
    return en(form, "PROPN"), fr(form, "PROPN")


def titled_name(family: str, feminine: bool) -> NounPhrase:
    title, titre = MISS if feminine else MISTER
    english, french = proper_noun(family)
    slots: list[Slot] = [[title, 0], [english, 0]]
    aligned: list[AlignedWord] = [(titre, (slots[0],)), (french, (slots[1],))]
    return NounPhrase(slots, aligned, feminine, False)


def coordinate(first: NounPhrase, second: NounPhrase) -> NounPhrase:
    """Coordination, A and B; masculine unless both are feminine."""
    link: Slot = [fw.AND, 0]
    return NounPhrase(
        [*first.slots, link, *second.slots],
        [*first.aligned, (fw.ET, (link,)), *second.aligned],
        first.feminine and second.feminine,
        True,
    )


def add_adjective(phrase: NounPhrase, adjective: Adjective, degree: FixedExpression | None = None) -> None:
    """Add an adjective to a phrase that has no article yet."""
    slot: Slot = [adjective.english, 0]
    which = phrase.feminine + 2 * phrase.plural
    forms = adjective.prenominal[which] if adjective.is_prenominal else adjective.french[which]
    slots: list[Slot] = [slot]
    aligned: list[AlignedWord] = [(word, (slot,)) for word in forms]
    if degree is not None:
        more, plus = fixed_phrase(degree)
        slots, aligned = more + slots, plus + aligned
    phrase.slots = slots + phrase.slots
    phrase.aligned = aligned + phrase.aligned if adjective.is_prenominal else phrase.aligned + aligned


def add_determiner(phrase: NounPhrase, english: WordForm, french: WordForm) -> None:
    slot: Slot = [english, 0]
    phrase.slots.insert(0, slot)
    phrase.aligned.insert(0, (french, (slot,)))


def add_definite_article(phrase: NounPhrase) -> None:
    """the, le, la, les."""
    add_determiner(phrase, fw.THE, fw.ARTICLES[phrase.feminine + 2 * phrase.plural])


def add_possessive(phrase: NounPhrase, owner: Pronoun) -> None:
    """my, mon, ma, mes: English agrees with the possessor, French with the possessed."""
    add_determiner(phrase, owner.possessive, owner.french_possessives[phrase.feminine + 2 * phrase.plural])


def add_indefinite_article(phrase: NounPhrase) -> None:
    """a, un, une; in the plural no article in English, des in French, de before an adjective."""
    if not phrase.plural:
        add_determiner(phrase, fw.AN, fw.UNE if phrase.feminine else fw.UN)
    else:
        leading = phrase.aligned[0]
        article = fw.DES if leading[0].tag == "NOUN" else DE
        phrase.aligned.insert(0, (article, head_slots(phrase)))
    phrase.article = 1


def head_slots(phrase: NounPhrase) -> tuple[Slot, ...]:
    """The slots of the head noun: a French article without an English one aligns to them."""
    return next(sources for word, sources in phrase.aligned if word.tag == "NOUN")
