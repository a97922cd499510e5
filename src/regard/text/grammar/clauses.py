"""Clauses of every frame, and clauses within clauses: what one says, and who did what one speaks of."""

from __future__ import annotations

from regard.text.grammar import particles as small
from regard.text.grammar.copula import being, missing, penniless
from regard.text.grammar.frames import (
    LIKING,
    Clause,
    acting,
    alone,
    giving,
    placed,
    wishing,
    with_a_pie,
    with_it,
    with_object,
)
from regard.text.grammar.lexicon import Verb
from regard.text.grammar.noun_phrases import described, noun_phrase, somebody, something
from regard.text.grammar.phrases import Phrase, define
from regard.text.grammar.rng import Draw
from regard.text.grammar.tokens import Answer, Spot
from regard.text.grammar.verb_phrase import FUTURE, NOW, PAST, PRESENT, THEN, speak

BACKGROUND = {PAST: THEN, THEN: THEN}  # he said that she was sleeping: what was going on at that time


def clause(draw: Draw, tense: int, depth: int = 0, asked: bool = False) -> Clause:
    """Mostly persons act; now and then an animal does, or a vehicle, or the sun. `depth`: how far clauses may nest."""
    if draw.random() < 0.87:
        subject = somebody(draw)
        if depth and subject.noun is not None and draw.random() < 0.3:
            relate(draw, subject, tense)
        return saying(draw, subject, tense, depth, asked)
    return _creature(draw, tense, asked)


def saying(draw: Draw, subject: Phrase, tense: int, depth: int = 0, asked: bool = False) -> Clause:
    """What somebody does, in any frame."""
    chance = draw.random()
    if chance < 0.44:
        done = acting(draw, subject, tense, asked)
        if depth and done.object is not None and done.object.noun is not None and draw.random() < 0.3:
            return _with_relative(draw, done, tense)
        return done
    if chance < 0.56:
        return alone(draw, subject, tense, asked)
    if chance < 0.66:
        return placed(draw, subject, tense, asked)
    if chance < 0.75:
        return giving(draw, subject, tense, asked)
    if chance < 0.85:
        return being(draw, subject, tense, asked)
    if chance < 0.92 or asked:
        return wishing(draw, subject, tense, asked)
    if chance < 0.935 and not subject.several:  # one would have to say à twice: à Paul et à Marie
        return missing(draw, subject, tense)
    if chance < 0.945:
        return penniless(draw, subject, tense)
    if chance < 0.955:
        return with_a_pie(draw, subject, tense)
    return thinking(draw, subject, tense, depth)


def _creature(draw: Draw, tense: int, asked: bool) -> Clause:
    """Animals, vehicles, plants, the sun: each does what its kind can do."""
    chance = draw.random()
    if chance < 0.25:
        return _homonym(draw, tense, asked)
    verb, subjects, objects = draw.pick(draw.lexicon.creatures)
    subject = noun_phrase(draw, draw.pick(draw.lexicon.nouns[draw.pick(subjects)]), subject=True)
    if chance < 0.4:
        return being(draw, subject, tense, asked)
    if not objects:
        return alone(draw, subject, tense, asked, verb)
    return with_object(draw, subject, tense, verb, something(draw, objects, subject), asked)


def _homonym(draw: Draw, tense: int, asked: bool) -> Clause:
    """A bat that flies, or a bat that breaks: only the company of the word tells which."""
    noun, acts, verbs = draw.pick(draw.lexicon.homonyms)
    verb = draw.pick(verbs)
    if acts:
        return alone(draw, noun_phrase(draw, noun, subject=True), tense, asked, verb)
    subject = somebody(draw)
    return with_object(draw, subject, tense, verb, noun_phrase(draw, noun, subject.stands_for), asked)


def thinking(draw: Draw, subject: Phrase, tense: int, depth: int) -> Clause:
    """She thinks that Paul is sleeping, elle pense que Paul dort."""
    verb = draw.pick(draw.lexicon.verbs["that"])[0]
    tense = PAST if tense in BACKGROUND else FUTURE if tense == FUTURE else PRESENT
    said = speak(verb, tense, subject)
    that: Spot = [small.THAT, 0]
    draw.said([*subject.spots, *said.front, *said.rest, that])
    inner = clause(draw, BACKGROUND.get(tense, draw.pick((PRESENT, NOW, PAST))), depth - 1 if depth else 0)
    rest = [*said.rest, that, *inner.spots]
    return Clause(subject, said.front, rest, [*said.french, (small.QUE, (that,)), *inner.answers])


def relate(draw: Draw, head: Phrase, tense: int) -> None:
    """Put a relative clause to a noun: the man who sings, the apple that Paul ate, the girl whose dog is barking."""
    assert head.noun is not None
    human = head.noun.kind in ("person", "kin")
    chance = draw.random()
    verbs = draw.lexicon.done_to.get(head.noun.kind)
    if human and chance < 0.45:
        more, plus = _who(draw, head, tense)
    elif human and chance < 0.6:
        more, plus = _whose(draw, tense)
    elif verbs:
        more, plus = _whom(draw, head, tense, draw.pick(verbs), human)
    else:
        return
    head.spots = head.spots + more
    head.answers = head.answers + plus


def _who(draw: Draw, head: Phrase, tense: int) -> tuple[list[Spot], list[Answer]]:
    who: Spot = [small.WHO, 0]
    frame = draw.pick((acting, alone, placed, being))
    inner = frame(draw, head, tense)
    return [who, *inner.front, *inner.rest], [(small.QUI, (who,)), *inner.french]


def _whose(draw: Draw, tense: int) -> tuple[list[Spot], list[Answer]]:
    """whose dog is sleeping, dont le chien dort."""
    whose: Spot = [small.WHOSE, 0]
    theirs = described(draw, draw.pick(draw.lexicon.nouns[draw.pick(("kin", "kin", "animal"))]), False, 0.8)
    spots = list(theirs.spots)
    define(theirs)
    article = theirs.answers[0][0]
    theirs.spots, theirs.answers = spots, [(small.DONT, (whose,)), (article, (whose,)), *theirs.answers[1:]]
    human = theirs.noun is not None and theirs.noun.kind == "kin"
    inner = (draw.pick((acting, alone, being)) if human else being)(draw, theirs, tense)
    return [whose, *inner.spots], inner.answers


def _whom(draw: Draw, head: Phrase, tense: int, verb: Verb, human: bool) -> tuple[list[Spot], list[Answer]]:
    """the apple that Paul ate, la pomme que Paul a mangée: the participle agrees with what came before."""
    that: Spot = [small.WHOM if human else small.THAT_ONE, 0]
    subject = somebody(draw, newcomer=True)
    said = speak(verb, tense, subject, agreement=head.feminine + 2 * head.plural)
    return [that, *subject.spots, *said.front, *said.rest], [(small.QUE_ONE, (that,)), *subject.answers, *said.french]


def _with_relative(draw: Draw, done: Clause, tense: int) -> Clause:
    """Put a relative clause to the object of a clause that ends in it."""
    thing = done.object
    assert thing is not None and thing.noun is not None
    if done.rest[-1] is not thing.spots[-1] or done.french[-1] is not thing.answers[-1]:
        return done
    spots, answers = len(thing.spots), len(thing.answers)
    relate(draw, thing, tense)
    return done._replace(rest=done.rest + thing.spots[spots:], french=done.french + thing.answers[answers:])


def chain(draw: Draw, subject: Phrase, tense: int) -> Clause:
    """He takes the apple and eats it, il prend la pomme et la mange: the pronoun agrees with what it stands for."""
    while True:
        verb, objects = draw.pick(draw.lexicon.people_object)
        if verb.preposition is None and not verb.reflexive and objects[0] in draw.lexicon.done_to:
            break
    thing = something(draw, objects, subject)
    if verb.lemma in LIKING:
        thing.in_general()
    first = speak(verb, tense, subject)
    kind = thing.noun.kind + ("*" if thing.noun.mass else "") if thing.noun is not None else objects[0]
    choices = draw.lexicon.done_to.get(kind) or draw.lexicon.done_to[objects[0]]
    then = draw.pick(choices)
    while then.lemma == verb.lemma:
        then = draw.pick(choices)
    it = thing.stands_for
    link: Spot = [small.AND, 0]
    spot: Spot = [it.object, 0]
    second = speak(then, tense, subject, None, [(it.direct, (spot,))], it.feminine + 2 * it.plural)
    rest = [*first.rest, *thing.spots, link, *second.front, *with_it(then, second.rest, spot)]
    return Clause(subject, first.front, rest, [*first.french, *thing.answers, (small.ET, (link,)), *second.french])
