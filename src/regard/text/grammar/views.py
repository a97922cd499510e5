"""The grammar's sentences seen from other sides: parts of speech, words of two meanings, questions about passages.

A passage tells of several people, each of whom did one thing; no two share what was done, to what, or where. So a
question has one answer, a stretch of the passage, and every other sentence is there to mislead.
"""

from __future__ import annotations

from typing import NamedTuple

from regard.text.examples import Answered, Sense, Tagged
from regard.text.grammar import particles as small
from regard.text.grammar.frames import Clause
from regard.text.grammar.lexicon import Verb
from regard.text.grammar.noun_phrases import described, name, whereabouts
from regard.text.grammar.phrases import Phrase, define
from regard.text.grammar.rng import Draw
from regard.text.grammar.sentences import closed, said_of, sentence
from regard.text.grammar.tokens import QUESTION_MARK, Sentence, Spot
from regard.text.grammar.verb_phrase import PAST, speak

# English words with two meanings, and the French lemmas that tell them apart.
SENSES = {
    "train": ("train", "s'entraîner"),
    "bat": ("chauve-souris", "batte"),
    "bank": ("banque", "rive"),
    "nail": ("clou", "ongle"),
    "match": ("allumette", "match"),
    "spring": ("ressort", "source"),
    "seal": ("phoque", "sceau"),
    "saw": ("scie", "voir"),
    "watch": ("montre", "observer"),
    "fly": ("mouche", "voler"),
    "play": ("pièce", "jouer", "jouer de", "jouer à"),
    "ring": ("bague", "sonner"),
    "water": ("eau", "arroser"),
    "plant": ("plante", "planter"),
    "fish": ("poisson", "pêcher"),
    "cook": ("cuisinier", "cuisiner"),
    "light": ("léger", "allumer"),
    "star": ("vedette", "étoile"),
    "judge": ("juge", "juger"),
    "miss": ("rater", "manquer à"),
}


def tagged(draw: Draw) -> Tagged:
    """The words of an English sentence and their parts of speech (the universal tags: NOUN, VERB, ADJ ...)."""
    drawn = sentence(draw)
    return Tagged(drawn.source, tuple(word.tag for word in drawn.source_words))


def tagged_french(draw: Draw) -> Tagged:
    drawn = sentence(draw)
    return Tagged(drawn.target, tuple(word.tag for word in drawn.target_words))


def sense(draw: Draw) -> Sense:
    """A word of two meanings in a sentence: he took a train, he likes to train."""
    while True:
        drawn = sentence(draw)
        if len(drawn.source) > 20:
            continue
        for place, word in enumerate(drawn.source_words):
            ambiguous = word.form if word.form in SENSES else word.lemma
            if ambiguous in SENSES:
                for source, target in drawn.links:
                    meaning = drawn.target_words[target].lemma
                    if source == place and meaning in SENSES[ambiguous]:
                        return Sense(" ".join(drawn.source), place, drawn.source[place], meaning)


class Fact(NamedTuple):
    """One thing that one person did, and where the two stand in its sentence."""

    drawn: Sentence
    who: tuple[str, ...]
    verb: Verb
    what: tuple[str, ...]  # the object, or the place with its preposition
    who_at: tuple[int, int]
    what_at: tuple[int, int]
    placed: bool


def question(draw: Draw) -> Answered:
    """Who bought the lamp? In a passage of three to six sentences, with the characters of the answer."""
    facts = _facts(draw, draw.pick((3, 4, 5, 6)))
    number = int(draw.random() * len(facts))
    asked = facts[number]
    about_who = draw.random() < 0.5
    start, end = asked.who_at if about_who else asked.what_at
    before = " ".join(" ".join(fact.drawn.source) for fact in facts[:number])
    lead = len(before) + 1 if before else 0
    words = asked.drawn.source
    begin = lead + sum(len(word) + 1 for word in words[:start])
    answer = " ".join(words[start:end])
    passage = " ".join(" ".join(fact.drawn.source) for fact in facts)
    return Answered(" ".join(_asked(asked, about_who)), passage, begin, begin + len(answer))


def _facts(draw: Draw, count: int) -> list[Fact]:
    """Facts that share no person, verb, object or place."""
    facts: list[Fact] = []
    taken: set[str] = set()
    while len(facts) < count:
        fact = _placed(draw) if draw.random() < 0.35 else _done(draw)
        marks = {" ".join(fact.who), fact.verb.lemma, fact.verb.base.lemma, fact.what[-1]}
        if not marks & taken:
            taken |= marks
            facts.append(fact)
    return facts


def _done(draw: Draw) -> Fact:
    while True:
        verb, objects = draw.pick(draw.lexicon.people_object)
        if objects[0] not in ("person", "game", "instrument") and not verb.state:
            break
    noun = draw.pick(draw.lexicon.nouns[draw.pick(objects)])
    thing = described(draw, noun, False, 0.7)
    define(thing)
    who = name(draw)
    said = speak(verb, PAST, who)
    preposition = [] if verb.preposition is None else [(verb.preposition, said.verb)]
    done = Clause(who, said.front, said.rest + thing.spots, [*said.french, *preposition, *thing.answers])
    return _fact(closed(said_of(done)), who, verb, thing.spots, placed=False)


def _placed(draw: Draw) -> Fact:
    verb = draw.pick(draw.lexicon.verbs["place"])[0]
    who = name(draw)
    said = speak(verb, PAST, who)
    there, la = whereabouts(draw, verb.motion)
    done = Clause(who, said.front, said.rest + there, said.french + la)
    return _fact(closed(said_of(done)), who, verb, there, placed=True)


def _fact(drawn: Sentence, who: Phrase, verb: Verb, what: list[Spot], placed: bool) -> Fact:
    first, last = what[0][1], what[-1][1] + 1
    whole = len(who.spots)
    return Fact(drawn, drawn.source[:whole], verb, drawn.source[first:last], (0, whole), (first, last), placed)


def _asked(fact: Fact, about_who: bool) -> tuple[str, ...]:
    """Who bought the lamp? What did Paul buy? Where did Paul wait?"""
    verb = fact.verb
    particles = [word.form for word in verb.particles]
    if about_who:
        return ("Who", verb.past.form, *particles, *fact.what, QUESTION_MARK.form)
    asked = small.WHERE if fact.placed else small.WHAT
    return (asked.form.capitalize(), small.DID.form, *fact.who, verb.base.form, *particles, QUESTION_MARK.form)
