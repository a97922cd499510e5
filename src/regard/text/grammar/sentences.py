"""Sentences of 3 to 60 words: one clause, coordinated and subordinate clauses, questions, conditions, the weather."""

from __future__ import annotations

from regard.text.grammar import function_words as fw
from regard.text.grammar.clauses import clause, clause_about, coordinated_verbs
from regard.text.grammar.copula import copular, existential, weather
from regard.text.grammar.frames import Clause, ditransitive, infinitival, intransitive, locative, transitive
from regard.text.grammar.lexicon import lexicon
from regard.text.grammar.noun_phrases import person_phrase
from regard.text.grammar.phrases import NounPhrase, fixed_phrase, pronoun_phrase, slots_of
from regard.text.grammar.rng import GrammarRng
from regard.text.grammar.tokens import (
    COMMA,
    FULL_STOP,
    QUESTION_MARK,
    AlignedWord,
    SentencePair,
    Slot,
    WordForm,
    fr,
    linearise,
)
from regard.text.grammar.verb_phrase import FUTURE, PAST, PAST_PROGRESSIVE, PERFECT, PRESENT, PROGRESSIVE, verb_phrase

MIN_WORDS, MAX_WORDS = 3, 60
TENSES = (
    PRESENT,
    PRESENT,
    PRESENT,
    PAST,
    PAST,
    PAST,
    PAST,
    PROGRESSIVE,
    PROGRESSIVE,
    PAST_PROGRESSIVE,
    PERFECT,
    FUTURE,
    FUTURE,
)
TIME_EXPRESSIONS = {PRESENT: "habit", PROGRESSIVE: "present", PAST: "past", PAST_PROGRESSIVE: "past", FUTURE: "future"}
AlignedClause = tuple[list[Slot], list[AlignedWord]]


def sentence(rng: GrammarRng) -> SentencePair:
    """A random sentence pair of 3 to 60 words a side."""
    while True:
        drawn = _any_sentence(rng)
        shorter = min(len(drawn.source), len(drawn.target))
        if (
            shorter > MIN_WORDS and len(drawn.source) <= MAX_WORDS and len(drawn.target) <= MAX_WORDS
        ):  # with the full stop
            return drawn


def _any_sentence(rng: GrammarRng) -> SentencePair:
    u = rng.random()
    if u < 0.34:
        return end_sentence(simple_clause(rng))
    if u < 0.40:
        return question(rng)
    if u < 0.43:
        return end_sentence(add_time(rng, existential(rng, tense := rng.choice((PRESENT, PAST, FUTURE))), tense))
    if u < 0.45:
        return end_sentence(add_time(rng, weather(rng, tense := rng.choice((PROGRESSIVE, PAST, FUTURE))), tense))
    if u < 0.60:
        return end_sentence(two_clauses(rng))
    return end_sentence(many_clauses(rng))


def end_sentence(words: AlignedClause, mark: WordForm = FULL_STOP) -> SentencePair:
    end: Slot = [mark, 0]
    return linearise([*words[0], end], [*words[1], (mark, (end,))])


def simple_clause(rng: GrammarRng) -> AlignedClause:
    """One clause, perhaps with a time expression, a sentence adverb, or a second verb for its object."""
    tense = rng.choice(TENSES)
    if rng.random() < 0.1:
        return add_time(rng, coordinated_verbs(rng, person_phrase(rng), tense), tense)
    words = add_time(rng, clause(rng, tense), tense)
    if rng.random() < 0.06:
        return add_opening(fixed_phrase(rng.choice(rng.lexicon.sentence_adverbs)), words)
    return words


def add_time(rng: GrammarRng, built: Clause, tense: int) -> AlignedClause:
    """Yesterday, he slept; he slept yesterday."""
    u = rng.random()
    if u > 0.3 or tense not in TIME_EXPRESSIONS or has_frequency_adverb(built):
        return built.slots, built.aligned
    when, quand = fixed_phrase(rng.choice(rng.lexicon.times[TIME_EXPRESSIONS[tense]]))
    if u < 0.18 or built.swapped:
        return add_opening((when, quand), (built.slots, built.aligned))
    return built.slots + when, built.aligned + quand


_FREQUENCY_ADVERBS = frozenset(id(word) for expression in lexicon().frequency for word in expression.french) | {
    id(fw.JAMAIS)
}


def has_frequency_adverb(built: Clause) -> bool:
    """Whether a clause has an adverb of frequency: then it takes no time expression."""
    return any(id(word) in _FREQUENCY_ADVERBS for word, _ in built.french)


def add_opening(opening: AlignedClause, words: AlignedClause) -> AlignedClause:
    """Put an expression and a comma before a clause."""
    comma: Slot = [COMMA, 0]
    return [*opening[0], comma, *words[0]], [*opening[1], (COMMA, (comma,)), *words[1]]


def conjoin(
    first: AlignedClause,
    english: tuple[WordForm, ...],
    french: tuple[WordForm, ...],
    second: AlignedClause,
    comma: bool,
) -> AlignedClause:
    """Two clauses with a conjunction between them."""
    slots = slots_of(english)
    sources = tuple(slots)
    aligned: list[AlignedWord] = [(word, sources) for word in french]
    if comma:
        stop: Slot = [COMMA, 0]
        slots, aligned = [stop, *slots], [(COMMA, (stop,)), *aligned]
    return [*first[0], *slots, *second[0]], [*first[1], *aligned, *second[1]]


COORDINATORS: tuple[tuple[tuple[WordForm, ...], tuple[WordForm, ...]], ...] = (
    ((fw.AND,), (fw.ET,)),
    ((fw.BUT,), (fw.MAIS,)),
    ((fw.SO,), (fw.DONC,)),
)


def _next_subject(rng: GrammarRng, subject: NounPhrase) -> NounPhrase:
    """The subject of a following clause: often the previous one, as a pronoun."""
    if subject.is_human and rng.random() < 0.5:
        return pronoun_phrase(subject.as_pronoun)
    return person_phrase(rng, newcomer=True)


def words_of(built: Clause) -> AlignedClause:
    return built.slots, built.aligned


def _tense_sequence(rng: GrammarRng) -> tuple[int, ...]:
    """Tenses that agree in one sentence (sequence of tenses)."""
    return rng.choice(
        ((PRESENT, PRESENT, PROGRESSIVE), (PAST, PAST, PAST_PROGRESSIVE), (PAST, PAST, PAST), (FUTURE, FUTURE, FUTURE))
    )


def two_clauses(rng: GrammarRng) -> AlignedClause:
    """Two clauses: and, but, because, when, even though, if."""
    u = rng.random()
    if u < 0.15:
        return _condition(rng)
    tenses = _tense_sequence(rng)
    first = clause(rng, tenses[0], depth=1)
    if u < 0.55:
        second = clause_about(rng, _next_subject(rng, first.subject), rng.choice(tenses), depth=1)
        english, french = rng.choice(COORDINATORS)
        return conjoin(words_of(first), english, french, words_of(second), comma=True)
    english, french, other = _subordinate(rng, first.subject, tenses, depth=1)
    if rng.random() < 0.6:
        return conjoin(words_of(first), english, french, words_of(other), comma=False)
    return front_subordinate(english, french, words_of(other), words_of(first))


def _subordinate(
    rng: GrammarRng, subject: NounPhrase, tenses: tuple[int, ...], depth: int
) -> tuple[tuple[WordForm, ...], tuple[WordForm, ...], Clause]:
    """because he was tired; while she was singing: a subordinate clause, its tense as the conjunction allows."""
    choices = fw.SUBORDINATORS if tenses[0] != FUTURE else fw.SUBORDINATORS[:1]
    english, french = rng.choice(choices)
    who = _next_subject(rng, subject)
    while True:
        if english is fw.WHILE:
            tense = PAST_PROGRESSIVE if tenses[0] == PAST else PROGRESSIVE
            other = rng.choice((intransitive, locative, transitive, ditransitive))(rng, who, tense)
        else:
            other = clause_about(rng, who, rng.choice(tenses), depth)
        if _conjunction_allows(english, other):
            return english, elide_si(french, words_of(other)), other


def _conjunction_allows(conjunction: tuple[WordForm, ...], other: Clause) -> bool:
    """when needs an event, while something that is in progress."""
    if conjunction is not fw.WHILE and conjunction is not fw.WHEN:
        return True
    if any(word is fw.NE for word, _ in other.aligned):
        return False
    if conjunction is fw.WHEN:
        return True
    return any(slot[0].tag == "VERB" and slot[0].form.endswith("ing") for slot in other.rest)


def front_subordinate(
    english: tuple[WordForm, ...], french: tuple[WordForm, ...], first: AlignedClause, second: AlignedClause
) -> AlignedClause:
    """Even though he slept, he is tired: the subordinate clause comes first."""
    slots = slots_of(english)
    sources = tuple(slots)
    return add_opening(([*slots, *first[0]], [*[(word, sources) for word in french], *first[1]]), second)


def elide_si(words: tuple[WordForm, ...], following: AlignedClause) -> tuple[WordForm, ...]:
    """si elides before il and ils alone: s'il, s'ils."""
    if words[-1] is fw.SI and following[1][0][0].form in ("il", "ils"):
        return (*words[:-1], fw.S_)
    return words


def _condition(rng: GrammarRng) -> AlignedClause:
    """If it rains, we will stay: the present after si, the future in the main clause."""
    condition = weather(rng, PRESENT) if rng.random() < 0.2 else clause(rng, PRESENT)
    main = clause_about(rng, _next_subject(rng, condition.subject), FUTURE)
    slot: Slot = [fw.IF, 0]
    si = elide_si((fw.SI,), words_of(condition))[0]
    return add_opening(([slot, *condition.slots], [(si, (slot,)), *condition.aligned]), words_of(main))


def many_clauses(rng: GrammarRng) -> AlignedClause:
    """Three clauses or more, with nested ones."""
    tenses = _tense_sequence(rng)
    first = clause(rng, tenses[0], depth=2)
    words, subject = add_time(rng, first, tenses[0]), first.subject
    english: tuple[WordForm, ...] = ()
    for count in range(rng.choice((2, 2, 3, 3, 4))):
        if count % 2 == 0 and rng.random() < 0.6:
            english, french, following = _subordinate(rng, subject, tenses, depth=2)
        else:
            english, french = rng.choice([pair for pair in COORDINATORS if pair[0] is not english])
            following = clause_about(rng, _next_subject(rng, subject), rng.choice(tenses), depth=2)
        words = conjoin(words, english, french, words_of(following), comma=english[0].tag == "CCONJ")
        subject = following.subject
    return words


EST_CE_QUE = (fr("est-ce", "AUX"), fw.QUE)
QU_EST_CE = (fr("qu'", "PRON", "que"), fr("est-ce", "AUX"))


def question(rng: GrammarRng) -> SentencePair:
    """Does he sleep? Est-ce qu'il dort ? Who sings? Qui chante ? Where does she live? Où est-ce qu'elle vit ?"""
    tense = rng.choice((PRESENT, PROGRESSIVE, PAST, FUTURE, PERFECT))
    u = rng.random()
    if u < 0.25:
        return end_sentence(_who_question(rng, tense), QUESTION_MARK)
    if u < 0.45:
        return end_sentence(_where_question(rng, tense), QUESTION_MARK)
    is_question = clause(rng, tense, is_question=True)
    sources = tuple(is_question.front)
    aligned: list[AlignedWord] = [(word, sources) for word in EST_CE_QUE]
    return end_sentence(
        ([*is_question.front, *is_question.subject.slots, *is_question.rest], aligned + is_question.aligned),
        QUESTION_MARK,
    )


def _who_question(rng: GrammarRng, tense: int) -> AlignedClause:
    slot: Slot = [fw.WHO, 0]
    who = NounPhrase([slot], [(fw.QUI, (slot,))], False, False)
    return words_of(
        rng.choice((transitive, intransitive, locative, ditransitive, copular, infinitival))(rng, who, tense)
    )


def _where_question(rng: GrammarRng, tense: int) -> AlignedClause:
    slot: Slot = [fw.WHERE, 0]
    verb = rng.choice(rng.lexicon.verbs["place"])[0]
    who = person_phrase(rng)
    words = verb_phrase(verb, tense, who, is_question=True)
    sources = tuple(words.front)
    aligned: list[AlignedWord] = [(fw.OU, (slot,)), *[(word, sources) for word in EST_CE_QUE]]
    return [slot, *words.front, *who.slots, *words.rest], [*aligned, *who.aligned, *words.french]
