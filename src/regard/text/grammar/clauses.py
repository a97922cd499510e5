"""Clauses of every frame; complement clauses, relative clauses and coordinated verbs."""

from __future__ import annotations

from regard.text.grammar import function_words as fw
from regard.text.grammar.copula import copular, missing_somebody, without_money
from regard.text.grammar.frames import (
    GENERIC_OBJECT_VERBS,
    Clause,
    ditransitive,
    infinitival,
    intransitive,
    locative,
    place_pronoun,
    transitive,
    transitive_with_noun,
    with_a_pie,
)
from regard.text.grammar.lexicon import Verb
from regard.text.grammar.noun_phrases import modified_noun, noun_phrase, object_phrase, person_phrase
from regard.text.grammar.phrases import NounPhrase, add_definite_article
from regard.text.grammar.rng import GrammarRng
from regard.text.grammar.tokens import AlignedWord, Slot
from regard.text.grammar.verb_phrase import FUTURE, PAST, PAST_PROGRESSIVE, PRESENT, PROGRESSIVE, verb_phrase

EMBEDDED_TENSE = {
    PAST: PAST_PROGRESSIVE,
    PAST_PROGRESSIVE: PAST_PROGRESSIVE,
}  # he said that she was sleeping: what was going on at that time


def clause(rng: GrammarRng, tense: int, depth: int = 0, is_question: bool = False) -> Clause:
    """A clause, mostly with a human subject, sometimes not. `depth`: how far clauses nest."""
    if rng.random() < 0.87:
        subject = person_phrase(rng)
        if depth and subject.noun is not None and rng.random() < 0.3:
            add_relative_clause(rng, subject, tense)
        return clause_about(rng, subject, tense, depth, is_question)
    return _non_human_clause(rng, tense, is_question)


def clause_about(rng: GrammarRng, subject: NounPhrase, tense: int, depth: int = 0, is_question: bool = False) -> Clause:
    """A clause with this subject, in any frame."""
    u = rng.random()
    if u < 0.44:
        built = transitive(rng, subject, tense, is_question)
        if depth and built.object is not None and built.object.noun is not None and rng.random() < 0.3:
            return _with_relative(rng, built, tense)
        return built
    if u < 0.56:
        return intransitive(rng, subject, tense, is_question)
    if u < 0.66:
        return locative(rng, subject, tense, is_question)
    if u < 0.75:
        return ditransitive(rng, subject, tense, is_question)
    if u < 0.85:
        return copular(rng, subject, tense, is_question)
    if u < 0.92 or is_question:
        return infinitival(rng, subject, tense, is_question)
    if u < 0.935 and not subject.is_coordination:  # French would repeat à: à Paul et à Marie
        return missing_somebody(rng, subject, tense)
    if u < 0.945:
        return without_money(rng, subject, tense)
    if u < 0.955:
        return with_a_pie(rng, subject, tense)
    return complement_clause(rng, subject, tense, depth)


def _non_human_clause(rng: GrammarRng, tense: int, is_question: bool) -> Clause:
    """A clause about an animal, a vehicle, a plant or the sun, with a verb that its kind allows."""
    u = rng.random()
    if u < 0.25:
        return _homonym_clause(rng, tense, is_question)
    verb, subjects, objects = rng.choice(rng.lexicon.non_human_verbs)
    subject = noun_phrase(rng, rng.choice(rng.lexicon.nouns[rng.choice(subjects)]), subject=True)
    if u < 0.4:
        return copular(rng, subject, tense, is_question)
    if not objects:
        return intransitive(rng, subject, tense, is_question, verb)
    return transitive_with_noun(rng, subject, tense, verb, object_phrase(rng, objects, subject), is_question)


def _homonym_clause(rng: GrammarRng, tense: int, is_question: bool) -> Clause:
    """A bat that flies, or a bat that breaks: only the context tells which."""
    noun, acts, verbs = rng.choice(rng.lexicon.homonyms)
    verb = rng.choice(verbs)
    if acts:
        return intransitive(rng, noun_phrase(rng, noun, subject=True), tense, is_question, verb)
    subject = person_phrase(rng)
    return transitive_with_noun(rng, subject, tense, verb, noun_phrase(rng, noun, subject.as_pronoun), is_question)


def complement_clause(rng: GrammarRng, subject: NounPhrase, tense: int, depth: int) -> Clause:
    """She thinks that Paul is sleeping, elle pense que Paul dort."""
    verb = rng.choice(rng.lexicon.verbs["that"])[0]
    tense = PAST if tense in EMBEDDED_TENSE else FUTURE if tense == FUTURE else PRESENT
    vp = verb_phrase(verb, tense, subject)
    that: Slot = [fw.THAT, 0]
    rng.emit([*subject.slots, *vp.front, *vp.rest, that])
    inner = clause(rng, EMBEDDED_TENSE.get(tense, rng.choice((PRESENT, PROGRESSIVE, PAST))), depth - 1 if depth else 0)
    rest = [*vp.rest, that, *inner.slots]
    return Clause(subject, vp.front, rest, [*vp.french, (fw.QUE, (that,)), *inner.aligned])


def add_relative_clause(rng: GrammarRng, head: NounPhrase, tense: int) -> None:
    """Add a relative clause to a noun: the man who sings, the apple that Paul ate, the girl whose dog is barking."""
    assert head.noun is not None
    human = head.noun.kind in ("person", "kin")
    u = rng.random()
    verbs = rng.lexicon.transitive_by_object.get(head.noun.kind)
    if human and u < 0.45:
        more, plus = _subject_relative(rng, head, tense)
    elif human and u < 0.6:
        more, plus = _genitive_relative(rng, tense)
    elif verbs:
        more, plus = _object_relative(rng, head, tense, rng.choice(verbs), human)
    else:
        return
    head.slots = head.slots + more
    head.aligned = head.aligned + plus


def _subject_relative(rng: GrammarRng, head: NounPhrase, tense: int) -> tuple[list[Slot], list[AlignedWord]]:
    who: Slot = [fw.WHO, 0]
    frame = rng.choice((transitive, intransitive, locative, copular))
    inner = frame(rng, head, tense)
    return [who, *inner.front, *inner.rest], [(fw.QUI, (who,)), *inner.french]


def _genitive_relative(rng: GrammarRng, tense: int) -> tuple[list[Slot], list[AlignedWord]]:
    """whose dog is sleeping, dont le chien dort."""
    whose: Slot = [fw.WHOSE, 0]
    possessed = modified_noun(rng, rng.choice(rng.lexicon.nouns[rng.choice(("kin", "kin", "animal"))]), False, 0.8)
    slots = list(possessed.slots)
    add_definite_article(possessed)
    article = possessed.aligned[0][0]
    possessed.slots, possessed.aligned = slots, [(fw.DONT, (whose,)), (article, (whose,)), *possessed.aligned[1:]]
    human = possessed.noun is not None and possessed.noun.kind == "kin"
    inner = (rng.choice((transitive, intransitive, copular)) if human else copular)(rng, possessed, tense)
    return [whose, *inner.slots], inner.aligned


def _object_relative(
    rng: GrammarRng, head: NounPhrase, tense: int, verb: Verb, human: bool
) -> tuple[list[Slot], list[AlignedWord]]:
    """the apple that Paul ate, la pomme que Paul a mangée: the participle agrees with the preceding object."""
    that: Slot = [fw.WHOM if human else fw.THAT_ONE, 0]
    subject = person_phrase(rng, newcomer=True)
    vp = verb_phrase(verb, tense, subject, agreement=head.feminine + 2 * head.plural)
    return [that, *subject.slots, *vp.front, *vp.rest], [(fw.QUE_ONE, (that,)), *subject.aligned, *vp.french]


def _with_relative(rng: GrammarRng, built: Clause, tense: int) -> Clause:
    """Add a relative clause to the object of a clause that ends in it."""
    obj = built.object
    assert obj is not None and obj.noun is not None
    if built.rest[-1] is not obj.slots[-1] or built.french[-1] is not obj.aligned[-1]:
        return built
    slots, aligned = len(obj.slots), len(obj.aligned)
    add_relative_clause(rng, obj, tense)
    return built._replace(rest=built.rest + obj.slots[slots:], french=built.french + obj.aligned[aligned:])


def coordinated_verbs(rng: GrammarRng, subject: NounPhrase, tense: int) -> Clause:
    """He takes the apple and eats it, il prend la pomme et la mange: the pronoun agrees with its antecedent."""
    while True:
        verb, objects = rng.choice(rng.lexicon.human_transitive)
        if verb.preposition is None and not verb.reflexive and objects[0] in rng.lexicon.transitive_by_object:
            break
    obj = object_phrase(rng, objects, subject)
    if verb.lemma in GENERIC_OBJECT_VERBS:
        obj.make_generic()
    first = verb_phrase(verb, tense, subject)
    kind = obj.noun.kind + ("*" if obj.noun.mass else "") if obj.noun is not None else objects[0]
    choices = rng.lexicon.transitive_by_object.get(kind) or rng.lexicon.transitive_by_object[objects[0]]
    then = rng.choice(choices)
    while then.lemma == verb.lemma:
        then = rng.choice(choices)
    it = obj.as_pronoun
    link: Slot = [fw.AND, 0]
    slot: Slot = [it.object, 0]
    second = verb_phrase(then, tense, subject, None, [(it.direct, (slot,))], it.feminine + 2 * it.plural)
    rest = [*first.rest, *obj.slots, link, *second.front, *place_pronoun(then, second.rest, slot)]
    return Clause(subject, first.front, rest, [*first.french, *obj.aligned, (fw.ET, (link,)), *second.french])
