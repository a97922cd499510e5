"""Documents: a few connected sentences about the same people and things, in both languages.

Somebody is introduced by name, goes on as a pronoun, and comes back by name: what a language model must copy. Something
that was bought or found comes up again in the next sentence: what follows belongs to what came before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from regard.text.examples import Document
from regard.text.grammar import nouns, particles as small
from regard.text.grammar.clauses import saying
from regard.text.grammar.copula import being, described_as
from regard.text.grammar.frames import Clause, acting, alone, giving, placed, with_pronoun
from regard.text.grammar.lexicon import Noun, Verb, lexicon
from regard.text.grammar.noun_phrases import described
from regard.text.grammar.particles import Pronoun
from regard.text.grammar.phrases import Phrase, define, fixed, own, pronoun, proper, titled
from regard.text.grammar.rng import Draw
from regard.text.grammar.sentences import LONGEST, SHORTEST, closed, led, often, said_of
from regard.text.grammar.tokens import A, Answer, Sentence, Spot
from regard.text.grammar.verb_phrase import PAST, THEN, speak


class Person(NamedTuple):
    """Somebody whom a story is about."""

    feminine: bool
    named: Callable[[], Phrase]  # says the name once more

    @property
    def stands_for(self) -> Pronoun:
        return small.SHE if self.feminine else small.HE


def document(draw: Draw) -> Document:
    """An English document of 4 to 10 sentences."""
    return Document(tuple(" ".join(drawn.source) for drawn in story(draw)))


def document_french(draw: Draw) -> Document:
    return Document(tuple(" ".join(drawn.target) for drawn in story(draw)))


def story(draw: Draw) -> list[Sentence]:
    """The sentences of a document, with their translations and links."""
    feminine = draw.random() < 0.5
    hero, friend = _person(draw, feminine), _person(draw, not feminine)  # so that he and she are told apart
    told = [_introduced(draw, hero)]
    last: Clause | None = None  # a sentence whose object may come up again
    for number in range(draw.pick((3, 4, 5, 6, 7, 8, 9))):
        if last is not None and draw.random() < 0.6:
            assert last.object is not None
            told.append(closed(said_of(_about(draw, last.object, {word.lemma for word, _ in last.french}, hero))))
            last = None
            continue
        done = _next(draw, hero, friend, fresh=number == 0)
        last = done if _lasts(done, hero) else None
        told.append(closed(_perhaps_later(draw, done)))
    return [drawn for drawn in told if SHORTEST <= len(drawn.source) <= LONGEST]


def told(draw: Draw) -> Sentence:
    """Any one sentence that a story may hold: what `reading` can read."""
    feminine = draw.random() < 0.5
    hero, friend = _anybody(draw, feminine), _anybody(draw, not feminine)
    chance = draw.random()
    if chance < 0.2:
        return _introduced(draw, hero)
    if chance < 0.4:
        noun = draw.pick(draw.lexicon.nouns[draw.pick(_DESCRIBED)])
        plural = noun.plural_only or (not noun.mass and noun.kind not in ("kin", "sky") and draw.random() < 0.5)
        return closed(said_of(_such_it_was(draw, noun, plural, hero)))
    if chance < 0.6:
        kind = draw.pick(_DONE_TO)
        them = (small.HE, small.SHE) if kind in ("person", "kin") else (small.IT,)
        some = them if kind.endswith("*") else (*them, small.THEY)
        verb = draw.pick(draw.lexicon.done_to[kind])
        return closed(said_of(_done_to_it(draw, hero, (verb,), draw.pick(some))))
    return closed(_perhaps_later(draw, _next(draw, hero, friend, fresh=False)))


_DESCRIBED = tuple(kind for kind in lexicon().nouns if lexicon().predicates.get(kind.rstrip("*")))
_DONE_TO = tuple(lexicon().done_to)


def _lasts(done: Clause, hero: Person) -> bool:
    """Whether there is something to go on with: what the hero did do something to, and nobody else's."""
    thing = done.object
    if thing is None or thing.noun is None or done.subject.feminine != hero.feminine:
        return False
    return not any(word is small.NE for word, _ in done.french) and not any(spot[0] is small.S for spot in thing.spots)


def _person(draw: Draw, feminine: bool) -> Person:
    """With a name of their own."""
    return Person(feminine, _name(draw, feminine))


def _anybody(draw: Draw, feminine: bool) -> Person:
    """Whose name is drawn when it is said."""

    def named() -> Phrase:
        phrase = _name(draw, feminine)()
        draw.said(phrase.spots)
        return phrase

    return Person(feminine, named)


def _name(draw: Draw, feminine: bool) -> Callable[[], Phrase]:
    if draw.families is nouns.FAMILIES and draw.random() < 0.3:
        form = draw.pick(nouns.WOMEN if feminine else nouns.MEN)

        def called() -> Phrase:
            english, french = proper(form)
            spot: Spot = [english, 0]
            return Phrase([spot], [(french, (spot,))], feminine, False)

        return called
    family = draw.pick(draw.families)
    return lambda: titled(family, feminine)


def _introduced(draw: Draw, hero: Person) -> Sentence:
    """Ms. Valdon lived in Torvik."""
    who = hero.named()
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
        return with_pronoun(draw, friend.named(), tense, verb, hero.stands_for)
    if chance < 0.3:
        return saying(draw, friend.named(), tense)
    who = hero.named() if chance < 0.5 or fresh else pronoun(hero.stands_for)
    return draw.pick((acting, acting, acting, alone, placed, giving, being))(draw, who, tense)


def _about(draw: Draw, thing: Phrase, done_already: set[str], hero: Person) -> Clause:
    """What was just spoken of: the bicycle was old; she sold it."""
    assert thing.noun is not None
    choices = draw.lexicon.predicates[thing.noun.kind]
    if choices and draw.random() < 0.5 and not any(spot[0].tag == "ADJ" for spot in thing.spots):
        return _such_it_was(draw, thing.noun, thing.plural, hero)
    kind = thing.noun.kind + ("*" if thing.noun.mass else "")
    verbs = [verb for verb in draw.lexicon.done_to.get(kind, ()) if verb.lemma not in done_already]
    if not verbs:
        return alone(draw, pronoun(hero.stands_for), PAST)
    return _done_to_it(draw, hero, verbs, thing.stands_for)


def _such_it_was(draw: Draw, noun: Noun, plural: bool, hero: Person) -> Clause:
    """The bicycle was old; her brother was taller than Paul."""
    again = described(draw, noun, plural, 1.0)
    if noun.kind == "kin":
        own(again, hero.stands_for)
    else:
        define(again)
    return described_as(draw, again, PAST, draw.pick(draw.lexicon.predicates[noun.kind]), None)


def _done_to_it(draw: Draw, hero: Person, verbs: Sequence[Verb], it: Pronoun) -> Clause:
    """She sold it, which is never said not to be so."""
    who = pronoun(hero.stands_for)
    while True:
        done = with_pronoun(draw, who, PAST, draw.pick(verbs), it)
        if not any(word is small.NE for word, _ in done.french):
            return done


def _perhaps_later(draw: Draw, done: Clause) -> tuple[list[Spot], list[Answer]]:
    if draw.random() < 0.2 and not often(done):
        return led(fixed(draw.pick(draw.lexicon.times["past"])), said_of(done))
    return said_of(done)
