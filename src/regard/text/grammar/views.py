"""Other tasks on the grammar's sentences: part-of-speech tags, word senses, questions about passages.

In a passage, several people each do one thing; no two share the verb, the object or the place. So a question has one
answer, a span of the passage, and every other sentence is a distractor.
"""

from __future__ import annotations

from typing import NamedTuple

from regard.text.examples import Answered, Sense, Tagged
from regard.text.grammar import function_words as fw
from regard.text.grammar.frames import Clause
from regard.text.grammar.lexicon import Verb
from regard.text.grammar.noun_phrases import location, modified_noun, personal_name
from regard.text.grammar.phrases import NounPhrase, add_definite_article
from regard.text.grammar.rng import GrammarRng
from regard.text.grammar.sentences import end_sentence, sentence, words_of
from regard.text.grammar.tokens import QUESTION_MARK, SentencePair, Slot
from regard.text.grammar.verb_phrase import PAST, verb_phrase

# English words with two meanings, and the French lemmas that distinguish them.
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


def tagged(rng: GrammarRng) -> Tagged:
    """The words of an English sentence and their parts of speech (the universal tags: NOUN, VERB, ADJ ...)."""
    drawn = sentence(rng)
    return Tagged(drawn.source, tuple(word.tag for word in drawn.source_words))


def tagged_french(rng: GrammarRng) -> Tagged:
    drawn = sentence(rng)
    return Tagged(drawn.target, tuple(word.tag for word in drawn.target_words))


def sense(rng: GrammarRng) -> Sense:
    """A word of two meanings in a sentence: he took a train, he likes to train."""
    while True:
        drawn = sentence(rng)
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
    """One thing that one person did, and the word spans of both in the sentence."""

    drawn: SentencePair
    who: tuple[str, ...]
    verb: Verb
    what: tuple[str, ...]  # the object, or the place with its preposition
    who_at: tuple[int, int]
    what_at: tuple[int, int]
    placed: bool


def question(rng: GrammarRng) -> Answered:
    """Who bought the lamp? In a passage of three to six sentences, with the characters of the answer."""
    facts = _distinct_facts(rng, rng.choice((3, 4, 5, 6)))
    number = int(rng.random() * len(facts))
    queried = facts[number]
    about_who = rng.random() < 0.5
    start, end = queried.who_at if about_who else queried.what_at
    before = " ".join(" ".join(fact.drawn.source) for fact in facts[:number])
    lead = len(before) + 1 if before else 0
    words = queried.drawn.source
    begin = lead + sum(len(word) + 1 for word in words[:start])
    answer = " ".join(words[start:end])
    passage = " ".join(" ".join(fact.drawn.source) for fact in facts)
    return Answered(" ".join(_question_words(queried, about_who)), passage, begin, begin + len(answer))


def _distinct_facts(rng: GrammarRng, count: int) -> list[Fact]:
    """Facts that share no person, verb, object or place."""
    facts: list[Fact] = []
    taken: set[str] = set()
    while len(facts) < count:
        fact = _locative_fact(rng) if rng.random() < 0.35 else _transitive_fact(rng)
        marks = {" ".join(fact.who), fact.verb.lemma, fact.verb.base.lemma, fact.what[-1]}
        if not marks & taken:
            taken |= marks
            facts.append(fact)
    return facts


def _transitive_fact(rng: GrammarRng) -> Fact:
    while True:
        verb, objects = rng.choice(rng.lexicon.human_transitive)
        if objects[0] not in ("person", "game", "instrument") and not verb.stative:
            break
    noun = rng.choice(rng.lexicon.nouns[rng.choice(objects)])
    obj = modified_noun(rng, noun, False, 0.7)
    add_definite_article(obj)
    who = personal_name(rng)
    vp = verb_phrase(verb, PAST, who)
    preposition = [] if verb.preposition is None else [(verb.preposition, vp.verb)]
    built = Clause(who, vp.front, vp.rest + obj.slots, [*vp.french, *preposition, *obj.aligned])
    return _fact(end_sentence(words_of(built)), who, verb, obj.slots, placed=False)


def _locative_fact(rng: GrammarRng) -> Fact:
    verb = rng.choice(rng.lexicon.verbs["place"])[0]
    who = personal_name(rng)
    vp = verb_phrase(verb, PAST, who)
    there, la = location(rng, verb.is_motion)
    built = Clause(who, vp.front, vp.rest + there, vp.french + la)
    return _fact(end_sentence(words_of(built)), who, verb, there, placed=True)


def _fact(drawn: SentencePair, who: NounPhrase, verb: Verb, what: list[Slot], placed: bool) -> Fact:
    first, last = what[0][1], what[-1][1] + 1
    size = len(who.slots)
    return Fact(drawn, drawn.source[:size], verb, drawn.source[first:last], (0, size), (first, last), placed)


def _question_words(fact: Fact, about_who: bool) -> tuple[str, ...]:
    """Who bought the lamp? What did Paul buy? Where did Paul wait?"""
    verb = fact.verb
    particles = [word.form for word in verb.particles]
    if about_who:
        return ("Who", verb.past.form, *particles, *fact.what, QUESTION_MARK.form)
    queried = fw.WHERE if fact.placed else fw.WHAT
    return (queried.form.capitalize(), fw.DID.form, *fact.who, verb.base.form, *particles, QUESTION_MARK.form)
