"""The lexicon: nouns, adjectives, verbs and expressions with all their forms in both languages.

Every entry is built once from the tables (nouns, verbs, adjectives) and indexed by its use: kind of noun, verb frame.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from regard.text.grammar import adjectives, english, french, nouns, verbs
from regard.text.grammar.function_words import TAG_OF
from regard.text.grammar.tokens import DE, A, WordForm, en, fr

WordForms = tuple[WordForm, ...]


class Noun(NamedTuple):
    english: tuple[WordForms, WordForms]  # singular, plural
    french: tuple[WordForms, WordForms]
    feminine: bool
    kind: str
    mass: bool
    plural_only: bool = False


class Adjective(NamedTuple):
    english: WordForm
    comparative: tuple[WordForm, ...]  # happier, or more famous
    french: tuple[WordForms, WordForms, WordForms, WordForms]  # masculine, feminine, their plurals
    prenominal: tuple[WordForms, WordForms, WordForms, WordForms]  # the same before a noun: bel arbre
    irregular_comparative: (
        tuple[WordForms, WordForms, WordForms, WordForms] | None
    )  # meilleur, where it is not plus ...
    is_prenominal: bool
    gradable: bool  # very old, but not very wooden


class Verb(NamedTuple):
    base: WordForm
    third: WordForm
    past: WordForm
    participle: WordForm
    ing: WordForm
    particles: WordForms  # look *for*
    present: WordForms  # six persons
    imperfect: WordForms
    future: WordForms
    infinitive: WordForm
    participles: WordForms  # masculine, feminine, their plurals
    tail: WordForms  # avoir *besoin*
    preposition: WordForm | None  # obéir *à*
    reflexive: bool
    with_etre: bool  # its auxiliary in the passé composé
    has_progressive: bool
    stative: bool  # its simple past is an imparfait
    is_motion: bool  # goes to a place rather than being there
    away: bool  # leads away from a place, so none is named
    separable: bool  # put it on
    dative_shift: bool  # give somebody something; others only give something to somebody
    lemma: str


class FixedExpression(NamedTuple):
    """An invariable expression; `aligned` has, for each French word, the English words it aligns to."""

    english: WordForms
    french: WordForms
    aligned: tuple[tuple[int, ...], ...]


def make_noun(english_noun: str, french_noun: str, gender: str, kind: str) -> Noun:
    french_noun, _, exception = french_noun.partition("/")
    gender = exception or gender
    plurals = english.plural(english_noun), french.plural(french_noun)
    forms = [tuple(en(word, "NOUN", english_noun) for word in form.split()) for form in (english_noun, plurals[0])]
    return Noun(
        (forms[0], forms[1]),
        (_french_noun(french_noun), _french_noun(plurals[1])),
        "f" in gender,
        kind.rstrip("*"),
        kind.endswith("*"),
        "p" in gender,
    )


def _french_noun(text: str) -> WordForms:
    words = list(_split(text))
    prepositions = {"de": DE, "d'": DE, "à": A}
    return tuple([prepositions.get(word) or fr(word, "NOUN", text) for word in words])


def make_adjective(english_one: str, french_one: str, is_prenominal: bool) -> Adjective:
    periphrastic = french_one.endswith("+")
    french_one = french_one.rstrip("+")
    better, meilleur = adjectives.IRREGULAR_COMPARATIVES.get(english_one, (None, None))
    word = en(english_one, "ADJ")
    more = (
        (en("more", "ADV"), word)
        if periphrastic
        else (en(better or english.comparative(english_one), "ADJ", english_one),)
    )
    forms = french.agreement_forms(french_one)
    return Adjective(
        word,
        more,
        _agreed(forms, french_one),  # type: ignore[arg-type]
        _agreed(forms, french_one, adjectives.BEFORE_VOWEL.get(french_one)),  # type: ignore[arg-type]
        _agreed(french.agreement_forms(meilleur), meilleur) if meilleur else None,  # type: ignore[arg-type]
        is_prenominal,
        english_one not in adjectives.NOT_GRADABLE,
    )


def _agreed(words: tuple[str, str, str, str], lemma: str, before_vowel: str | None = None) -> tuple[WordForms, ...]:
    """The four agreement forms; only the masculine singular changes before a vowel: vieil arbre, vieux arbres."""
    return tuple(
        tuple(
            fr(part, TAG_OF.get(part, "ADJ") if " " in form else "ADJ", lemma, before_vowel if which == 0 else None)
            for part in form.split()
        )
        for which, form in enumerate(words)
    )


def make_verb(english_one: str, french_one: str) -> Verb:
    bare = french_one.rstrip("!~<>-")
    marks = french_one[len(bare) :]
    reflexive = bare.startswith(("se ", "s'"))
    head, *tail = _split(bare.removeprefix("se ").removeprefix("s'"))
    preposition = {"à": A, "de": DE, "dans": fr("dans", "ADP")}.get(tail[-1]) if tail else None
    tail = tail[:-1] if preposition else tail
    first, *particles = english_one.split()
    inflected, conjugated = english.conjugate(first), french.conjugate(head)
    tag = "VERB"
    base, third, past, participle, ing = (en(form, tag, english_one) for form in inflected)
    return Verb(
        base,
        third,
        past,
        participle,
        ing,
        tuple(en(particle, TAG_OF[particle]) for particle in particles),
        tuple(fr(form, tag, bare) for form in conjugated.present),
        tuple(fr(form, tag, bare) for form in conjugated.imperfect),
        tuple(fr(form, tag, bare) for form in conjugated.future),
        fr(conjugated.infinitive, tag, bare),
        tuple(fr(form, tag, bare) for form in french.agreement_forms(conjugated.participle)),
        tuple(fr(word, TAG_OF[word], bare) for word in tail),
        preposition,
        reflexive,
        reflexive or head in verbs.WITH_ETRE,
        "!" not in marks and "~" not in marks,
        "!" in marks,
        ">" in marks,
        "<" in marks,
        english_one in verbs.SEPARABLE,
        "-" not in marks,
        bare,
    )


def make_expression(english_one: str, french_one: str, tag: str) -> FixedExpression:
    french_one, _, which = french_one.partition("/")
    source = tuple(en(word, TAG_OF.get(word, tag), word) for word in english_one.split())
    target = tuple(fr(word, TAG_OF.get(word, tag), word) for word in _split(french_one))
    groups = which.split(".") if "." in which else list(which)
    aligned = tuple(tuple(map(int, group)) for group in groups) if which else (tuple(range(len(source))),) * len(target)
    return FixedExpression(source, target, aligned)


def _split(text: str) -> Iterator[str]:
    """The words of an expression: l'année is two of them, aujourd'hui is one."""
    for part in text.split():
        head, mark, rest = part.partition("'")
        if mark and rest and head in ("l", "d", "s", "qu", "n"):
            yield head + mark
            yield rest
        else:
            yield part


class BilingualLexicon(NamedTuple):
    nouns: dict[str, list[Noun]]  # by kind
    adjectives: dict[str, list[Adjective]]
    predicates: dict[str, list[Adjective]]  # usable after the copula
    places: list[tuple[WordForm, WordForm, Noun]]  # in, dans, the garden
    surfaces: list[tuple[WordForm, WordForm, Noun]]
    verbs: dict[str, list[tuple[Verb, tuple[str, ...], tuple[str, ...]]]]  # by frame: verb, subjects, objects
    homonyms: list[tuple[Noun, bool, list[Verb]]]  # noun, whether it is the subject, its verbs
    countries: list[tuple[WordForm, WordForm, bool]]
    manner: list[FixedExpression]
    frequency: list[FixedExpression]
    perfect_adverbs: list[FixedExpression]
    sentence_adverbs: list[FixedExpression]
    degree: list[FixedExpression]
    times: dict[str, list[FixedExpression]]
    praise: list[Adjective]
    blame: list[Adjective]
    etre: Verb
    avoir: Verb
    aller: Verb
    human_intransitive: list[Verb]
    human_transitive: list[tuple[Verb, tuple[str, ...]]]  # verb, kinds of objects
    non_human_verbs: list[tuple[Verb, tuple[str, ...], tuple[str, ...]]]  # verb, kinds of subjects, of objects
    transitive_by_object: dict[str, list[Verb]]  # by kind of object; human subjects, no preposition


@cache
def lexicon() -> BilingualLexicon:
    """The lexicon, built on the first call (0.1 s)."""
    frames, by_kind = _verbs(), _adjectives()
    human_transitive = [(verb, objects) for verb, subjects, objects in frames["object"] if subjects[0] == "person"]
    by_object: dict[str, list[Verb]] = defaultdict(list)
    for verb, objects in human_transitive:
        for kind in objects:
            if verb.preposition is None and not verb.reflexive:
                by_object[kind].append(verb)
    return BilingualLexicon(
        nouns=_nouns(),
        adjectives=by_kind,
        predicates={
            kind: [adjective for adjective in choices if adjective.english.form not in adjectives.ATTRIBUTIVE]
            for kind, choices in by_kind.items()
        },
        places=[
            (en(i, "ADP"), A if d == "à" else fr(d, "ADP"), noun) for i, d, noun in _place_nouns(nouns.PLACES, " ")
        ],
        surfaces=[(en(i, "ADP"), fr(d, "ADP"), noun) for i, d, noun in _place_nouns(nouns.SURFACES, "=")],
        verbs=frames,
        homonyms=list(_homonyms()),
        countries=list(_countries()),
        manner=_expressions(adjectives.MANNER, "ADV"),
        frequency=_expressions(adjectives.FREQUENCY, "ADV"),
        perfect_adverbs=_expressions(adjectives.PERFECT, "ADV"),
        sentence_adverbs=_expressions(adjectives.OPENERS, "ADV"),
        degree=_expressions(adjectives.DEGREE, "ADV"),
        times=_times(),
        praise=[make_adjective(*pair, is_prenominal=False) for pair in _pairs(adjectives.PRAISE)],
        blame=[make_adjective(*pair, is_prenominal=False) for pair in _pairs(adjectives.BLAME)],
        etre=make_verb("be", "être!"),
        avoir=make_verb("have", "avoir!"),
        aller=make_verb("go", "aller"),
        human_intransitive=[verb for verb, subjects, _ in frames["alone"] if subjects[0] == "person"],
        human_transitive=human_transitive,
        non_human_verbs=[
            (verb, others, objects)
            for frame in ("alone", "object")
            for verb, subjects, objects in frames[frame]
            if (others := tuple(kind for kind in subjects if kind not in ("person", "kin")))
        ],
        transitive_by_object=dict(by_object),
    )


@cache
def lemmas() -> frozenset[tuple[str, str]]:
    """The pairs of an English and a French lemma; without names and function words."""
    found = {
        pair
        for table in (
            nouns.TABLE,
            nouns.PLACES,
            nouns.SURFACES,
            nouns.HOMONYMS,
            nouns.COUNTRIES,
            verbs.TABLE,
            adjectives.TABLE,
        )
        for line in table.strip().splitlines()
        for pair in _pairs(line.partition(": ")[2])
    }
    found |= {tuple(line.split(" ")[0].split("=")) for line in nouns.HOMONYMS.strip().splitlines()}  # type: ignore[misc]
    for table in (adjectives.PRAISE, adjectives.BLAME, adjectives.MANNER, adjectives.FREQUENCY, adjectives.DEGREE):
        found |= set(_pairs(table))
    return frozenset((english, french.partition("/")[0].rstrip("!~<>-+")) for english, french in found)


def _pairs(text: str) -> list[tuple[str, str]]:
    items = [item.strip() for line in text.strip().splitlines() for item in line.split(", ")]
    return [(item.partition("=")[0], item.partition("=")[2]) for item in items if item]


def _nouns() -> dict[str, list[Noun]]:
    found: dict[str, list[Noun]] = defaultdict(list)
    for line in nouns.TABLE.strip().splitlines():
        head, _, items = line.partition(": ")
        kind, gender = head.split()
        found[kind] += [make_noun(*pair, gender, kind) for pair in _pairs(items)]
    return dict(found)


def _place_nouns(table: str, between: str) -> Iterator[tuple[str, str, Noun]]:
    for line in table.strip().splitlines():
        head, _, items = line.partition(": ")
        prepositions, _, gender = head.rpartition(" ")
        english_one, french_one = prepositions.split(between)
        for pair in _pairs(items):
            yield english_one, french_one, make_noun(*pair, gender, "place" if between == " " else "thing")


def _adjectives() -> dict[str, list[Adjective]]:
    found: dict[str, list[Adjective]] = defaultdict(list)
    for line in adjectives.TABLE.strip().splitlines():
        head, _, items = line.partition(": ")
        kind, side = head.split()
        found[kind] += [make_adjective(*pair, is_prenominal=side == "before") for pair in _pairs(items)]
    alike = {
        "kin": "person",
        "bird": "animal",
        "insect": "animal",
        "machine": "thing",
        "craft": "vehicle",
        "structure": "building",
        "furniture": "thing",
        "award": "event",
    }
    alike |= {"opening": "thing", "instrument": "thing", "bell": "thing"}
    without: dict[str, list[Adjective]] = {kind: [] for kind in ("money", "game", "sky")}
    return without | found | {kind: found[other] for kind, other in alike.items()}


def _verbs() -> dict[str, list[tuple[Verb, tuple[str, ...], tuple[str, ...]]]]:
    found: dict[str, list[tuple[Verb, tuple[str, ...], tuple[str, ...]]]] = defaultdict(list)
    for line in verbs.TABLE.strip().splitlines():
        head, _, items = line.partition(": ")
        frame, subjects, *objects = head.split()
        kinds = tuple(objects[0].split("+")) if objects else ()
        found[frame] += [(make_verb(*pair), tuple(subjects.split("+")), kinds) for pair in _pairs(items)]
    return dict(found)


def _homonyms() -> Iterator[tuple[Noun, bool, list[Verb]]]:
    for line in nouns.HOMONYMS.strip().splitlines():
        head, _, items = line.partition(": ")
        pair, gender, role = head.split()
        english_one, _, french_one = pair.partition("=")
        yield (
            make_noun(english_one, french_one, gender, "animal" if role == "subject" else "thing"),
            role == "subject",
            [make_verb(*pair) for pair in _pairs(items)],
        )


def _countries() -> Iterator[tuple[WordForm, WordForm, bool]]:
    for line in nouns.COUNTRIES.strip().splitlines():
        gender, _, items = line.partition(": ")
        for english_one, french_one in _pairs(items):
            yield en(english_one, "PROPN"), fr(french_one, "PROPN"), gender == "f"


def _expressions(table: str, tag: str) -> list[FixedExpression]:
    return [make_expression(*pair, tag) for pair in _pairs(table)]


def _times() -> dict[str, list[FixedExpression]]:
    found: dict[str, list[FixedExpression]] = defaultdict(list)
    for line in adjectives.TIMES.strip().splitlines():
        tense, _, items = line.partition(": ")
        found[tense] += _expressions(items, "ADV")
    return dict(found)
