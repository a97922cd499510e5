"""Noun phrases: articles, adjectives, numbers, possession; subjects and objects; locations with prepositions."""

from __future__ import annotations

from regard.text.grammar import function_words as fw, nouns
from regard.text.grammar.function_words import Pronoun
from regard.text.grammar.lexicon import Noun
from regard.text.grammar.phrases import (
    NounPhrase,
    add_adjective,
    add_definite_article,
    add_determiner,
    add_indefinite_article,
    add_possessive,
    coordinate,
    head_slots,
    pronoun_phrase,
    proper_noun,
    slots_of,
    titled_name,
)
from regard.text.grammar.rng import GrammarRng
from regard.text.grammar.tokens import DE, LA, LE, A, AlignedWord, Slot


def personal_name(rng: GrammarRng) -> NounPhrase:
    """Paul, or Ms. Belmond: the same in both languages."""
    feminine = rng.random() < 0.5
    if rng.families is nouns.FAMILIES and rng.random() < 0.5:
        english, french = proper_noun(rng.choice(nouns.WOMEN if feminine else nouns.MEN))
        slot: Slot = [english, 0]
        return NounPhrase([slot], [(french, (slot,))], feminine, False)
    return titled_name(rng.choice(rng.families), feminine)


def noun_phrase(
    rng: GrammarRng, noun: Noun, owner: Pronoun | None = None, plain: float = 0.62, subject: bool = False
) -> NounPhrase:
    """A noun with an article, perhaps adjectives. `owner`: a possible possessor; `plain`: the rate of none."""
    u = rng.random()
    plural = noun.plural_only or (not noun.mass and u < 0.28 and noun.kind not in ("kin", "sky"))
    phrase = modified_noun(rng, noun, plural, plain)
    if noun.mass:
        _mass_article(rng, phrase, owner)
    elif noun.kind == "sky":
        add_definite_article(phrase)
    elif noun.kind == "kin" and rng.random() < 0.8:
        add_possessive(phrase, owner if owner is not None else rng.choice(fw.PERSONS))
    elif plural:
        _plural_article(rng, phrase, owner, subject)
    else:
        _singular_article(rng, phrase, owner, subject)
    rng.emit(phrase.slots)
    return phrase


def modified_noun(rng: GrammarRng, noun: Noun, plural: bool, plain: float) -> NounPhrase:
    """A noun with its adjectives, without an article yet."""
    slots = [[word, 0] for word in noun.english[plural]]
    sources = tuple(slots)
    aligned: list[AlignedWord] = [(word, sources) for word in noun.french[plural]]
    phrase = NounPhrase(slots, aligned, noun.feminine, plural)
    phrase.noun = noun
    choices = rng.lexicon.adjectives[noun.kind] if rng.random() > plain else None
    if choices:
        first = rng.choice(choices)
        if rng.random() < 0.15:
            second = rng.choice(choices)
            if (
                second.is_prenominal != first.is_prenominal
            ):  # a small black cat, un petit chat noir: the postnominal one is nearer in English
                trailing, leading = (second, first) if first.is_prenominal else (first, second)
                add_adjective(phrase, trailing)
                add_adjective(phrase, leading)
                return phrase
        # before a noun très vieux, never extrêmement vieux; and pauvre and nouveau change their meaning there
        if first.gradable and first.english.form not in ("poor", "new") and rng.random() < 0.08:
            add_adjective(phrase, first, rng.lexicon.degree[0] if first.is_prenominal else rng.lexicon.degree[-1])
        else:
            add_adjective(phrase, first)
    return phrase


def _mass_article(rng: GrammarRng, phrase: NounPhrase, owner: Pronoun | None) -> None:
    u = rng.random()
    if u < 0.4:
        add_definite_article(phrase)
    elif u < 0.85:  # some bread, du pain; bread, du pain
        slot: Slot = [fw.SOME, 0]
        sources: tuple[Slot, ...] = (slot,)
        if u < 0.65:
            phrase.slots.insert(0, slot)
        else:
            sources = head_slots(phrase)
        phrase.aligned[:0] = [(DE, sources), (LA if phrase.feminine else LE, sources)]
        phrase.article = 2
    elif owner is not None:
        add_possessive(phrase, owner)
    else:
        add_determiner(phrase, fw.THIS, fw.CETTE if phrase.feminine else fw.CE)


def _singular_article(rng: GrammarRng, phrase: NounPhrase, owner: Pronoun | None, subject: bool) -> None:
    u = rng.random()
    if u < 0.46:
        add_definite_article(phrase)
    elif u < 0.70:
        add_indefinite_article(phrase)
    elif u < 0.84 and _can_be_possessed(phrase):
        add_possessive(phrase, owner if owner is not None else rng.choice(fw.PERSONS))
    elif u < 0.93:
        add_determiner(phrase, fw.THIS, fw.CETTE if phrase.feminine else fw.CE)
    elif u < 0.97 and subject:
        add_determiner(phrase, fw.EVERY, fw.CHAQUE)
    else:  # another, un autre
        slot: Slot = [fw.ANOTHER, 0]
        phrase.slots.insert(0, slot)
        phrase.aligned[:0] = [(fw.UNE if phrase.feminine else fw.UN, (slot,)), (fw.AUTRE, (slot,))]
        phrase.article = 1


def _can_be_possessed(phrase: NounPhrase) -> bool:
    """My woman would be ma femme, which is my wife."""
    return phrase.noun is None or phrase.noun.english[0][0].form not in ("man", "woman", "boy", "girl", "lady")


def _plural_article(rng: GrammarRng, phrase: NounPhrase, owner: Pronoun | None, subject: bool) -> None:
    u = rng.random()
    if u < 0.42:
        add_definite_article(phrase)
    elif u < 0.58 and not subject:
        add_indefinite_article(phrase)
    elif u < 0.70 and _can_be_possessed(phrase):
        add_possessive(phrase, owner if owner is not None else rng.choice(fw.PERSONS))
    elif u < 0.79:
        add_determiner(phrase, fw.THESE, fw.CES)
    elif u < 0.89:
        number, nombre = rng.choice(fw.NUMBERS)
        add_determiner(phrase, number, nombre)
    elif u < 0.93:
        add_determiner(phrase, fw.SEVERAL, fw.PLUSIEURS)
    elif u < 0.96:  # all the, tous les
        add_definite_article(phrase)
        add_determiner(phrase, fw.ALL, fw.TOUTES if phrase.feminine else fw.TOUS)
    else:  # many, beaucoup de
        slot: Slot = [fw.MANY, 0]
        phrase.slots.insert(0, slot)
        phrase.aligned[:0] = [(fw.BEAUCOUP, (slot,)), (DE, (slot,))]


def genitive(rng: GrammarRng, owner: NounPhrase, noun: Noun, plural: bool = False) -> NounPhrase:
    """Paul's book, le livre de Paul: the order is reversed."""
    phrase = modified_noun(rng, noun, plural, 0.8)
    mark: Slot = [fw.S, 0]
    article = (fw.ARTICLES[phrase.feminine + 2 * phrase.plural], (mark,))
    phrase.slots = [*owner.slots, mark, *phrase.slots]
    phrase.aligned = [article, *phrase.aligned, (DE, (mark,)), *owner.after_preposition(DE)]
    rng.emit(phrase.slots)
    return phrase


PEOPLE = ("person", "person", "person", "kin")
OWNABLE = frozenset(("thing", "text", "vehicle", "craft", "garment", "building", "animal"))


def person_phrase(rng: GrammarRng, newcomer: bool = False) -> NounPhrase:
    """A human agent: a pronoun, a name, a noun phrase, or two coordinated.

    A newcomer to a sentence is never he, she or they, which would refer back to somebody else.
    """
    u = rng.random()
    if u < 0.27:
        return pronoun_phrase(rng.choice(fw.SPEAKERS if newcomer else fw.PERSONS))
    if u < 0.46:
        return personal_name(rng)
    if u < 0.49:
        return coordinate(*two_personal_names(rng))
    if u < 0.53:
        first = noun_phrase(rng, rng.choice(rng.lexicon.nouns["person"]), subject=True)
        return coordinate(first, family_member(rng, first.as_pronoun))
    if rng.choice(PEOPLE) == "kin":
        return family_member(rng)
    return noun_phrase(rng, rng.choice(rng.lexicon.nouns["person"]), subject=True)


def two_personal_names(rng: GrammarRng) -> tuple[NounPhrase, NounPhrase]:
    first = personal_name(rng)
    while True:
        second = personal_name(rng)
        if second.slots[-1][0] is not first.slots[-1][0]:
            return first, second


def family_member(rng: GrammarRng, owner: Pronoun | None = None) -> NounPhrase:
    """my brother, or Paul's brother."""
    noun = rng.choice(rng.lexicon.nouns["kin"])
    if owner is None and rng.random() < 0.3:
        return genitive(rng, personal_name(rng), noun)
    phrase = modified_noun(rng, noun, False, 0.85)
    add_possessive(phrase, owner if owner is not None else rng.choice(fw.PERSONS))
    rng.emit(phrase.slots)
    return phrase


def object_phrase(rng: GrammarRng, kinds: tuple[str, ...], subject: NounPhrase) -> NounPhrase:
    """An object of one of these kinds; the subject is its possessor, if any."""
    kind = rng.choice(kinds)
    if kind == "kin":
        return family_member(rng, subject.as_pronoun)
    if kind == "person" and rng.random() < 0.35:
        return personal_name(rng)
    noun = rng.choice(rng.lexicon.nouns[kind])
    if kind in OWNABLE and rng.random() < 0.08:
        return genitive(rng, personal_name(rng), noun, rng.random() < 0.3)
    return noun_phrase(rng, noun, subject.as_pronoun)


def other_pronoun(rng: GrammarRng, subject: NounPhrase) -> Pronoun:
    """A pronoun that does not corefer with the subject: he sees me, I see her, never he sees him nor we see me."""
    while True:
        other = rng.choice(fw.PERSONS)
        if other.person in (0, 3) and subject.person in (0, 3):
            continue
        if other.person != subject.person and {other.person, subject.person} != {2, 5}:
            return other


def location(rng: GrammarRng, motion: bool = False) -> tuple[list[Slot], list[AlignedWord]]:
    """In the garden, in Paris: a place with its prepositions; with motion, the goal."""
    u = rng.random()
    if u < 0.2:
        return _town(rng, motion)
    if u < 0.3:
        return _country(rng, motion)
    within, dans, noun = rng.choice(rng.lexicon.places)
    phrase = modified_noun(rng, noun, False, 0.75)
    add_definite_article(phrase)
    if not motion and u > 0.8:
        return location_beside(rng, phrase)
    slot: Slot = [fw.TOWARDS if motion else within, 0]
    rng.emit([slot, *phrase.slots])
    return [slot, *phrase.slots], [(dans, (slot,)), *phrase.aligned]


def location_beside(rng: GrammarRng, phrase: NounPhrase) -> tuple[list[Slot], list[AlignedWord]]:
    """Near the river, près de la rivière."""
    english, french = rng.choice(fw.RELATIVE_POSITIONS)
    slots = slots_of(english)
    sources = tuple(slots)
    return slots + phrase.slots, [(word, sources) for word in french] + phrase.after_preposition(french[-1])


def _town(rng: GrammarRng, motion: bool) -> tuple[list[Slot], list[AlignedWord]]:
    english, french = proper_noun(rng.choice(rng.towns))
    slots: list[Slot] = [[fw.TOWARDS if motion else fw.IN, 0], [english, 0]]
    return slots, [(A, (slots[0],)), (french, (slots[1],))]


def _country(rng: GrammarRng, motion: bool) -> tuple[list[Slot], list[AlignedWord]]:
    country, pays, feminine = rng.choice(rng.lexicon.countries)
    slots: list[Slot] = [[fw.TOWARDS if motion else fw.IN, 0], [country, 0]]
    within: list[AlignedWord] = (
        [(fw.EN, (slots[0],))] if feminine or pays.vowel else [(A, (slots[0],)), (LE, (slots[0],))]
    )
    return slots, [*within, (pays, (slots[1],))]
