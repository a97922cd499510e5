"""The verb and everything that crowds around it: tense, negation, pronouns, adverbs, agreement.

English: auxiliary, not, adverb, verb. French: ne, pronouns, verb or auxiliary, pas, adverb, participle. An English
auxiliary answers to the French word that carries its tense; a simple past to both halves of the passé composé.
"""

from __future__ import annotations

from typing import NamedTuple

from regard.text.grammar import particles as small
from regard.text.grammar.lexicon import Fixed, Verb, lexicon
from regard.text.grammar.particles import Negation
from regard.text.grammar.phrases import Phrase, fixed
from regard.text.grammar.tokens import Answer, Spot, Word

PRESENT, NOW, PAST, THEN, PERFECT, FUTURE = range(6)  # eats, is eating, ate, was eating, has eaten, will eat
BEING = (
    (small.AM, small.ARE, small.IS, small.ARE, small.ARE, small.ARE),
    (small.WAS, small.WERE, small.WAS, small.WERE, small.WERE, small.WERE),
)
REFLEXIVE = tuple(who.reflexive for who in (small.I, small.YOU, small.HE, small.WE, small.WE, small.HE))
Clitics = list[Answer]


class Spoken(NamedTuple):
    """A verb said: the English auxiliary apart, since a question moves it to the front."""

    front: list[Spot]
    rest: list[Spot]
    french: list[Answer]
    verb: tuple[Spot, ...]  # what the preposition of an object answers to


def speak(
    verb: Verb,
    tense: int,
    who: Phrase,
    negation: Negation | None = None,
    clitics: Clitics | None = None,
    agreement: int | None = None,
    adverb: Fixed | None = None,
    asked: bool = False,
) -> Spoken:
    """Say a verb of somebody. `agreement`: gender and number (0 to 3) of a direct object that stands before it."""
    if not verb.going_on:
        tense = (_STATES if verb.state else _AT_ONCE)[tense]
    form, auxiliary = _english(verb, tense, who.person, asked or (negation is not None and negation.needs_do))
    spot: Spot = [form, 0]
    front: list[Spot] = [] if auxiliary is None else [[auxiliary, 0]]
    if form is auxiliary:  # to be needs nobody's help
        front = [spot]
    its = (spot, *[[word, 0] for word in verb.particles]) if verb.particles else (spot,)
    middle, between = _middle(negation, adverb) if negation is not None or adverb is not None else ([], [])
    rest = [*middle, *its] if form is not auxiliary else middle
    french = _french(verb, tense, who, tuple(front) if form is not auxiliary else (), its, clitics, agreement, between)
    if negation is not None:
        french.insert(0, (small.NE, tuple(middle[: len(negation.english)])))
    return Spoken(front, rest, french, its)


_STATES = (PRESENT, PRESENT, PAST, PAST, PRESENT, FUTURE)  # what a state says instead of each tense
_AT_ONCE = (PRESENT, PRESENT, PAST, PAST, PERFECT, FUTURE)  # and what is over as soon as it begins


def _english(verb: Verb, tense: int, person: int, do: bool) -> tuple[Word, Word | None]:
    """The form of the verb, and its auxiliary if it needs one."""
    if verb.base.form == "be":
        if tense == FUTURE:
            return small.BE, small.WILL
        being = BEING[tense == PAST][person]
        return being, being
    if tense == PRESENT:
        if do:
            return verb.base, small.DOES if person == 2 else small.DO
        return (verb.third if person == 2 else verb.base), None
    if tense == PAST:
        return (verb.base, small.DID) if do else (verb.past, None)
    if tense == FUTURE:
        return verb.base, small.WILL
    if tense == PERFECT:
        return verb.participle, small.HAS if person == 2 else small.HAVE
    return verb.ing, BEING[tense == THEN][person]


def _middle(negation: Negation | None, adverb: Fixed | None) -> tuple[list[Spot], list[Answer]]:
    """not, never, often: between auxiliary and verb in English, after the conjugated word in French."""
    spots: list[Spot] = []
    answers: list[Answer] = []
    if negation is not None:
        spots = [[word, 0] for word in negation.english]
        answers = [(negation.french, tuple(spots))]
    if adverb is not None:
        more, plus = fixed(adverb)
        spots, answers = spots + more, answers + plus
    return spots, answers


def _french(
    verb: Verb,
    tense: int,
    who: Phrase,
    auxiliary: tuple[Spot, ...],
    its: tuple[Spot, ...],
    clitics: Clitics | None,
    agreement: int | None,
    between: list[Answer],
) -> list[Answer]:
    said: list[Answer] = [(REFLEXIVE[who.person], its)] if verb.reflexive else []
    if clitics:
        said += clitics
    if (tense == PAST and not verb.state) or tense == PERFECT:
        if verb.etre:
            agreement = who.feminine + 2 * who.plural
        said.append(((_BE if verb.etre else _HAVE)[who.person], auxiliary or its))
        said += between
        said.append((verb.participles[agreement or 0], its))
    else:
        forms = verb.future if tense == FUTURE else verb.imperfect if tense in (PAST, THEN) else verb.present
        said.append((forms[who.person], auxiliary + its))
        said += between
    if verb.tail:
        said += [(word, its) for word in verb.tail]
    return said


_BE, _HAVE = ([word._replace(tag="AUX") for word in verb.present] for verb in (lexicon().etre, lexicon().avoir))


def infinitive(
    verb: Verb, who: Phrase, marker: Answer | None = None, clitics: Clitics | None = None, bare: bool = False
) -> Spoken:
    """to eat, manger; `marker`: the French preposition that leads it in (essayer *de*); bare after can and must."""
    front: list[Spot] = [] if bare else [[small.TO, 0]]
    its: tuple[Spot, ...] = ([verb.base, 0], *[[word, 0] for word in verb.particles])
    said: list[Answer] = [] if marker is None else [(marker[0], (*front, *marker[1]))]
    if verb.reflexive:
        said.append((REFLEXIVE[who.person], its))
    if clitics:
        said += clitics
    said.append((verb.infinitive, its if marker is not None else (*front, *its)))
    said += [(word, its) for word in verb.tail]
    return Spoken(front, list(its), said, its)
