"""The lexicon: every entry, made once from the tables and found by what it can be used for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from regard.text.grammar import adjectives, nouns, verbs
from regard.text.grammar.entries import (
    Adjective,
    Fixed,
    Noun,
    Verb,
    make_adjective,
    make_expression,
    make_noun,
    make_verb,
)
from regard.text.grammar.tokens import A, Word, en, fr


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
