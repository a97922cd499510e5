"""Opinions: two judgements that pull in opposite ways, of which the main clause decides.

*Even though the film was not bad, the meal was not good* is negative; with its halves exchanged it is positive, and
holds the same words. Both are drawn equally often, so no bag of words tells them apart; and since every judgement is
negated as often as not, praise and blame alone say nothing either. One has to see which clause is the main one, and
what *not* belongs to. A *verdict* is simpler: one word of praise or blame, which is all that counts.
"""

from __future__ import annotations

from typing import NamedTuple

from regard.text.examples import Document, Labelled
from regard.text.grammar import particles as small
from regard.text.grammar.clauses import clause
from regard.text.grammar.frames import Clause
from regard.text.grammar.lexicon import Noun, make_verb
from regard.text.grammar.noun_phrases import described
from regard.text.grammar.phrases import define, pronoun
from regard.text.grammar.rng import Draw
from regard.text.grammar.sentences import closed, fronted, link, said_of
from regard.text.grammar.tokens import Answer, Sentence, Spot
from regard.text.grammar.verb_phrase import PAST, PRESENT, speak

LIKES = tuple(make_verb(*pair) for pair in (("love", "adorer~"), ("like", "aimer~"), ("enjoy", "apprécier~")))
HATES = tuple(make_verb(*pair) for pair in (("hate", "détester~"), ("despise", "mépriser~")))
PLAINLY = 0.1  # reviews say *not* less often than the opinions of the labelled view: they can be learned from
EVEN_THOUGH, MEME_SI = small.SUBORDINATORS[3]


def opinion(draw: Draw) -> Labelled:
    """An English sentence with its label, positive or negative, and the words that decide it."""
    return _english(*judged(draw))


def opinion_french(draw: Draw) -> Labelled:
    """The same in French; the evidence are the words that answer to the English ones."""
    return _french(*judged(draw))


def verdict(draw: Draw) -> Labelled:
    """An English sentence in which one word decides: praise or blame, never negated, beside a clause that says neither.

    What has to be found is known for certain: whatever else stands in the sentence has nothing to do with the label.
    """
    return _english(*_plainly(draw))


def verdict_french(draw: Draw) -> Labelled:
    """The same in French; the evidence are the words that answer to the English one."""
    return _french(*_plainly(draw))


def _english(drawn: Sentence, positive: bool, evidence: tuple[int, ...]) -> Labelled:
    return Labelled(" ".join(drawn.source), "positive" if positive else "negative", evidence=evidence)


def _french(drawn: Sentence, positive: bool, evidence: tuple[int, ...]) -> Labelled:
    """`evidence`: the English words; what answers to them decides."""
    places = tuple(sorted({target for source, target in drawn.links if source in evidence}))
    return Labelled(" ".join(drawn.target), "positive" if positive else "negative", evidence=places)


def _plainly(draw: Draw) -> tuple[Sentence, bool, tuple[int, ...]]:
    positive = draw.random() < 0.5
    tense = PRESENT if draw.random() < 0.4 else PAST
    decisive, [reason] = _judgement(draw, tense, draw.pick(draw.lexicon.nouns["work"]), positive, 0.0)
    other = _neither(draw, tense)
    parts = (said_of(decisive), said_of(other)) if draw.random() < 0.5 else (said_of(other), said_of(decisive))
    return closed(link(parts[0], (small.AND,), (small.ET,), parts[1], comma=True)), positive, (reason[1],)


def _neither(draw: Draw, tense: int) -> Clause:
    """A clause without a word of praise or blame."""
    judging = {adjective.english.form for adjective in (*draw.lexicon.praise, *draw.lexicon.blame)}
    for verb in (*LIKES, *HATES):
        judging |= {form.form for form in (verb.base, verb.third, verb.past, verb.participle, verb.ing)}
    while True:
        done = clause(draw, tense)
        if not any(spot[0].form in judging for spot in done.spots):
            return done


class Stance(NamedTuple):
    """What is held of two things: the main clause is about the first and says whether it is good, the other clause says
    the opposite of the second. `negated`: how often praise or blame is said by its opposite and *not*."""

    main: Noun
    other: Noun
    positive: bool
    negated: float = 0.5


def review(draw: Draw) -> Document:
    """An English document of 3 to 6 opinions about the same two things, one of which is good throughout."""
    return Document(tuple(" ".join(drawn.source) for drawn in _reviewed(draw)))


def review_french(draw: Draw) -> Document:
    return Document(tuple(" ".join(drawn.target) for drawn in _reviewed(draw)))


def _reviewed(draw: Draw) -> list[Sentence]:
    good, bad = _two_things(draw)
    stances = (Stance(good, bad, True, PLAINLY), Stance(bad, good, False, PLAINLY))
    return [judged(draw, draw.pick(stances))[0] for _ in range(draw.pick((3, 4, 5, 6)))]


def judged(draw: Draw, stance: Stance | None = None) -> tuple[Sentence, bool, tuple[int, ...]]:
    """A sentence, whether it is positive, and the words that decide."""
    stance = stance or Stance(*_two_things(draw), positive=draw.random() < 0.5)
    tense = PRESENT if draw.random() < 0.4 else PAST
    decisive, reasons = _judgement(draw, tense, stance.main, stance.positive, stance.negated)
    other, _ = _judgement(draw, tense, stance.other, not stance.positive, stance.negated)
    chance = draw.random()
    if chance < 0.34:
        drawn = closed(fronted(EVEN_THOUGH, MEME_SI, said_of(other), said_of(decisive)))
    elif chance < 0.67:
        drawn = closed(link(said_of(decisive), EVEN_THOUGH, MEME_SI, said_of(other), comma=False))
    else:
        drawn = closed(link(said_of(other), (small.BUT,), (small.MAIS,), said_of(decisive), comma=True))
    return drawn, stance.positive, tuple(sorted(spot[1] for spot in reasons))


def _two_things(draw: Draw) -> tuple[Noun, Noun]:
    choices = draw.lexicon.nouns["work"]
    first = draw.pick(choices)
    while True:
        second = draw.pick(choices)
        if second is not first:
            return first, second


def _judgement(draw: Draw, tense: int, noun: Noun, positive: bool, rate: float) -> tuple[Clause, list[Spot]]:
    """A clause that praises or blames, negated at this rate, and the words that do it."""
    negated = draw.random() < rate
    praising = positive != negated
    thing = described(draw, noun, False, 1.0)
    define(thing)
    negation = small.NEGATED if negated else None
    if draw.random() < 0.6:
        adjective = draw.pick(draw.lexicon.praise if praising else draw.lexicon.blame)
        said = speak(draw.lexicon.etre, tense, thing, negation)
        spot: Spot = [adjective.english, 0]
        french: list[Answer] = [(word, (spot,)) for word in adjective.french[thing.feminine]]
        done = Clause(thing, said.front, [*said.rest, spot], said.french + french)
    else:
        who = pronoun(draw.pick((small.I, small.WE)))
        verb = draw.pick(LIKES if praising else HATES)
        said = speak(verb, tense, who, negation)
        spot = said.verb[0]
        done = Clause(who, said.front, said.rest + thing.spots, said.french + thing.answers)
    reasons = [spot, *[word for word in said.rest if word[0] is small.NOT]]
    return done, reasons
