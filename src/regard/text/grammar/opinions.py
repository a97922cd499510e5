"""Opinions for sentiment classification: two opposite judgements, of which the main clause decides.

*Even though the film was not bad, the meal was not good* is negative; with its halves exchanged it is positive, and
holds the same words. Both are drawn equally often, so no bag of words distinguishes them; and since every judgement is
negated as often as not, praise and blame alone say nothing either. A classifier must find the main clause and the
scope of *not*. A *verdict* is simpler: one word of praise or blame decides.
"""

from __future__ import annotations

from typing import NamedTuple

from regard.text.examples import Document, Labelled
from regard.text.grammar import function_words as fw
from regard.text.grammar.clauses import clause
from regard.text.grammar.frames import Clause
from regard.text.grammar.lexicon import Noun, make_verb
from regard.text.grammar.noun_phrases import modified_noun
from regard.text.grammar.phrases import add_definite_article, pronoun_phrase
from regard.text.grammar.rng import GrammarRng
from regard.text.grammar.sentences import conjoin, end_sentence, front_subordinate, words_of
from regard.text.grammar.tokens import AlignedWord, SentencePair, Slot
from regard.text.grammar.verb_phrase import PAST, PRESENT, verb_phrase

LIKE_VERBS = tuple(make_verb(*pair) for pair in (("love", "adorer~"), ("like", "aimer~"), ("enjoy", "apprécier~")))
HATE_VERBS = tuple(make_verb(*pair) for pair in (("hate", "détester~"), ("despise", "mépriser~")))
REVIEW_NEGATION_RATE = 0.1  # lower than in the labelled view, so that a language model can learn from reviews
EVEN_THOUGH, MEME_SI = fw.SUBORDINATORS[3]


def opinion(rng: GrammarRng) -> Labelled:
    """An English sentence with its label, positive or negative, and the words that decide it."""
    return _english(*opinion_sentence(rng))


def opinion_french(rng: GrammarRng) -> Labelled:
    """The same in French; the evidence are the words aligned to the English ones."""
    return _french(*opinion_sentence(rng))


def verdict(rng: GrammarRng) -> Labelled:
    """An English sentence in which one word of praise or blame decides, never negated, with a neutral clause.

    The evidence is known for certain: no other word of the sentence depends on the label.
    """
    return _english(*_verdict_sentence(rng))


def verdict_french(rng: GrammarRng) -> Labelled:
    """The same in French; the evidence are the words aligned to the English one."""
    return _french(*_verdict_sentence(rng))


def _english(drawn: SentencePair, positive: bool, evidence: tuple[int, ...]) -> Labelled:
    return Labelled(" ".join(drawn.source), "positive" if positive else "negative", evidence=evidence)


def _french(drawn: SentencePair, positive: bool, evidence: tuple[int, ...]) -> Labelled:
    """`evidence`: the deciding English words; the labelled text keeps those aligned to them."""
    places = tuple(sorted({target for source, target in drawn.links if source in evidence}))
    return Labelled(" ".join(drawn.target), "positive" if positive else "negative", evidence=places)


def _verdict_sentence(rng: GrammarRng) -> tuple[SentencePair, bool, tuple[int, ...]]:
    positive = rng.random() < 0.5
    tense = PRESENT if rng.random() < 0.4 else PAST
    decisive, [reason] = _judgement(rng, tense, rng.choice(rng.lexicon.nouns["work"]), positive, 0.0)
    other = _neutral_clause(rng, tense)
    parts = (words_of(decisive), words_of(other)) if rng.random() < 0.5 else (words_of(other), words_of(decisive))
    return end_sentence(conjoin(parts[0], (fw.AND,), (fw.ET,), parts[1], comma=True)), positive, (reason[1],)


def _neutral_clause(rng: GrammarRng, tense: int) -> Clause:
    """A clause without a word of praise or blame."""
    judging = {adjective.english.form for adjective in (*rng.lexicon.praise, *rng.lexicon.blame)}
    for verb in (*LIKE_VERBS, *HATE_VERBS):
        judging |= {form.form for form in (verb.base, verb.third, verb.past, verb.participle, verb.ing)}
    while True:
        built = clause(rng, tense)
        if not any(slot[0].form in judging for slot in built.slots):
            return built


class Stance(NamedTuple):
    """Opinions of two things: the main clause judges the first, the other clause judges the second the opposite way.
    `negated`: the rate at which praise or blame is expressed by its opposite and *not*."""

    main: Noun
    other: Noun
    positive: bool
    negated: float = 0.5


def review(rng: GrammarRng) -> Document:
    """An English document of 3 to 6 opinions about the same two things, one of which is good throughout."""
    return Document(tuple(" ".join(drawn.source) for drawn in _reviewed(rng)))


def review_french(rng: GrammarRng) -> Document:
    return Document(tuple(" ".join(drawn.target) for drawn in _reviewed(rng)))


def _reviewed(rng: GrammarRng) -> list[SentencePair]:
    good, bad = _two_subjects(rng)
    stances = (Stance(good, bad, True, REVIEW_NEGATION_RATE), Stance(bad, good, False, REVIEW_NEGATION_RATE))
    return [opinion_sentence(rng, rng.choice(stances))[0] for _ in range(rng.choice((3, 4, 5, 6)))]


def opinion_sentence(rng: GrammarRng, stance: Stance | None = None) -> tuple[SentencePair, bool, tuple[int, ...]]:
    """A sentence, whether it is positive, and the words that decide."""
    stance = stance or Stance(*_two_subjects(rng), positive=rng.random() < 0.5)
    tense = PRESENT if rng.random() < 0.4 else PAST
    decisive, reasons = _judgement(rng, tense, stance.main, stance.positive, stance.negated)
    other, _ = _judgement(rng, tense, stance.other, not stance.positive, stance.negated)
    u = rng.random()
    if u < 0.34:
        drawn = end_sentence(front_subordinate(EVEN_THOUGH, MEME_SI, words_of(other), words_of(decisive)))
    elif u < 0.67:
        drawn = end_sentence(conjoin(words_of(decisive), EVEN_THOUGH, MEME_SI, words_of(other), comma=False))
    else:
        drawn = end_sentence(conjoin(words_of(other), (fw.BUT,), (fw.MAIS,), words_of(decisive), comma=True))
    return drawn, stance.positive, tuple(sorted(slot[1] for slot in reasons))


def _two_subjects(rng: GrammarRng) -> tuple[Noun, Noun]:
    choices = rng.lexicon.nouns["work"]
    first = rng.choice(choices)
    while True:
        second = rng.choice(choices)
        if second is not first:
            return first, second


def _judgement(rng: GrammarRng, tense: int, noun: Noun, positive: bool, rate: float) -> tuple[Clause, list[Slot]]:
    """A clause that praises or blames, negated at this rate, and the words that do it."""
    negated = rng.random() < rate
    praising = positive != negated
    obj = modified_noun(rng, noun, False, 1.0)
    add_definite_article(obj)
    negation = fw.NEGATED if negated else None
    if rng.random() < 0.6:
        adjective = rng.choice(rng.lexicon.praise if praising else rng.lexicon.blame)
        vp = verb_phrase(rng.lexicon.etre, tense, obj, negation)
        slot: Slot = [adjective.english, 0]
        french: list[AlignedWord] = [(word, (slot,)) for word in adjective.french[obj.feminine]]
        built = Clause(obj, vp.front, [*vp.rest, slot], vp.french + french)
    else:
        who = pronoun_phrase(rng.choice((fw.I, fw.WE)))
        verb = rng.choice(LIKE_VERBS if praising else HATE_VERBS)
        vp = verb_phrase(verb, tense, who, negation)
        slot = vp.verb[0]
        built = Clause(who, vp.front, vp.rest + obj.slots, vp.french + obj.aligned)
    reasons = [slot, *[word for word in vp.rest if word[0] is fw.NOT]]
    return built, reasons
