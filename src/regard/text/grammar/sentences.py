"""Sentences of 3 to 60 words: one clause, several joined, questions, conditions, the weather."""

from __future__ import annotations

from regard.text.grammar import particles as small
from regard.text.grammar.clauses import chain, clause, saying
from regard.text.grammar.copula import being, there_is, weather
from regard.text.grammar.frames import Clause, acting, alone, giving, placed, wishing
from regard.text.grammar.lexicon import lexicon
from regard.text.grammar.noun_phrases import somebody
from regard.text.grammar.phrases import Phrase, fixed, pronoun, spots_of
from regard.text.grammar.rng import Draw
from regard.text.grammar.tokens import (
    COMMA,
    FULL_STOP,
    QUESTION_MARK,
    Answer,
    Sentence,
    Spot,
    Word,
    finish,
    fr,
)
from regard.text.grammar.verb_phrase import FUTURE, NOW, PAST, PERFECT, PRESENT, THEN, speak

SHORTEST, LONGEST = 3, 60
TENSES = (PRESENT, PRESENT, PRESENT, PAST, PAST, PAST, PAST, NOW, NOW, THEN, PERFECT, FUTURE, FUTURE)
WHEN = {PRESENT: "habit", NOW: "present", PAST: "past", THEN: "past", FUTURE: "future"}
Said = tuple[list[Spot], list[Answer]]


def sentence(draw: Draw) -> Sentence:
    """Any sentence of the grammar, of the lengths it promises."""
    while True:
        drawn = _any(draw)
        shorter = min(len(drawn.source), len(drawn.target))
        if shorter > SHORTEST and len(drawn.source) <= LONGEST and len(drawn.target) <= LONGEST:  # the full stop counts
            return drawn


def _any(draw: Draw) -> Sentence:
    chance = draw.random()
    if chance < 0.34:
        return closed(simple(draw))
    if chance < 0.40:
        return question(draw)
    if chance < 0.43:
        return closed(timed(draw, there_is(draw, tense := draw.pick((PRESENT, PAST, FUTURE))), tense))
    if chance < 0.45:
        return closed(timed(draw, weather(draw, tense := draw.pick((NOW, PAST, FUTURE))), tense))
    if chance < 0.60:
        return closed(joined(draw))
    return closed(long(draw))


def closed(said: Said, mark: Word = FULL_STOP) -> Sentence:
    end: Spot = [mark, 0]
    return finish([*said[0], end], [*said[1], (mark, (end,))])


def simple(draw: Draw) -> Said:
    """One clause, perhaps with a time, an opening adverb, an object that comes up again."""
    tense = draw.pick(TENSES)
    if draw.random() < 0.1:
        return timed(draw, chain(draw, somebody(draw), tense), tense)
    said = timed(draw, clause(draw, tense), tense)
    if draw.random() < 0.06:
        return led(fixed(draw.pick(draw.lexicon.openers)), said)
    return said


def timed(draw: Draw, done: Clause, tense: int) -> Said:
    """Yesterday, he slept; he slept yesterday."""
    chance = draw.random()
    if chance > 0.3 or tense not in WHEN or often(done):
        return done.spots, done.answers
    when, quand = fixed(draw.pick(draw.lexicon.times[WHEN[tense]]))
    if chance < 0.18 or done.turned:
        return led((when, quand), (done.spots, done.answers))
    return done.spots + when, done.answers + quand


_OFTEN = frozenset(id(word) for expression in lexicon().frequency for word in expression.french) | {id(small.JAMAIS)}


def often(done: Clause) -> bool:
    """Whether a clause says how often: then it bears no time beside it."""
    return any(id(word) in _OFTEN for word, _ in done.french)


def led(opening: Said, said: Said) -> Said:
    """An opening, a comma, the rest."""
    comma: Spot = [COMMA, 0]
    return [*opening[0], comma, *said[0]], [*opening[1], (COMMA, (comma,)), *said[1]]


def link(first: Said, english: tuple[Word, ...], french: tuple[Word, ...], second: Said, comma: bool) -> Said:
    """Two clauses with a conjunction between them."""
    spots = spots_of(english)
    its = tuple(spots)
    answers: list[Answer] = [(word, its) for word in french]
    if comma:
        stop: Spot = [COMMA, 0]
        spots, answers = [stop, *spots], [(COMMA, (stop,)), *answers]
    return [*first[0], *spots, *second[0]], [*first[1], *answers, *second[1]]


COORDINATORS: tuple[tuple[tuple[Word, ...], tuple[Word, ...]], ...] = (
    ((small.AND,), (small.ET,)),
    ((small.BUT,), (small.MAIS,)),
    ((small.SO,), (small.DONC,)),
)


def _again(draw: Draw, subject: Phrase) -> Phrase:
    """The subject of a following clause: often the one before, as a pronoun."""
    if subject.human and draw.random() < 0.5:
        return pronoun(subject.stands_for)
    return somebody(draw, newcomer=True)


def said_of(done: Clause) -> Said:
    return done.spots, done.answers


def _time_frame(draw: Draw) -> tuple[int, ...]:
    """Tenses that go together in one sentence."""
    return draw.pick(((PRESENT, PRESENT, NOW), (PAST, PAST, THEN), (PAST, PAST, PAST), (FUTURE, FUTURE, FUTURE)))


def joined(draw: Draw) -> Said:
    """Two clauses: and, but, because, when, even though, if."""
    chance = draw.random()
    if chance < 0.15:
        return _condition(draw)
    tenses = _time_frame(draw)
    first = clause(draw, tenses[0], depth=1)
    if chance < 0.55:
        second = saying(draw, _again(draw, first.subject), draw.pick(tenses), depth=1)
        english, french = draw.pick(COORDINATORS)
        return link(said_of(first), english, french, said_of(second), comma=True)
    english, french, other = _subordinate(draw, first.subject, tenses, depth=1)
    if draw.random() < 0.6:
        return link(said_of(first), english, french, said_of(other), comma=False)
    return fronted(english, french, said_of(other), said_of(first))


def _subordinate(
    draw: Draw, subject: Phrase, tenses: tuple[int, ...], depth: int
) -> tuple[tuple[Word, ...], tuple[Word, ...], Clause]:
    """because he was tired; while she was singing: a conjunction and a clause in a tense that it allows."""
    choices = small.SUBORDINATORS if tenses[0] != FUTURE else small.SUBORDINATORS[:1]
    english, french = draw.pick(choices)
    who = _again(draw, subject)
    while True:
        if english is small.WHILE:
            tense = THEN if tenses[0] == PAST else NOW
            other = draw.pick((alone, placed, acting, giving))(draw, who, tense)
        else:
            other = saying(draw, who, draw.pick(tenses), depth)
        if _goes_with(english, other):
            return english, elided(french, said_of(other)), other


def _goes_with(conjunction: tuple[Word, ...], other: Clause) -> bool:
    """when asks for something that happens, while for something that is going on all the time."""
    if conjunction is not small.WHILE and conjunction is not small.WHEN:
        return True
    if any(word is small.NE for word, _ in other.answers):
        return False
    if conjunction is small.WHEN:
        return True
    return any(spot[0].tag == "VERB" and spot[0].form.endswith("ing") for spot in other.rest)


def fronted(english: tuple[Word, ...], french: tuple[Word, ...], first: Said, second: Said) -> Said:
    """Even though he slept, he is tired: the conjunction stands before both clauses."""
    spots = spots_of(english)
    its = tuple(spots)
    return led(([*spots, *first[0]], [*[(word, its) for word in french], *first[1]]), second)


def elided(words: tuple[Word, ...], following: Said) -> tuple[Word, ...]:
    """si meets il: s'il, s'ils, and nobody else."""
    if words[-1] is small.SI and following[1][0][0].form in ("il", "ils"):
        return (*words[:-1], small.S_)
    return words


def _condition(draw: Draw) -> Said:
    """If it rains, we will stay: the present after si, the future in the main clause."""
    condition = weather(draw, PRESENT) if draw.random() < 0.2 else clause(draw, PRESENT)
    main = saying(draw, _again(draw, condition.subject), FUTURE)
    spot: Spot = [small.IF, 0]
    si = elided((small.SI,), said_of(condition))[0]
    return led(([spot, *condition.spots], [(si, (spot,)), *condition.answers]), said_of(main))


def long(draw: Draw) -> Said:
    """Three clauses or more, with clauses inside them."""
    tenses = _time_frame(draw)
    first = clause(draw, tenses[0], depth=2)
    said, subject = timed(draw, first, tenses[0]), first.subject
    english: tuple[Word, ...] = ()
    for count in range(draw.pick((2, 2, 3, 3, 4))):
        if count % 2 == 0 and draw.random() < 0.6:
            english, french, following = _subordinate(draw, subject, tenses, depth=2)
        else:
            english, french = draw.pick([pair for pair in COORDINATORS if pair[0] is not english])
            following = saying(draw, _again(draw, subject), draw.pick(tenses), depth=2)
        said = link(said, english, french, said_of(following), comma=english[0].tag == "CCONJ")
        subject = following.subject
    return said


EST_CE_QUE = (fr("est-ce", "AUX"), small.QUE)
QU_EST_CE = (fr("qu'", "PRON", "que"), fr("est-ce", "AUX"))


def question(draw: Draw) -> Sentence:
    """Does he sleep? Est-ce qu'il dort ? Who sings? Qui chante ? Where does she live? Où est-ce qu'elle vit ?"""
    tense = draw.pick((PRESENT, NOW, PAST, FUTURE, PERFECT))
    chance = draw.random()
    if chance < 0.25:
        return closed(_who(draw, tense), QUESTION_MARK)
    if chance < 0.45:
        return closed(_where(draw, tense), QUESTION_MARK)
    asked = clause(draw, tense, asked=True)
    its = tuple(asked.front)
    answers: list[Answer] = [(word, its) for word in EST_CE_QUE]
    return closed(([*asked.front, *asked.subject.spots, *asked.rest], answers + asked.answers), QUESTION_MARK)


def _who(draw: Draw, tense: int) -> Said:
    spot: Spot = [small.WHO, 0]
    who = Phrase([spot], [(small.QUI, (spot,))], False, False)
    return said_of(draw.pick((acting, alone, placed, giving, being, wishing))(draw, who, tense))


def _where(draw: Draw, tense: int) -> Said:
    spot: Spot = [small.WHERE, 0]
    verb = draw.pick(draw.lexicon.verbs["place"])[0]
    who = somebody(draw)
    said = speak(verb, tense, who, asked=True)
    its = tuple(said.front)
    answers: list[Answer] = [(small.OU, (spot,)), *[(word, its) for word in EST_CE_QUE]]
    return [spot, *said.front, *who.spots, *said.rest], [*answers, *who.answers, *said.french]
