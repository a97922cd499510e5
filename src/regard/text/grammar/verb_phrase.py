"""Verb phrases: tense, auxiliaries and do-support, negation, clitic pronouns, adverbs, participle agreement.

English: auxiliary, not, adverb, verb. French: ne, clitics, verb or auxiliary, pas, adverb, participle. An English
auxiliary aligns to the French word that carries its tense; a simple past to both words of the passé composé.
"""

from __future__ import annotations

from typing import NamedTuple

from regard.text.grammar import function_words as fw
from regard.text.grammar.function_words import Negation
from regard.text.grammar.lexicon import FixedExpression, Verb, lexicon
from regard.text.grammar.phrases import NounPhrase, fixed_phrase
from regard.text.grammar.tokens import AlignedWord, Slot, WordForm

PRESENT, PROGRESSIVE, PAST, PAST_PROGRESSIVE, PERFECT, FUTURE = range(
    6
)  # eats, is eating, ate, was eating, has eaten, will eat
BE_FORMS = (
    (fw.AM, fw.ARE, fw.IS, fw.ARE, fw.ARE, fw.ARE),
    (fw.WAS, fw.WERE, fw.WAS, fw.WERE, fw.WERE, fw.WERE),
)
REFLEXIVE = tuple(who.reflexive for who in (fw.I, fw.YOU, fw.HE, fw.WE, fw.WE, fw.HE))
Clitics = list[AlignedWord]


class VerbPhrase(NamedTuple):
    """A conjugated verb; the English auxiliary (`front`) is separate, since questions move it."""

    front: list[Slot]
    rest: list[Slot]
    french: list[AlignedWord]
    verb: tuple[Slot, ...]  # what the preposition of an object aligns to


def verb_phrase(
    verb: Verb,
    tense: int,
    who: NounPhrase,
    negation: Negation | None = None,
    clitics: Clitics | None = None,
    agreement: int | None = None,
    adverb: FixedExpression | None = None,
    is_question: bool = False,
) -> VerbPhrase:
    """The verb conjugated for `who`. `agreement`: gender and number (0 to 3) of a preceding direct object."""
    if not verb.has_progressive:
        tense = (_STATIVE_TENSES if verb.stative else _PUNCTUAL_TENSES)[tense]
    form, auxiliary = _english(verb, tense, who.person, is_question or (negation is not None and negation.needs_do))
    slot: Slot = [form, 0]
    front: list[Slot] = [] if auxiliary is None else [[auxiliary, 0]]
    if form is auxiliary:  # to be takes no auxiliary
        front = [slot]
    sources = (slot, *[[word, 0] for word in verb.particles]) if verb.particles else (slot,)
    middle, between = _negation_and_adverb(negation, adverb) if negation is not None or adverb is not None else ([], [])
    rest = [*middle, *sources] if form is not auxiliary else middle
    french = _french(
        verb, tense, who, tuple(front) if form is not auxiliary else (), sources, clitics, agreement, between
    )
    if negation is not None:
        french.insert(0, (fw.NE, tuple(middle[: len(negation.english)])))
    return VerbPhrase(front, rest, french, sources)


_STATIVE_TENSES = (PRESENT, PRESENT, PAST, PAST, PRESENT, FUTURE)  # what a stative verb uses for each tense
_PUNCTUAL_TENSES = (PRESENT, PRESENT, PAST, PAST, PERFECT, FUTURE)  # and a punctual one


def _english(verb: Verb, tense: int, person: int, do: bool) -> tuple[WordForm, WordForm | None]:
    """The English form of the verb, and its auxiliary if it needs one; `do`: with do-support."""
    if verb.base.form == "be":
        if tense == FUTURE:
            return fw.BE, fw.WILL
        be = BE_FORMS[tense == PAST][person]
        return be, be
    if tense == PRESENT:
        if do:
            return verb.base, fw.DOES if person == 2 else fw.DO
        return (verb.third if person == 2 else verb.base), None
    if tense == PAST:
        return (verb.base, fw.DID) if do else (verb.past, None)
    if tense == FUTURE:
        return verb.base, fw.WILL
    if tense == PERFECT:
        return verb.participle, fw.HAS if person == 2 else fw.HAVE
    return verb.ing, BE_FORMS[tense == PAST_PROGRESSIVE][person]


def _negation_and_adverb(
    negation: Negation | None, adverb: FixedExpression | None
) -> tuple[list[Slot], list[AlignedWord]]:
    """not, never, often: between auxiliary and verb in English, after the conjugated word in French."""
    slots: list[Slot] = []
    aligned: list[AlignedWord] = []
    if negation is not None:
        slots = [[word, 0] for word in negation.english]
        aligned = [(negation.french, tuple(slots))]
    if adverb is not None:
        more, plus = fixed_phrase(adverb)
        slots, aligned = slots + more, aligned + plus
    return slots, aligned


def _french(
    verb: Verb,
    tense: int,
    who: NounPhrase,
    auxiliary: tuple[Slot, ...],
    sources: tuple[Slot, ...],
    clitics: Clitics | None,
    agreement: int | None,
    between: list[AlignedWord],
) -> list[AlignedWord]:
    words: list[AlignedWord] = [(REFLEXIVE[who.person], sources)] if verb.reflexive else []
    if clitics:
        words += clitics
    if (tense == PAST and not verb.stative) or tense == PERFECT:
        if verb.with_etre:
            agreement = who.feminine + 2 * who.plural
        words.append(((_ETRE_AUX if verb.with_etre else _AVOIR_AUX)[who.person], auxiliary or sources))
        words += between
        words.append((verb.participles[agreement or 0], sources))
    else:
        forms = (
            verb.future if tense == FUTURE else verb.imperfect if tense in (PAST, PAST_PROGRESSIVE) else verb.present
        )
        words.append((forms[who.person], auxiliary + sources))
        words += between
    if verb.tail:
        words += [(word, sources) for word in verb.tail]
    return words


_ETRE_AUX, _AVOIR_AUX = (
    [word._replace(tag="AUX") for word in verb.present] for verb in (lexicon().etre, lexicon().avoir)
)


def infinitive_phrase(
    verb: Verb, who: NounPhrase, marker: AlignedWord | None = None, clitics: Clitics | None = None, bare: bool = False
) -> VerbPhrase:
    """to eat, manger; `marker`: the French preposition before it (essayer *de*); bare after can and must."""
    front: list[Slot] = [] if bare else [[fw.TO, 0]]
    sources: tuple[Slot, ...] = ([verb.base, 0], *[[word, 0] for word in verb.particles])
    words: list[AlignedWord] = [] if marker is None else [(marker[0], (*front, *marker[1]))]
    if verb.reflexive:
        words.append((REFLEXIVE[who.person], sources))
    if clitics:
        words += clitics
    words.append((verb.infinitive, sources if marker is not None else (*front, *sources)))
    words += [(word, sources) for word in verb.tail]
    return VerbPhrase(front, list(sources), words, sources)
