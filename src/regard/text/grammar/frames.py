"""Subcategorisation frames: intransitive, transitive, locative, ditransitive, infinitival; in both languages."""

from __future__ import annotations

from typing import NamedTuple

from regard.text.grammar import function_words as fw
from regard.text.grammar.function_words import Negation, Pronoun
from regard.text.grammar.lexicon import FixedExpression, Verb, make_verb
from regard.text.grammar.noun_phrases import location, modified_noun, object_phrase, other_pronoun
from regard.text.grammar.phrases import NounPhrase, add_definite_article, fixed_phrase, slots_of
from regard.text.grammar.rng import GrammarRng
from regard.text.grammar.tokens import A, AlignedWord, Slot, en
from regard.text.grammar.verb_phrase import (
    PAST,
    PAST_PROGRESSIVE,
    PERFECT,
    PRESENT,
    PROGRESSIVE,
    VerbPhrase,
    infinitive_phrase,
    verb_phrase,
)


class Clause(NamedTuple):
    """A subject and its predicate. The English auxiliary (`front`) is separate, since questions move it."""

    subject: NounPhrase
    front: list[Slot]
    rest: list[Slot]
    french: list[AlignedWord]  # without the subject, unless the roles are swapped
    object: NounPhrase | None = None
    swapped: bool = False  # he misses her, elle lui manque: subject and object exchange roles

    @property
    def slots(self) -> list[Slot]:
        return self.subject.slots + self.front + self.rest

    @property
    def aligned(self) -> list[AlignedWord]:
        return self.french if self.swapped else self.subject.aligned + self.french


def choose_negation(rng: GrammarRng, who: NounPhrase, tense: int, state: bool = False) -> Negation | None:
    """Sometimes not; never outside the progressive; no longer for states and ongoing actions."""
    u = rng.random()
    if u > 0.17 or (who.slots and who.slots[0][0] is fw.EVERY):  # not every would mean something else
        return None
    if u > 0.15 and (state or tense not in (PAST, PERFECT)):
        negation = fw.NO_LONGER
    else:
        negation = fw.NEVER if u > 0.12 and tense not in (PROGRESSIVE, PAST_PROGRESSIVE) else fw.NEGATED
    rng.emit(slots_of(negation.english))
    return negation


def choose_adverb(rng: GrammarRng, verb: Verb, tense: int, negation: Negation | None) -> FixedExpression | None:
    """An adverb between auxiliary and verb: often, already."""
    if negation is not None or verb.stative:
        return None
    if tense == PRESENT and rng.random() < 0.14:
        return rng.choice(rng.lexicon.frequency)
    if tense == PERFECT and rng.random() < 0.4:
        return rng.choice(rng.lexicon.perfect_adverbs)
    return None


def intransitive(
    rng: GrammarRng, subject: NounPhrase, tense: int, is_question: bool = False, verb: Verb | None = None
) -> Clause:
    """She is singing in the garden."""
    if verb is None:
        verb = rng.choice(rng.lexicon.human_intransitive)
    negation = choose_negation(rng, subject, tense, verb.stative)
    vp = verb_phrase(
        verb, tense, subject, negation, adverb=choose_adverb(rng, verb, tense, negation), is_question=is_question
    )
    rng.emit(vp.rest)
    rest, french = vp.rest, vp.french
    if negation is None and not verb.tail and rng.random() < 0.12:
        how, comment = fixed_phrase(rng.choice(rng.lexicon.manner))
        rest, french = rest + how, french + comment
    if not verb.away and rng.random() < 0.35:
        there, la = location(rng)
        rest, french = rest + there, french + la
    return Clause(subject, vp.front, rest, french)


def locative(rng: GrammarRng, subject: NounPhrase, tense: int, is_question: bool = False) -> Clause:
    """He lives in Belgium; he goes to the market."""
    verb = rng.choice(rng.lexicon.verbs["place"])[0]
    vp = verb_phrase(verb, tense, subject, choose_negation(rng, subject, tense, verb.stative), is_question=is_question)
    rng.emit(vp.rest)
    there, la = location(rng, verb.is_motion)
    return Clause(subject, vp.front, vp.rest + there, vp.french + la)


def transitive(rng: GrammarRng, subject: NounPhrase, tense: int, is_question: bool = False) -> Clause:
    """He hits the dog; she sees me."""
    verb, objects = rng.choice(rng.lexicon.human_transitive)
    if objects[0] == "game" or verb.lemma == "jouer de":
        return _playing(rng, subject, tense, verb, objects[0], is_question)
    if objects[0] == "person" and rng.random() < 0.3 and (verb.preposition is None or verb.preposition is A):
        return transitive_with_pronoun(rng, subject, tense, verb, other_pronoun(rng, subject), is_question)
    return transitive_with_noun(rng, subject, tense, verb, object_phrase(rng, objects, subject), is_question)


def transitive_with_noun(
    rng: GrammarRng, subject: NounPhrase, tense: int, verb: Verb, obj: NounPhrase, is_question: bool = False
) -> Clause:
    """he eats the apple, il mange la pomme."""
    negation = choose_negation(rng, subject, tense, verb.stative)
    vp = verb_phrase(
        verb, tense, subject, negation, adverb=choose_adverb(rng, verb, tense, negation), is_question=is_question
    )
    rng.emit(vp.rest)
    french = vp.french
    tail: list[Slot] = []
    if (
        negation is None and not verb.tail and not verb.stative and rng.random() < 0.06
    ):  # eats the apple slowly, mange lentement la pomme
        tail, comment = fixed_phrase(rng.choice(rng.lexicon.manner))
        french = french + comment
    if verb.lemma in GENERIC_OBJECT_VERBS:
        obj.make_generic()
    if verb.preposition is not None:
        if negation is not None:
            obj.several_to_many()
        french = [*french, (verb.preposition, vp.verb), *obj.after_preposition(verb.preposition)]
    else:
        french = french + (obj.aligned if negation is None else obj.after_negation())
    return Clause(subject, vp.front, vp.rest + obj.slots + tail, french, obj)


GENERIC_OBJECT_VERBS = frozenset(("aimer", "détester", "apprécier", "adorer"))


def transitive_with_pronoun(
    rng: GrammarRng, subject: NounPhrase, tense: int, verb: Verb, other: Pronoun, is_question: bool = False
) -> Clause:
    """he hit me, il m'a frappé: the clitic precedes the French verb, and the participle agrees with it."""
    slot: Slot = [other.object, 0]
    direct = verb.preposition is None
    clitics: list[AlignedWord] = [(other.direct if direct else other.indirect, (slot,))]
    agreement = other.feminine + 2 * other.plural if direct else None
    vp = verb_phrase(
        verb,
        tense,
        subject,
        choose_negation(rng, subject, tense, verb.stative),
        clitics,
        agreement,
        is_question=is_question,
    )
    rest = place_pronoun(verb, vp.rest, slot)
    rng.emit(rest)
    return Clause(subject, vp.front, rest, vp.french)


def place_pronoun(verb: Verb, rest: list[Slot], slot: Slot) -> list[Slot]:
    """Place the object pronoun of an English verb: look for it, but put it on."""
    split = len(rest) - len(verb.particles) if verb.separable else len(rest)
    return [*rest[:split], slot, *rest[split:]]


def with_a_pie(rng: GrammarRng, subject: NounPhrase, tense: int) -> Clause:
    """he hit me with a pie, il m'a entarté: four words become one."""
    if rng.random() < 0.7:
        built = transitive_with_pronoun(rng, subject, tense, _ENTARTER, other_pronoun(rng, subject))
    else:
        built = transitive_with_noun(rng, subject, tense, _ENTARTER, object_phrase(rng, ("person", "kin"), subject))
    instrument = slots_of(_WITH_A_PIE)
    french = [
        (word, (*sources, *instrument)) if word.lemma == "entarter" else (word, sources)
        for word, sources in built.french
    ]
    return Clause(subject, built.front, built.rest + instrument, french)


_WITH_A_PIE = (fw.WITH, fw.AN, en("pie", "NOUN"))
_ENTARTER = make_verb("hit", "entarter")


def _playing(rng: GrammarRng, subject: NounPhrase, tense: int, verb: Verb, kind: str, is_question: bool) -> Clause:
    """play tennis, jouer au tennis; play the piano, jouer du piano."""
    noun = rng.choice(rng.lexicon.nouns[kind])
    obj = modified_noun(rng, noun, noun.plural_only, 1.0)
    sources = tuple(obj.slots)
    add_definite_article(obj)
    if kind == "game":
        obj.slots = list(sources)
        obj.aligned[0] = (obj.aligned[0][0], sources)
    vp = verb_phrase(verb, tense, subject, choose_negation(rng, subject, tense, verb.stative), is_question=is_question)
    rng.emit(vp.rest)
    preposition = A if kind == "game" else verb.preposition
    governor = [] if preposition is None else [(preposition, vp.verb)]
    return Clause(subject, vp.front, vp.rest + obj.slots, [*vp.french, *governor, *obj.aligned])


def ditransitive(rng: GrammarRng, subject: NounPhrase, tense: int, is_question: bool = False) -> Clause:
    """She gives the child a book, elle donne un livre à l'enfant: the recipient moves."""
    verb, _, objects = rng.choice(rng.lexicon.verbs["give"])
    obj = object_phrase(rng, objects, subject)
    if rng.random() < 0.4:
        return _ditransitive_with_pronoun(rng, subject, tense, verb, obj, is_question)
    recipient = object_phrase(rng, ("person", "kin"), subject)
    negation = choose_negation(rng, subject, tense, verb.stative)
    vp = verb_phrase(verb, tense, subject, negation, is_question=is_question)
    rng.emit(vp.rest)
    given = obj.aligned if negation is None else obj.after_negation()
    if verb.dative_shift and rng.random() < 0.5:
        rest, lead = [*vp.rest, *recipient.slots, *obj.slots], vp.verb
    else:
        to: Slot = [fw.TOWARDS, 0]
        rest, lead = [*vp.rest, *obj.slots, to, *recipient.slots], (to,)
    return Clause(subject, vp.front, rest, [*vp.french, *given, (A, lead), *recipient.aligned], obj)


def _ditransitive_with_pronoun(
    rng: GrammarRng, subject: NounPhrase, tense: int, verb: Verb, obj: NounPhrase, is_question: bool
) -> Clause:
    """She gives me a book, elle me donne un livre."""
    other = other_pronoun(rng, subject)
    slot: Slot = [other.object, 0]
    negation = choose_negation(rng, subject, tense, verb.stative)
    vp = verb_phrase(verb, tense, subject, negation, [(other.indirect, (slot,))], is_question=is_question)
    rng.emit(vp.rest)
    given = obj.aligned if negation is None else obj.after_negation()
    if verb.dative_shift:
        return Clause(subject, vp.front, [*vp.rest, slot, *obj.slots], vp.french + given, obj)
    to: Slot = [fw.TOWARDS, 0]
    french = [(word, (to, *sources)) if sources == (slot,) else (word, sources) for word, sources in vp.french]
    return Clause(subject, vp.front, [*vp.rest, *obj.slots, to, slot], french + given, obj)


_POUVOIR, _DEVOIR = make_verb("can", "pouvoir"), make_verb("must", "devoir")
_CAN, _MUST, _COULD = (
    (en("can", "AUX"), _POUVOIR.present),
    (en("must", "AUX"), _DEVOIR.present),
    (en("could", "AUX"), _POUVOIR.imperfect),
)
MODALS = {PRESENT: (_CAN, _MUST), PROGRESSIVE: (_CAN, _MUST), PAST: (_COULD,), PAST_PROGRESSIVE: (_COULD,)}


def infinitival(rng: GrammarRng, subject: NounPhrase, tense: int, is_question: bool = False) -> Clause:
    """He wants to see her, il veut la voir; he is going to sleep, il va dormir; she must leave, elle doit partir."""
    u = rng.random()
    if u < 0.2 and tense in MODALS:
        english, forms = rng.choice(MODALS[tense])
        slot: Slot = [english, 0]
        return _infinitive_complement(
            rng, Clause(subject, [slot], [], [(forms[subject.person], (slot,))]), None, bare=True
        )
    is_going_to = u < 0.4 and tense in (PROGRESSIVE, PAST_PROGRESSIVE)
    verb = rng.lexicon.aller if is_going_to else rng.choice(rng.lexicon.verbs["to"])[0]
    negation = choose_negation(rng, subject, tense, verb.stative)
    vp = verb_phrase(verb, tense, subject, negation, is_question=is_question)
    marker = None if verb.preposition is None else (verb.preposition, vp.verb)
    matrix = Clause(subject, vp.front, vp.rest, vp.french)
    return _infinitive_complement(rng, matrix, marker, negated=negation is not None)


def _infinitive_complement(
    rng: GrammarRng, matrix: Clause, marker: AlignedWord | None, bare: bool = False, negated: bool = False
) -> Clause:
    """The infinitive after want, have to, be going to."""
    u = rng.random()
    subject = matrix.subject
    more: list[Slot] = []
    plus: list[AlignedWord] = []
    if u < 0.35:
        verb = rng.choice(rng.lexicon.human_intransitive)
        what = infinitive_phrase(verb, subject, marker, bare=bare)
        if not verb.away and rng.random() < 0.3:
            more, plus = location(rng)
    elif u < 0.5:
        verb = rng.choice(rng.lexicon.verbs["place"])[0]
        what = infinitive_phrase(verb, subject, marker, bare=bare)
        more, plus = location(rng, verb.is_motion)
    else:
        what, more, plus = _transitive_infinitive(rng, subject, marker, bare, negated)
    return Clause(
        subject, matrix.front, [*matrix.rest, *what.front, *what.rest, *more], matrix.french + what.french + plus
    )


def _transitive_infinitive(
    rng: GrammarRng, subject: NounPhrase, marker: AlignedWord | None, bare: bool, negated: bool
) -> tuple[VerbPhrase, list[Slot], list[AlignedWord]]:
    while True:
        verb, objects = rng.choice(rng.lexicon.human_transitive)
        if objects[0] not in ("game", "instrument"):
            break
    preposition = verb.preposition
    if objects[0] == "person" and rng.random() < 0.4 and (preposition is None or preposition is A):
        other = other_pronoun(rng, subject)
        slot: Slot = [other.object, 0]
        clitics: list[AlignedWord] = [(other.direct if preposition is None else other.indirect, (slot,))]
        what = infinitive_phrase(verb, subject, marker, clitics, bare)
        return what._replace(rest=place_pronoun(verb, what.rest, slot)), [], []
    obj = object_phrase(rng, objects, subject)
    if verb.lemma in GENERIC_OBJECT_VERBS:
        obj.make_generic()
    what = infinitive_phrase(verb, subject, marker, bare=bare)
    if preposition is not None:
        return what, obj.slots, [(preposition, what.verb), *obj.after_preposition(preposition)]
    aligned = obj.after_negation() if negated else obj.aligned
    return what, obj.slots, aligned
