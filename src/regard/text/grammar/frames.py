"""What verbs need around them: nothing, an object, a place, a receiver, an infinitive; in both languages at once."""

from __future__ import annotations

from typing import NamedTuple

from regard.text.grammar import particles as small
from regard.text.grammar.lexicon import Fixed, Verb, make_verb
from regard.text.grammar.noun_phrases import described, other_than, something, whereabouts
from regard.text.grammar.particles import Negation, Pronoun
from regard.text.grammar.phrases import Phrase, define, fixed, spots_of
from regard.text.grammar.rng import Draw
from regard.text.grammar.tokens import A, Answer, Spot, en
from regard.text.grammar.verb_phrase import NOW, PAST, PERFECT, PRESENT, THEN, Spoken, infinitive, speak


class Clause(NamedTuple):
    """Somebody and what is said of them. The English auxiliary stands apart, since questions move it."""

    subject: Phrase
    front: list[Spot]
    rest: list[Spot]
    french: list[Answer]  # without the subject, unless it is turned round
    object: Phrase | None = None
    turned: bool = False  # he misses her, elle lui manque: French says it from the other side

    @property
    def spots(self) -> list[Spot]:
        return self.subject.spots + self.front + self.rest

    @property
    def answers(self) -> list[Answer]:
        return self.french if self.turned else self.subject.answers + self.french


def negation_of(draw: Draw, who: Phrase, tense: int, state: bool = False) -> Negation | None:
    """Now and then not; never where nothing is going on just now; no longer where something could have gone on."""
    chance = draw.random()
    if chance > 0.17 or (who.spots and who.spots[0][0] is small.EVERY):  # not every: that would be another sentence
        return None
    if chance > 0.15 and (state or tense not in (PAST, PERFECT)):
        negation = small.NO_LONGER
    else:
        negation = small.NEVER if chance > 0.12 and tense not in (NOW, THEN) else small.NEGATED
    draw.said(spots_of(negation.english))
    return negation


def adverb_of(draw: Draw, verb: Verb, tense: int, negation: Negation | None) -> Fixed | None:
    """An adverb for the middle: often, already."""
    if negation is not None or verb.state:
        return None
    if tense == PRESENT and draw.random() < 0.14:
        return draw.pick(draw.lexicon.frequency)
    if tense == PERFECT and draw.random() < 0.4:
        return draw.pick(draw.lexicon.perfect)
    return None


def alone(draw: Draw, subject: Phrase, tense: int, asked: bool = False, verb: Verb | None = None) -> Clause:
    """She is singing in the garden."""
    if verb is None:
        verb = draw.pick(draw.lexicon.people_alone)
    negation = negation_of(draw, subject, tense, verb.state)
    said = speak(verb, tense, subject, negation, adverb=adverb_of(draw, verb, tense, negation), asked=asked)
    draw.said(said.rest)
    rest, french = said.rest, said.french
    if negation is None and not verb.tail and draw.random() < 0.12:
        how, comment = fixed(draw.pick(draw.lexicon.manner))
        rest, french = rest + how, french + comment
    if not verb.away and draw.random() < 0.35:
        there, la = whereabouts(draw)
        rest, french = rest + there, french + la
    return Clause(subject, said.front, rest, french)


def placed(draw: Draw, subject: Phrase, tense: int, asked: bool = False) -> Clause:
    """He lives in Belgium; he goes to the market."""
    verb = draw.pick(draw.lexicon.verbs["place"])[0]
    said = speak(verb, tense, subject, negation_of(draw, subject, tense, verb.state), asked=asked)
    draw.said(said.rest)
    there, la = whereabouts(draw, verb.motion)
    return Clause(subject, said.front, said.rest + there, said.french + la)


def acting(draw: Draw, subject: Phrase, tense: int, asked: bool = False) -> Clause:
    """Somebody does something to something, or to somebody."""
    verb, objects = draw.pick(draw.lexicon.people_object)
    if objects[0] == "game" or verb.lemma == "jouer de":
        return _playing(draw, subject, tense, verb, objects[0], asked)
    if objects[0] == "person" and draw.random() < 0.3 and (verb.preposition is None or verb.preposition is A):
        return with_pronoun(draw, subject, tense, verb, other_than(draw, subject), asked)
    return with_object(draw, subject, tense, verb, something(draw, objects, subject), asked)


def with_object(draw: Draw, subject: Phrase, tense: int, verb: Verb, thing: Phrase, asked: bool = False) -> Clause:
    negation = negation_of(draw, subject, tense, verb.state)
    said = speak(verb, tense, subject, negation, adverb=adverb_of(draw, verb, tense, negation), asked=asked)
    draw.said(said.rest)
    french = said.french
    tail: list[Spot] = []
    if (
        negation is None and not verb.tail and not verb.state and draw.random() < 0.06
    ):  # eats the apple slowly, mange lentement la pomme
        tail, comment = fixed(draw.pick(draw.lexicon.manner))
        french = french + comment
    if verb.lemma in LIKING:
        thing.in_general()
    if verb.preposition is not None:
        if negation is not None:
            thing.many()
        french = [*french, (verb.preposition, said.verb), *thing.after(verb.preposition)]
    else:
        french = french + (thing.answers if negation is None else thing.after_negation())
    return Clause(subject, said.front, said.rest + thing.spots + tail, french, thing)


LIKING = frozenset(("aimer", "détester", "apprécier", "adorer"))


def with_pronoun(draw: Draw, subject: Phrase, tense: int, verb: Verb, other: Pronoun, asked: bool = False) -> Clause:
    """he hit me, il m'a frappé: the French pronoun goes before the verb, and the participle agrees with it."""
    spot: Spot = [other.object, 0]
    direct = verb.preposition is None
    clitics: list[Answer] = [(other.direct if direct else other.indirect, (spot,))]
    agreement = other.feminine + 2 * other.plural if direct else None
    said = speak(verb, tense, subject, negation_of(draw, subject, tense, verb.state), clitics, agreement, asked=asked)
    rest = with_it(verb, said.rest, spot)
    draw.said(rest)
    return Clause(subject, said.front, rest, said.french)


def with_it(verb: Verb, rest: list[Spot], spot: Spot) -> list[Spot]:
    """An English verb and the pronoun after it: look for it, but put it on."""
    split = len(rest) - len(verb.particles) if verb.separable else len(rest)
    return [*rest[:split], spot, *rest[split:]]


def with_a_pie(draw: Draw, subject: Phrase, tense: int) -> Clause:
    """he hit me with a pie, il m'a entarté: four words become one."""
    if draw.random() < 0.7:
        done = with_pronoun(draw, subject, tense, _ENTARTER, other_than(draw, subject))
    else:
        done = with_object(draw, subject, tense, _ENTARTER, something(draw, ("person", "kin"), subject))
    thrown = spots_of(_WITH_A_PIE)
    french = [(word, (*its, *thrown)) if word.lemma == "entarter" else (word, its) for word, its in done.french]
    return Clause(subject, done.front, done.rest + thrown, french)


_WITH_A_PIE = (small.WITH, small.AN, en("pie", "NOUN"))
_ENTARTER = make_verb("hit", "entarter")


def _playing(draw: Draw, subject: Phrase, tense: int, verb: Verb, kind: str, asked: bool) -> Clause:
    """play tennis, jouer au tennis; play the piano, jouer du piano."""
    noun = draw.pick(draw.lexicon.nouns[kind])
    thing = described(draw, noun, noun.plural_only, 1.0)
    its = tuple(thing.spots)
    define(thing)
    if kind == "game":
        thing.spots = list(its)
        thing.answers[0] = (thing.answers[0][0], its)
    said = speak(verb, tense, subject, negation_of(draw, subject, tense, verb.state), asked=asked)
    draw.said(said.rest)
    preposition = A if kind == "game" else verb.preposition
    led = [] if preposition is None else [(preposition, said.verb)]
    return Clause(subject, said.front, said.rest + thing.spots, [*said.french, *led, *thing.answers])


def giving(draw: Draw, subject: Phrase, tense: int, asked: bool = False) -> Clause:
    """She gives the child a book, elle donne un livre à l'enfant: the receiver changes sides."""
    verb, _, objects = draw.pick(draw.lexicon.verbs["give"])
    thing = something(draw, objects, subject)
    if draw.random() < 0.4:
        return _giving_them(draw, subject, tense, verb, thing, asked)
    receiver = something(draw, ("person", "kin"), subject)
    negation = negation_of(draw, subject, tense, verb.state)
    said = speak(verb, tense, subject, negation, asked=asked)
    draw.said(said.rest)
    given = thing.answers if negation is None else thing.after_negation()
    if verb.shifts and draw.random() < 0.5:
        rest, lead = [*said.rest, *receiver.spots, *thing.spots], said.verb
    else:
        to: Spot = [small.TOWARDS, 0]
        rest, lead = [*said.rest, *thing.spots, to, *receiver.spots], (to,)
    return Clause(subject, said.front, rest, [*said.french, *given, (A, lead), *receiver.answers], thing)


def _giving_them(draw: Draw, subject: Phrase, tense: int, verb: Verb, thing: Phrase, asked: bool) -> Clause:
    """She gives me a book, elle me donne un livre."""
    other = other_than(draw, subject)
    spot: Spot = [other.object, 0]
    negation = negation_of(draw, subject, tense, verb.state)
    said = speak(verb, tense, subject, negation, [(other.indirect, (spot,))], asked=asked)
    draw.said(said.rest)
    given = thing.answers if negation is None else thing.after_negation()
    if verb.shifts:
        return Clause(subject, said.front, [*said.rest, spot, *thing.spots], said.french + given, thing)
    to: Spot = [small.TOWARDS, 0]
    french = [(word, (to, *its)) if its == (spot,) else (word, its) for word, its in said.french]
    return Clause(subject, said.front, [*said.rest, *thing.spots, to, spot], french + given, thing)


_POUVOIR, _DEVOIR = make_verb("can", "pouvoir"), make_verb("must", "devoir")
_CAN, _MUST, _COULD = (
    (en("can", "AUX"), _POUVOIR.present),
    (en("must", "AUX"), _DEVOIR.present),
    (en("could", "AUX"), _POUVOIR.imperfect),
)
MODALS = {PRESENT: (_CAN, _MUST), NOW: (_CAN, _MUST), PAST: (_COULD,), THEN: (_COULD,)}


def wishing(draw: Draw, subject: Phrase, tense: int, asked: bool = False) -> Clause:
    """He wants to see her, il veut la voir; he is going to sleep, il va dormir; she must leave, elle doit partir."""
    chance = draw.random()
    if chance < 0.2 and tense in MODALS:
        english, forms = draw.pick(MODALS[tense])
        spot: Spot = [english, 0]
        return _to_do(draw, Clause(subject, [spot], [], [(forms[subject.person], (spot,))]), None, bare=True)
    going = chance < 0.4 and tense in (NOW, THEN)
    verb = draw.lexicon.aller if going else draw.pick(draw.lexicon.verbs["to"])[0]
    negation = negation_of(draw, subject, tense, verb.state)
    said = speak(verb, tense, subject, negation, asked=asked)
    marker = None if verb.preposition is None else (verb.preposition, said.verb)
    begun = Clause(subject, said.front, said.rest, said.french)
    return _to_do(draw, begun, marker, negated=negation is not None)


def _to_do(draw: Draw, begun: Clause, marker: Answer | None, bare: bool = False, negated: bool = False) -> Clause:
    """What somebody wants, has or is going to do, as an infinitive."""
    chance = draw.random()
    subject = begun.subject
    more: list[Spot] = []
    plus: list[Answer] = []
    if chance < 0.35:
        verb = draw.pick(draw.lexicon.people_alone)
        what = infinitive(verb, subject, marker, bare=bare)
        if not verb.away and draw.random() < 0.3:
            more, plus = whereabouts(draw)
    elif chance < 0.5:
        verb = draw.pick(draw.lexicon.verbs["place"])[0]
        what = infinitive(verb, subject, marker, bare=bare)
        more, plus = whereabouts(draw, verb.motion)
    else:
        what, more, plus = _to_do_to(draw, subject, marker, bare, negated)
    return Clause(
        subject, begun.front, [*begun.rest, *what.front, *what.rest, *more], begun.french + what.french + plus
    )


def _to_do_to(
    draw: Draw, subject: Phrase, marker: Answer | None, bare: bool, negated: bool
) -> tuple[Spoken, list[Spot], list[Answer]]:
    while True:
        verb, objects = draw.pick(draw.lexicon.people_object)
        if objects[0] not in ("game", "instrument"):
            break
    preposition = verb.preposition
    if objects[0] == "person" and draw.random() < 0.4 and (preposition is None or preposition is A):
        other = other_than(draw, subject)
        spot: Spot = [other.object, 0]
        clitics: list[Answer] = [(other.direct if preposition is None else other.indirect, (spot,))]
        what = infinitive(verb, subject, marker, clitics, bare)
        return what._replace(rest=with_it(verb, what.rest, spot)), [], []
    thing = something(draw, objects, subject)
    if verb.lemma in LIKING:
        thing.in_general()
    what = infinitive(verb, subject, marker, bare=bare)
    if preposition is not None:
        return what, thing.spots, [(preposition, what.verb), *thing.after(preposition)]
    answers = thing.after_negation() if negated else thing.answers
    return what, thing.spots, answers
