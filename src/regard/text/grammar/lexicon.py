"""The lexicon: nouns, adjectives, verbs and expressions with all their forms in both languages.

Every entry is made once from the tables (nouns, verbs, adjectives) and found by what it can be used for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from regard.text.grammar import adjectives, english, french, nouns, verbs
from regard.text.grammar.particles import TAG_OF
from regard.text.grammar.tokens import DE, A, Word, en, fr

Phrase = tuple[Word, ...]


class Noun(NamedTuple):
    english: tuple[Phrase, Phrase]  # singular, plural
    french: tuple[Phrase, Phrase]
    feminine: bool
    kind: str
    mass: bool
    plural_only: bool = False


class Adjective(NamedTuple):
    english: Word
    comparative: tuple[Word, ...]  # happier, or more famous
    french: tuple[Phrase, Phrase, Phrase, Phrase]  # masculine, feminine, their plurals
    leading: tuple[Phrase, Phrase, Phrase, Phrase]  # the same before a noun: bel arbre
    better: tuple[Phrase, Phrase, Phrase, Phrase] | None  # meilleur, where it is not plus ...
    before: bool
    graded: bool  # very old, but not very wooden


class Verb(NamedTuple):
    base: Word
    third: Word
    past: Word
    participle: Word
    ing: Word
    particles: Phrase  # look *for*
    present: Phrase  # six persons
    imperfect: Phrase
    future: Phrase
    infinitive: Word
    participles: Phrase  # masculine, feminine, their plurals
    tail: Phrase  # avoir *besoin*
    preposition: Word | None  # obéir *à*
    reflexive: bool
    etre: bool
    going_on: bool  # it has a progressive
    state: bool  # its simple past is an imparfait
    motion: bool  # goes to a place rather than being there
    away: bool  # leads away from a place, so none is named
    separable: bool  # put it on
    shifts: bool  # gives somebody something, or only something to somebody
    lemma: str


class Fixed(NamedTuple):
    """An expression that never changes, and for each French word the English ones it answers to."""

    english: Phrase
    french: Phrase
    answers: tuple[tuple[int, ...], ...]


def make_noun(english_noun: str, french_noun: str, gender: str, kind: str) -> Noun:
    french_noun, _, own = french_noun.partition("/")
    gender = own or gender
    plurals = english.plural(english_noun), french.plural(french_noun)
    shown = [tuple(en(word, "NOUN", english_noun) for word in form.split()) for form in (english_noun, plurals[0])]
    return Noun(
        (shown[0], shown[1]),
        (_french_noun(french_noun), _french_noun(plurals[1])),
        "f" in gender,
        kind.rstrip("*"),
        kind.endswith("*"),
        "p" in gender,
    )


def _french_noun(text: str) -> Phrase:
    words = list(_split(text))
    small = {"de": DE, "d'": DE, "à": A}
    return tuple([small.get(word) or fr(word, "NOUN", text) for word in words])


def make_adjective(english_one: str, french_one: str, before: bool) -> Adjective:
    long = french_one.endswith("+")
    french_one = french_one.rstrip("+")
    better, meilleur = adjectives.COMPARED.get(english_one, (None, None))
    word = en(english_one, "ADJ")
    more = (en("more", "ADV"), word) if long else (en(better or english.comparative(english_one), "ADJ", english_one),)
    forms = french.agreed(french_one)
    return Adjective(
        word,
        more,
        _agreed(forms, french_one),  # type: ignore[arg-type]
        _agreed(forms, french_one, adjectives.BEFORE_VOWEL.get(french_one)),  # type: ignore[arg-type]
        _agreed(french.agreed(meilleur), meilleur) if meilleur else None,  # type: ignore[arg-type]
        before,
        english_one not in adjectives.ABSOLUTE,
    )


def _agreed(words: tuple[str, str, str, str], lemma: str, before_vowel: str | None = None) -> tuple[Phrase, ...]:
    """The four forms; before a vowel only the masculine singular changes: vieil arbre, vieux arbres."""
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
    said, dit = english.conjugate(first), french.conjugate(head)
    tag = "VERB"
    base, third, past, participle, ing = (en(form, tag, english_one) for form in said)
    return Verb(
        base,
        third,
        past,
        participle,
        ing,
        tuple(en(particle, TAG_OF[particle]) for particle in particles),
        tuple(fr(form, tag, bare) for form in dit.present),
        tuple(fr(form, tag, bare) for form in dit.imperfect),
        tuple(fr(form, tag, bare) for form in dit.future),
        fr(dit.infinitive, tag, bare),
        tuple(fr(form, tag, bare) for form in french.agreed(dit.participle)),
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


def make_expression(english_one: str, french_one: str, tag: str) -> Fixed:
    french_one, _, which = french_one.partition("/")
    said = tuple(en(word, TAG_OF.get(word, tag), word) for word in english_one.split())
    dit = tuple(fr(word, TAG_OF.get(word, tag), word) for word in _split(french_one))
    groups = which.split(".") if "." in which else list(which)
    answers = tuple(tuple(map(int, group)) for group in groups) if which else (tuple(range(len(said))),) * len(dit)
    return Fixed(said, dit, answers)


def _split(text: str) -> Iterator[str]:
    """The words of an expression: l'année is two of them, aujourd'hui is one."""
    for part in text.split():
        head, mark, rest = part.partition("'")
        if mark and rest and head in ("l", "d", "s", "qu", "n"):
            yield head + mark
            yield rest
        else:
            yield part


class Lexicon(NamedTuple):
    nouns: dict[str, list[Noun]]  # by kind
    adjectives: dict[str, list[Adjective]]
    predicates: dict[str, list[Adjective]]  # those that something can be said to be
    places: list[tuple[Word, Word, Noun]]  # in, dans, the garden
    surfaces: list[tuple[Word, Word, Noun]]
    verbs: dict[str, list[tuple[Verb, tuple[str, ...], tuple[str, ...]]]]  # by frame: verb, subjects, objects
    homonyms: list[tuple[Noun, bool, list[Verb]]]  # noun, does it act, its verbs
    countries: list[tuple[Word, Word, bool]]
    manner: list[Fixed]
    frequency: list[Fixed]
    perfect: list[Fixed]
    openers: list[Fixed]
    degree: list[Fixed]
    times: dict[str, list[Fixed]]
    praise: list[Adjective]
    blame: list[Adjective]
    etre: Verb
    avoir: Verb
    aller: Verb
    people_alone: list[Verb]  # what persons do, with nothing
    people_object: list[tuple[Verb, tuple[str, ...]]]  # ... and with what
    creatures: list[tuple[Verb, tuple[str, ...], tuple[str, ...]]]  # what all others do, and to what
    done_to: dict[str, list[Verb]]  # what persons do to a kind of thing, without a preposition


@cache
def lexicon() -> Lexicon:
    """All of it; a tenth of a second, the first time somebody asks."""
    frames, described = _verbs(), _adjectives()
    people_object = [(verb, objects) for verb, subjects, objects in frames["object"] if subjects[0] == "person"]
    done_to: dict[str, list[Verb]] = defaultdict(list)
    for verb, objects in people_object:
        for kind in objects:
            if verb.preposition is None and not verb.reflexive:
                done_to[kind].append(verb)
    return Lexicon(
        nouns=_nouns(),
        adjectives=described,
        predicates={
            kind: [adjective for adjective in choices if adjective.english.form not in adjectives.ATTRIBUTIVE]
            for kind, choices in described.items()
        },
        places=[(en(i, "ADP"), A if d == "à" else fr(d, "ADP"), noun) for i, d, noun in _located(nouns.PLACES, " ")],
        surfaces=[(en(i, "ADP"), fr(d, "ADP"), noun) for i, d, noun in _located(nouns.SURFACES, "=")],
        verbs=frames,
        homonyms=list(_homonyms()),
        countries=list(_countries()),
        manner=_fixed(adjectives.MANNER, "ADV"),
        frequency=_fixed(adjectives.FREQUENCY, "ADV"),
        perfect=_fixed(adjectives.PERFECT, "ADV"),
        openers=_fixed(adjectives.OPENERS, "ADV"),
        degree=_fixed(adjectives.DEGREE, "ADV"),
        times=_times(),
        praise=[make_adjective(*pair, before=False) for pair in _pairs(adjectives.PRAISE)],
        blame=[make_adjective(*pair, before=False) for pair in _pairs(adjectives.BLAME)],
        etre=make_verb("be", "être!"),
        avoir=make_verb("have", "avoir!"),
        aller=make_verb("go", "aller"),
        people_alone=[verb for verb, subjects, _ in frames["alone"] if subjects[0] == "person"],
        people_object=people_object,
        creatures=[
            (verb, others, objects)
            for frame in ("alone", "object")
            for verb, subjects, objects in frames[frame]
            if (others := tuple(kind for kind in subjects if kind not in ("person", "kin")))
        ],
        done_to=dict(done_to),
    )


@cache
def lemmas() -> frozenset[tuple[str, str]]:
    """The pairs of an English and a French lemma; names and the small words are not among them."""
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


def _located(table: str, between: str) -> Iterator[tuple[str, str, Noun]]:
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
        found[kind] += [make_adjective(*pair, before=side == "before") for pair in _pairs(items)]
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
    never: dict[str, list[Adjective]] = {kind: [] for kind in ("money", "game", "sky")}
    return never | found | {kind: found[other] for kind, other in alike.items()}


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


def _countries() -> Iterator[tuple[Word, Word, bool]]:
    for line in nouns.COUNTRIES.strip().splitlines():
        gender, _, items = line.partition(": ")
        for english_one, french_one in _pairs(items):
            yield en(english_one, "PROPN"), fr(french_one, "PROPN"), gender == "f"


def _fixed(table: str, tag: str) -> list[Fixed]:
    return [make_expression(*pair, tag) for pair in _pairs(table)]


def _times() -> dict[str, list[Fixed]]:
    found: dict[str, list[Fixed]] = defaultdict(list)
    for line in adjectives.TIMES.strip().splitlines():
        tense, _, items = line.partition(": ")
        found[tense] += _fixed(items, "ADV")
    return dict(found)
