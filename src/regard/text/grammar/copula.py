"""To be, to have, and what one language says with the one and the other with the other."""

from __future__ import annotations

from regard.text.grammar import particles as small
from regard.text.grammar.frames import Clause, negation_of
from regard.text.grammar.lexicon import Adjective, lexicon, make_verb
from regard.text.grammar.noun_phrases import name, noun_phrase, other_than, relative, something, whereabouts
from regard.text.grammar.particles import Negation
from regard.text.grammar.phrases import Phrase, fixed, pronoun, spots_of
from regard.text.grammar.rng import Draw
from regard.text.grammar.tokens import DE, A, Answer, Spot, en, fr
from regard.text.grammar.verb_phrase import FUTURE, Spoken, speak

# be hungry, avoir faim
HAVING = tuple(
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

# Those French would not call by their trade: elle est infirmière, but c'est une dame.
NO_TRADE = frozenset(
    """man boy woman girl lady child hero heroine giant stranger victim star neighbour guest witness thief customer
passenger scholar tourist champion king queen witch boss""".split()
)


def being(draw: Draw, subject: Phrase, tense: int, asked: bool = False) -> Clause:
    """Somebody or something is: how, what, where, how old."""
    human = subject.human
    chance = draw.random()
    if human and chance < 0.2 and tense != FUTURE:
        return _profession(draw, subject, tense, asked)
    if human and chance < 0.27:
        return _age(draw, subject, tense, asked)
    if human and chance < 0.45:
        return _having(draw, subject, tense, asked)
    if chance < 0.55:
        said = speak(draw.lexicon.etre, tense, subject, negation_of(draw, subject, tense, state=True), asked=asked)
        there, la = whereabouts(draw)
        return Clause(subject, said.front, said.rest + there, said.french + la)
    kind = "person" if subject.noun is None else subject.noun.kind
    choices = draw.lexicon.predicates[kind] or draw.lexicon.predicates["sight"]
    return described_as(draw, subject, tense, draw.pick(choices), negation_of(draw, subject, tense, state=True), asked)


def described_as(
    draw: Draw, subject: Phrase, tense: int, adjective: Adjective, negation: Negation | None, asked: bool = False
) -> Clause:
    """is happy, is very tired, is taller than Paul."""
    said = speak(draw.lexicon.etre, tense, subject, negation, asked=asked)
    if subject.human and adjective.graded and negation is not small.NO_LONGER and draw.random() < 0.22:
        how, comment = _compared(draw, subject, adjective)
    else:
        spot: Spot = [adjective.english, 0]
        how, comment = [spot], [(word, (spot,)) for word in adjective.french[subject.feminine + 2 * subject.plural]]
        if adjective.graded and draw.random() < 0.25:  # not quite blue would be pas assez bleu: something else
            more, plus = fixed(draw.pick(draw.lexicon.degree) if negation is None else draw.lexicon.degree[0])
            how, comment = more + how, plus + comment
    return Clause(subject, said.front, said.rest + how, said.french + comment)


def _compared(draw: Draw, subject: Phrase, adjective: Adjective) -> tuple[list[Spot], list[Answer]]:
    """taller than Paul, plus grand que Paul; as tall as, aussi grand que."""
    which = subject.feminine + 2 * subject.plural
    other = name(draw) if draw.random() < 0.6 else relative(draw, subject.stands_for)
    if draw.random() < 0.7:
        how = spots_of(adjective.comparative)
        if adjective.better is not None:
            comment = [(word, tuple(how)) for word in adjective.better[which]]
        else:
            forms = adjective.french[which]
            comment = [(_PLUS, (how[0],)), *[(word, (how[-1],)) for word in forms]]
        link: Spot = [small.THAN, 0]
        return [*how, link, *other.spots], [*comment, (small.QUE, (link,)), *other.answers]
    first: Spot = [small.AS, 0]
    spot: Spot = [adjective.english, 0]
    second: Spot = [small.AS, 0]
    comment = [(small.AUSSI, (first,)), *[(word, (spot,)) for word in adjective.french[which]]]
    return [first, spot, second, *other.spots], [*comment, (small.QUE, (second,)), *other.answers]


_PLUS = fr("plus", "ADV")


def _profession(draw: Draw, subject: Phrase, tense: int, asked: bool) -> Clause:
    """is a baker, est boulanger: French needs no article."""
    while True:
        noun = draw.pick(draw.lexicon.nouns["person"])
        if noun.feminine == subject.feminine and noun is not subject.noun and noun.english[0][0].form not in NO_TRADE:
            break
    said = speak(draw.lexicon.etre, tense, subject, negation_of(draw, subject, tense, state=True), asked=asked)
    spots = spots_of(noun.english[subject.plural])
    comment = [(word, tuple(spots)) for word in noun.french[subject.plural]]
    if not subject.plural:
        spots.insert(0, [small.AN, 0])
    return Clause(subject, said.front, said.rest + spots, said.french + comment)


def _age(draw: Draw, subject: Phrase, tense: int, asked: bool) -> Clause:
    """is twelve years old, a douze ans."""
    number, nombre = draw.pick(small.NUMBERS)
    said, french = _be_having(draw, subject, tense, asked, None)
    spots: list[Spot] = [[number, 0], *spots_of(YEARS_OLD)]
    comment: list[Answer] = [(nombre, (spots[0],)), (ANS, (spots[1], spots[2]))]
    return Clause(subject, said.front, said.rest + spots, french + comment)


def _having(draw: Draw, subject: Phrase, tense: int, asked: bool) -> Clause:
    """is hungry, a faim; is afraid of the dog, a peur du chien."""
    said, french = _be_having(draw, subject, tense, asked, negation_of(draw, subject, tense, state=True))
    if draw.random() < 0.25:
        spots = [[AFRAID, 0], [small.OF, 0]]
        feared = something(draw, ("animal", "person", "insect"), subject)
        comment = [(PEUR, (spots[0],)), (DE, (spots[1],)), *feared.after(DE)]
        return Clause(subject, said.front, said.rest + spots + feared.spots, french + comment)
    english, faim = draw.pick(HAVING)
    spot: Spot = [english, 0]
    return Clause(subject, said.front, [*said.rest, spot], [*french, (faim, (spot,))])


def _be_having(
    draw: Draw, subject: Phrase, tense: int, asked: bool, negation: Negation | None
) -> tuple[Spoken, list[Answer]]:
    """English is, French has: the words of être are changed for those of avoir."""
    said = speak(draw.lexicon.etre, tense, subject, negation, asked=asked)
    return said, [(_HAS.get(word.form, word), its) for word, its in said.french]


def penniless(draw: Draw, subject: Phrase, tense: int) -> Clause:
    """does not have any money, est démuni."""
    said = speak(draw.lexicon.avoir, tense, subject, small.NEGATED)
    negation, have = said.rest[0], said.rest[1]
    spots: list[Spot] = [[small.ANY, 0], [MONEY, 0]]
    etre = speak(draw.lexicon.etre, tense, subject).french[0][0]
    french: list[Answer] = [
        (etre, (*said.front, have)),
        (DEMUNI[subject.feminine + 2 * subject.plural], (negation, *spots)),
    ]
    return Clause(subject, said.front, [*said.rest, *spots], french)


def missing(draw: Draw, subject: Phrase, tense: int) -> Clause:
    """he misses Marie, Marie lui manque; I miss you, tu me manques: French says it from the other side."""
    missed = pronoun(other_than(draw, subject)) if draw.random() < 0.5 else something(draw, ("person", "kin"), subject)
    if missed.pronoun is not None:
        spots: list[Spot] = [[missed.pronoun.object, 0]]
        missed.answers = [(missed.pronoun.french, (spots[0],))]
    else:
        spots = missed.spots
    negation = negation_of(draw, subject, tense, state=True)
    who = subject.pronoun
    clitics = None if who is None else [(who.indirect, tuple(subject.spots))]
    english = speak(MISSING, tense, subject, negation)
    french = speak(MISSING, tense, missed, negation, clitics)
    # the French verb agrees with the one who is missed, but answers to the English words that were said
    turned = dict(
        zip([id(spot) for spot in (*french.front, *french.rest)], (*english.front, *english.rest), strict=True)
    )
    said = [(word, tuple([turned.get(id(spot), spot) for spot in its])) for word, its in french.french]
    after: list[Answer] = [] if who is not None else [(A, english.verb), *subject.answers]
    return Clause(subject, english.front, english.rest + spots, [*missed.answers, *said, *after], turned=True)


def there_is(draw: Draw, tense: int) -> Clause:
    """There is a cat in the garden, il y a un chat dans le jardin."""
    noun = draw.pick(
        draw.lexicon.nouns[draw.pick(("person", "animal", "bird", "vehicle", "thing", "plant", "furniture"))]
    )
    thing = noun_phrase(draw, noun)
    while not thing.article:
        thing = noun_phrase(draw, noun)
    negation = small.NEGATED if draw.random() < 0.15 else None
    there = pronoun(small.IT)
    there.spots[0][0] = small.THERE
    said = speak(draw.lexicon.etre, tense, Phrase([], [], False, thing.plural), negation)
    has = speak(draw.lexicon.avoir, tense, there).french[0][0]
    negated, be = (said.rest[:1], said.rest[1:]) if negation is not None else ([], said.rest)
    french: list[Answer] = [(small.NE, tuple(negated))] if negated else []
    french += [(small.Y, (there.spots[0],)), (has, (*said.front, *be))]
    if negated:
        french.append((small.PAS, tuple(negated)))
    if negated and thing.plural:  # there were not any trains
        some: Spot = [small.ANY, 0]
        thing.spots.insert(0, some)
        thing.answers[0] = (thing.answers[0][0], (some,))
    where, la = whereabouts(draw)
    what = thing.answers if negation is None else thing.after_negation()
    return Clause(there, said.front, said.rest + thing.spots + where, french + what + la)


WEATHER = (
    ((en("raining", "VERB", "rain"),), "pleuvoir", ()),
    ((en("cold", "ADJ"),), "faire", (fr("froid", "ADJ"),)),
    ((en("hot", "ADJ"),), "faire", (fr("chaud", "ADJ"),)),
    ((en("late", "ADJ"),), "être", (fr("tard", "ADV"),)),
    ((en("dark", "ADJ"),), "faire", (fr("nuit", "NOUN"),)),
)
_WEATHER_VERBS = {form: make_verb("be", form + "!") for form in ("pleuvoir", "faire", "être")}


def weather(draw: Draw, tense: int) -> Clause:
    """It is raining, il pleut; it was cold, il faisait froid."""
    english, verb, after = draw.pick(WEATHER)
    it = pronoun(small.IT)
    said = speak(_WEATHER_VERBS[verb], tense, it, small.NEGATED if draw.random() < 0.1 else None)
    spots = spots_of(english)
    french = list(said.french)
    if not after:  # is raining, pleut: one word for both
        french = [(word, (*its, *spots)) if word.tag == "VERB" else (word, its) for word, its in french]
    return Clause(it, said.front, said.rest + spots, french + [(word, tuple(spots)) for word in after])


_HAS = {
    is_.form: has
    for tense in ("present", "imperfect", "future")
    for is_, has in zip(getattr(lexicon().etre, tense), getattr(lexicon().avoir, tense), strict=True)
}
