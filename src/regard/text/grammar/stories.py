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
from regard.text.grammar.phrases import Phrase, define, fixed, own, pronoun, proper, titled
from regard.text.grammar.sentences import LONGEST, SHORTEST, closed, led, often, said_of
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
    feminine = draw.random() < 0.5
    hero, friend = _person(draw, feminine), _person(draw, not feminine)  # so that he and she are told apart
    told = [_introduced(draw, hero)]
    last: Clause | None = None  # a sentence whose object may come up again
    for number in range(draw.pick((3, 4, 5, 6, 7, 8, 9))):
        if last is not None and draw.random() < 0.6:
            told.append(closed(said_of(_about(draw, last, hero))))
            last = None
            continue
        done = _next(draw, hero, friend, fresh=number == 0)
        last = done if _lasts(done, hero) else None
        told.append(closed(_perhaps_later(draw, done)))
    return [drawn for drawn in told if SHORTEST <= len(drawn.source) <= LONGEST]


def _lasts(done: Clause, hero: Person) -> bool:
    """Whether there is something to go on with: what the hero did do something to, and nobody else's."""
    thing = done.object
    if thing is None or thing.noun is None or done.subject.feminine != hero().feminine:
        return False
    return not any(word is small.NE for word, _ in done.french) and not any(spot[0] is small.S for spot in thing.spots)


def _person(draw: Draw, feminine: bool) -> Person:
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


def _about(draw: Draw, last: Clause, hero: Person) -> Clause:
    """What was just spoken of: the bicycle was old; she sold it."""
    thing = last.object
    assert thing is not None and thing.noun is not None
    choices = draw.lexicon.predicates[thing.noun.kind]
    if choices and draw.random() < 0.5 and not any(spot[0].tag == "ADJ" for spot in thing.spots):
        again = described(draw, thing.noun, thing.plural, 1.0)
        if thing.noun.kind == "kin":
            own(again, hero().stands_for)
        else:
            define(again)
        return described_as(draw, again, PAST, draw.pick(choices), None)
    who = pronoun(hero().stands_for)
    done_already = {word.lemma for word, _ in last.french}
    kind = thing.noun.kind + ("*" if thing.noun.mass else "")
    verbs = [verb for verb in draw.lexicon.done_to.get(kind, ()) if verb.lemma not in done_already]
    if not verbs:
        return alone(draw, who, PAST)
    while True:
        done = with_pronoun(draw, who, PAST, draw.pick(verbs), thing.stands_for)
        if not any(word is small.NE for word, _ in done.french):
            return done


def _perhaps_later(draw: Draw, done: Clause) -> tuple[list[Spot], list[Answer]]:
    if draw.random() < 0.2 and not often(done):
        return led(fixed(draw.pick(draw.lexicon.times["past"])), said_of(done))
    return said_of(done)
