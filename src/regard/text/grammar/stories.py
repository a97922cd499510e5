"""Documents: a few connected sentences about the same people and things, in both languages.

Somebody is introduced by name, goes on as a pronoun, and comes back by name: what a language model must copy. Something
that was bought or found comes up again in the next sentence: what follows belongs to what came before.
"""

from __future__ import annotations

from collections.abc import Callable

from regard.text.examples import Document
from regard.text.grammar import names
from regard.text.grammar import particles as small
from regard.text.grammar.being import being, described_as
from regard.text.grammar.chance import Draw
from regard.text.grammar.clauses import saying
from regard.text.grammar.frames import Clause, acting, alone, giving, placed, with_pronoun
from regard.text.grammar.nominals import described
from regard.text.grammar.phrases import Phrase, define, fixed, pronoun, proper, titled
from regard.text.grammar.sentences import LONGEST, SHORTEST, closed, led, said_of
from regard.text.grammar.speech import PAST, THEN, speak
from regard.text.grammar.tokens import A, Answer, Sentence, Spot

Person = Callable[[], Phrase]  # says the name once more


def document(draw: Draw) -> Document:
    """An English document of 4 to 10 sentences."""
    return Document(tuple(" ".join(drawn.source) for drawn in story(draw)))


def document_french(draw: Draw) -> Document:
    return Document(tuple(" ".join(drawn.target) for drawn in story(draw)))


def story(draw: Draw) -> list[Sentence]:
    """The sentences of a document, with their translations and links."""
    hero, friend = _person(draw), _person(draw)
    told = [_introduced(draw, hero)]
    thing: Phrase | None = None  # what the last sentence spoke of
    for number in range(draw.pick((3, 4, 5, 6, 7, 8, 9))):
        chance = draw.random()
        if thing is not None and chance < 0.6:
            told.append(_about(draw, thing, hero))
            thing = None
            continue
        done = _next(draw, hero, friend, fresh=number == 0)
        thing = done.object if done.object is not None and done.object.noun is not None else None
        told.append(closed(_perhaps_later(draw, done)))
    return [drawn for drawn in told if SHORTEST <= len(drawn.source) <= LONGEST]


def _person(draw: Draw) -> Person:
    feminine = draw.random() < 0.5
    if draw.families is names.FAMILIES and draw.random() < 0.3:
        form = draw.pick(names.WOMEN if feminine else names.MEN)

        def called() -> Phrase:
            english, french = proper(form)
            spot: Spot = [english, 0]
            return Phrase([spot], [(french, (spot,))], feminine, False)

        return called
    family = draw.pick(draw.families)
    return lambda: titled(family, feminine)


def _introduced(draw: Draw, hero: Person) -> Sentence:
    """Ms. Valdon lived in Torvik."""
    who = hero()
    live = draw.lexicon.verbs["place"][0][0]
    said = speak(live, PAST, who)
    english, french = proper(draw.pick(draw.towns))
    spots: list[Spot] = [[small.IN, 0], [english, 0]]
    answers: list[Answer] = [(A, (spots[0],)), (french, (spots[1],))]
    return closed(said_of(Clause(who, said.front, said.rest + spots, said.french + answers)))


def _next(draw: Draw, hero: Person, friend: Person, fresh: bool) -> Clause:
    """What happens next: to the hero, by name or as a pronoun, or between the two."""
    chance = draw.random()
    tense = PAST if draw.random() < 0.85 else THEN
    if chance < 0.2:
        verb = draw.pick(draw.lexicon.done_to["person"])
        return with_pronoun(draw, friend(), tense, verb, hero().stands_for)
    if chance < 0.3:
        return saying(draw, friend(), tense)
    who = hero() if chance < 0.5 or fresh else pronoun(hero().stands_for)
    return draw.pick((acting, acting, acting, alone, placed, giving, being))(draw, who, tense)


def _about(draw: Draw, thing: Phrase, hero: Person) -> Sentence:
    """What was just spoken of: the bicycle was old; she sold it."""
    assert thing.noun is not None
    choices = draw.lexicon.predicates[thing.noun.kind]
    kind = thing.noun.kind + ("*" if thing.noun.mass else "")
    verbs = draw.lexicon.done_to.get(kind)
    if choices and (draw.random() < 0.5 or not verbs):
        again = described(draw, thing.noun, thing.plural, 1.0)
        define(again)
        return closed(said_of(described_as(draw, again, PAST, draw.pick(choices), None)))
    who = pronoun(hero().stands_for)
    if verbs:
        return closed(said_of(with_pronoun(draw, who, PAST, draw.pick(verbs), thing.stands_for)))
    return closed(said_of(alone(draw, who, PAST)))


def _perhaps_later(draw: Draw, done: Clause) -> tuple[list[Spot], list[Answer]]:
    if draw.random() < 0.2:
        return led(fixed(draw.pick(draw.lexicon.times["past"])), said_of(done))
    return said_of(done)
