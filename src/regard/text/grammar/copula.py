"""Copular clauses: to be and être, and what French says with avoir (age, hunger, there is); the weather."""

from __future__ import annotations

from regard.text.grammar import function_words as fw
from regard.text.grammar.frames import Clause, choose_negation
from regard.text.grammar.function_words import Negation
from regard.text.grammar.lexicon import Adjective, lexicon, make_verb
from regard.text.grammar.noun_phrases import (
    family_member,
    location,
    noun_phrase,
    object_phrase,
    other_pronoun,
    personal_name,
)
from regard.text.grammar.phrases import NounPhrase, fixed_phrase, pronoun_phrase, slots_of
from regard.text.grammar.rng import GrammarRng
from regard.text.grammar.tokens import DE, A, AlignedWord, Slot, en, fr
from regard.text.grammar.verb_phrase import FUTURE, VerbPhrase, verb_phrase

# be hungry, avoir faim
AVOIR_SENSATIONS = tuple(
    (en(english, "ADJ"), fr(french, "NOUN"))
    for english, french in (
        pair.split("=")
        for pair in "hungry=faim thirsty=soif cold=froid hot=chaud right=raison wrong=tort sleepy=sommeil".split()
    )
)
AFRAID, PEUR = en("afraid", "ADJ"), fr("peur", "NOUN")
YEARS_OLD, ANS = (en("years", "NOUN", "year"), en("old", "ADJ")), fr("ans", "NOUN", "an")
MONEY, DEMUNI = (
    en("money", "NOUN"),
    tuple(fr(form, "ADJ", "démuni") for form in ("démuni", "démunie", "démunis", "démunies")),
)
MISSING = make_verb("miss", "manquer à!")

# Nouns that are no professions: elle est infirmière, but c'est une dame.
NOT_PROFESSIONS = frozenset(
    """man boy woman girl lady child hero heroine giant stranger victim star neighbour guest witness thief customer
passenger scholar tourist champion king queen witch boss""".split()
)


def copular(rng: GrammarRng, subject: NounPhrase, tense: int, is_question: bool = False) -> Clause:
    """A copular clause: the subject's quality, profession, location, age or sensation."""
    human = subject.is_human
    u = rng.random()
    if human and u < 0.2 and tense != FUTURE:
        return _profession(rng, subject, tense, is_question)
    if human and u < 0.27:
        return _age(rng, subject, tense, is_question)
    if human and u < 0.45:
        return _having_sensation(rng, subject, tense, is_question)
    if u < 0.55:
        vp = verb_phrase(
            rng.lexicon.etre, tense, subject, choose_negation(rng, subject, tense, state=True), is_question=is_question
        )
        there, la = location(rng)
        return Clause(subject, vp.front, vp.rest + there, vp.french + la)
    kind = "person" if subject.noun is None else subject.noun.kind
    choices = rng.lexicon.predicates[kind] or rng.lexicon.predicates["sight"]
    return predicate_adjective(
        rng, subject, tense, rng.choice(choices), choose_negation(rng, subject, tense, state=True), is_question
    )


def predicate_adjective(
    rng: GrammarRng,
    subject: NounPhrase,
    tense: int,
    adjective: Adjective,
    negation: Negation | None,
    is_question: bool = False,
) -> Clause:
    """is happy, is very tired, is taller than Paul."""
    vp = verb_phrase(rng.lexicon.etre, tense, subject, negation, is_question=is_question)
    if subject.is_human and adjective.gradable and negation is not fw.NO_LONGER and rng.random() < 0.22:
        how, comment = _comparison(rng, subject, adjective)
    else:
        slot: Slot = [adjective.english, 0]
        how, comment = [slot], [(word, (slot,)) for word in adjective.french[subject.feminine + 2 * subject.plural]]
        if adjective.gradable and rng.random() < 0.25:  # not quite blue would be pas assez bleu, which differs
            more, plus = fixed_phrase(rng.choice(rng.lexicon.degree) if negation is None else rng.lexicon.degree[0])
            how, comment = more + how, plus + comment
    return Clause(subject, vp.front, vp.rest + how, vp.french + comment)


def _comparison(rng: GrammarRng, subject: NounPhrase, adjective: Adjective) -> tuple[list[Slot], list[AlignedWord]]:
    """taller than Paul, plus grand que Paul; as tall as, aussi grand que."""
    which = subject.feminine + 2 * subject.plural
    other = personal_name(rng) if rng.random() < 0.6 else family_member(rng, subject.as_pronoun)
    if rng.random() < 0.7:
        how = slots_of(adjective.comparative)
        if adjective.irregular_comparative is not None:
            comment = [(word, tuple(how)) for word in adjective.irregular_comparative[which]]
        else:
            forms = adjective.french[which]
            comment = [(_PLUS, (how[0],)), *[(word, (how[-1],)) for word in forms]]
        link: Slot = [fw.THAN, 0]
        return [*how, link, *other.slots], [*comment, (fw.QUE, (link,)), *other.aligned]
    first: Slot = [fw.AS, 0]
    slot: Slot = [adjective.english, 0]
    second: Slot = [fw.AS, 0]
    comment = [(fw.AUSSI, (first,)), *[(word, (slot,)) for word in adjective.french[which]]]
    return [first, slot, second, *other.slots], [*comment, (fw.QUE, (second,)), *other.aligned]


_PLUS = fr("plus", "ADV")


def _profession(rng: GrammarRng, subject: NounPhrase, tense: int, is_question: bool) -> Clause:
    """is a baker, est boulanger: French needs no article."""
    while True:
        noun = rng.choice(rng.lexicon.nouns["person"])
        if (
            noun.feminine == subject.feminine
            and noun is not subject.noun
            and noun.english[0][0].form not in NOT_PROFESSIONS
        ):
            break
    vp = verb_phrase(
        rng.lexicon.etre, tense, subject, choose_negation(rng, subject, tense, state=True), is_question=is_question
    )
    slots = slots_of(noun.english[subject.plural])
    comment = [(word, tuple(slots)) for word in noun.french[subject.plural]]
    if not subject.plural:
        slots.insert(0, [fw.AN, 0])
    return Clause(subject, vp.front, vp.rest + slots, vp.french + comment)


def _age(rng: GrammarRng, subject: NounPhrase, tense: int, is_question: bool) -> Clause:
    """is twelve years old, a douze ans."""
    number, nombre = rng.choice(fw.NUMBERS)
    vp, french = _be_as_avoir(rng, subject, tense, is_question, None)
    slots: list[Slot] = [[number, 0], *slots_of(YEARS_OLD)]
    comment: list[AlignedWord] = [(nombre, (slots[0],)), (ANS, (slots[1], slots[2]))]
    return Clause(subject, vp.front, vp.rest + slots, french + comment)


def _having_sensation(rng: GrammarRng, subject: NounPhrase, tense: int, is_question: bool) -> Clause:
    """is hungry, a faim; is afraid of the dog, a peur du chien."""
    vp, french = _be_as_avoir(rng, subject, tense, is_question, choose_negation(rng, subject, tense, state=True))
    if rng.random() < 0.25:
        slots = [[AFRAID, 0], [fw.OF, 0]]
        feared = object_phrase(rng, ("animal", "person", "insect"), subject)
        comment = [(PEUR, (slots[0],)), (DE, (slots[1],)), *feared.after_preposition(DE)]
        return Clause(subject, vp.front, vp.rest + slots + feared.slots, french + comment)
    english, faim = rng.choice(AVOIR_SENSATIONS)
    slot: Slot = [english, 0]
    return Clause(subject, vp.front, [*vp.rest, slot], [*french, (faim, (slot,))])


def _be_as_avoir(
    rng: GrammarRng, subject: NounPhrase, tense: int, is_question: bool, negation: Negation | None
) -> tuple[VerbPhrase, list[AlignedWord]]:
    """English be, French avoir: the forms of être are replaced by those of avoir."""
    vp = verb_phrase(rng.lexicon.etre, tense, subject, negation, is_question=is_question)
    return vp, [(_HAS.get(word.form, word), sources) for word, sources in vp.french]


def without_money(rng: GrammarRng, subject: NounPhrase, tense: int) -> Clause:
    """does not have any money, est démuni."""
    vp = verb_phrase(rng.lexicon.avoir, tense, subject, fw.NEGATED)
    negation, have = vp.rest[0], vp.rest[1]
    slots: list[Slot] = [[fw.ANY, 0], [MONEY, 0]]
    etre = verb_phrase(rng.lexicon.etre, tense, subject).french[0][0]
    french: list[AlignedWord] = [
        (etre, (*vp.front, have)),
        (DEMUNI[subject.feminine + 2 * subject.plural], (negation, *slots)),
    ]
    return Clause(subject, vp.front, [*vp.rest, *slots], french)


def missing_somebody(rng: GrammarRng, subject: NounPhrase, tense: int) -> Clause:
    """he misses Marie, Marie lui manque; I miss you, tu me manques: subject and object exchange roles."""
    missed = (
        pronoun_phrase(other_pronoun(rng, subject))
        if rng.random() < 0.5
        else object_phrase(rng, ("person", "kin"), subject)
    )
    if missed.pronoun is not None:
        slots: list[Slot] = [[missed.pronoun.object, 0]]
        missed.aligned = [(missed.pronoun.french, (slots[0],))]
    else:
        slots = missed.slots
    negation = choose_negation(rng, subject, tense, state=True)
    who = subject.pronoun
    clitics = None if who is None else [(who.indirect, tuple(subject.slots))]
    english = verb_phrase(MISSING, tense, subject, negation)
    french = verb_phrase(MISSING, tense, missed, negation, clitics)
    # the French verb agrees with the person missed, but aligns to the English words that were generated
    replaced = dict(
        zip([id(slot) for slot in (*french.front, *french.rest)], (*english.front, *english.rest), strict=True)
    )
    vp = [(word, tuple([replaced.get(id(slot), slot) for slot in sources])) for word, sources in french.french]
    after: list[AlignedWord] = [] if who is not None else [(A, english.verb), *subject.aligned]
    return Clause(subject, english.front, english.rest + slots, [*missed.aligned, *vp, *after], swapped=True)


def existential(rng: GrammarRng, tense: int) -> Clause:
    """There is a cat in the garden, il y a un chat dans le jardin."""
    noun = rng.choice(
        rng.lexicon.nouns[rng.choice(("person", "animal", "bird", "vehicle", "thing", "plant", "furniture"))]
    )
    obj = noun_phrase(rng, noun)
    while not obj.article:
        obj = noun_phrase(rng, noun)
    negation = fw.NEGATED if rng.random() < 0.15 else None
    there = pronoun_phrase(fw.IT)
    there.slots[0][0] = fw.THERE
    vp = verb_phrase(rng.lexicon.etre, tense, NounPhrase([], [], False, obj.plural), negation)
    has = verb_phrase(rng.lexicon.avoir, tense, there).french[0][0]
    negated, be = (vp.rest[:1], vp.rest[1:]) if negation is not None else ([], vp.rest)
    french: list[AlignedWord] = [(fw.NE, tuple(negated))] if negated else []
    french += [(fw.Y, (there.slots[0],)), (has, (*vp.front, *be))]
    if negated:
        french.append((fw.PAS, tuple(negated)))
    if negated and obj.plural:  # there were not any trains
        some: Slot = [fw.ANY, 0]
        obj.slots.insert(0, some)
        obj.aligned[0] = (obj.aligned[0][0], (some,))
    where, la = location(rng)
    what = obj.aligned if negation is None else obj.after_negation()
    return Clause(there, vp.front, vp.rest + obj.slots + where, french + what + la)


WEATHER = (
    ((en("raining", "VERB", "rain"),), "pleuvoir", ()),
    ((en("cold", "ADJ"),), "faire", (fr("froid", "ADJ"),)),
    ((en("hot", "ADJ"),), "faire", (fr("chaud", "ADJ"),)),
    ((en("late", "ADJ"),), "être", (fr("tard", "ADV"),)),
    ((en("dark", "ADJ"),), "faire", (fr("nuit", "NOUN"),)),
)
_WEATHER_VERBS = {form: make_verb("be", form + "!") for form in ("pleuvoir", "faire", "être")}


def weather(rng: GrammarRng, tense: int) -> Clause:
    """It is raining, il pleut; it was cold, il faisait froid."""
    english, verb, after = rng.choice(WEATHER)
    it = pronoun_phrase(fw.IT)
    vp = verb_phrase(_WEATHER_VERBS[verb], tense, it, fw.NEGATED if rng.random() < 0.1 else None)
    slots = slots_of(english)
    french = list(vp.french)
    if not after:  # is raining, pleut: one word for both
        french = [(word, (*sources, *slots)) if word.tag == "VERB" else (word, sources) for word, sources in french]
    return Clause(it, vp.front, vp.rest + slots, french + [(word, tuple(slots)) for word in after])


_HAS = {
    is_.form: has
    for tense in ("present", "imperfect", "future")
    for is_, has in zip(getattr(lexicon().etre, tense), getattr(lexicon().avoir, tense), strict=True)
}
