"""Where something is or goes: places, towns and countries, each with the prepositions it takes."""

from __future__ import annotations

from regard.text.grammar import particles as small
from regard.text.grammar.chance import Draw
from regard.text.grammar.nominals import described
from regard.text.grammar.phrases import Phrase, define, proper, spots_of
from regard.text.grammar.tokens import LE, A, Answer, Spot


def whereabouts(draw: Draw, motion: bool = False) -> tuple[list[Spot], list[Answer]]:
    """In the garden, at Paul's... : a place with its prepositions; with motion, the place one goes to."""
    chance = draw.random()
    if chance < 0.2:
        return _town(draw, motion)
    if chance < 0.3:
        return _country(draw, motion)
    within, dans, noun = draw.pick(draw.lexicon.places)
    phrase = described(draw, noun, False, 0.75)
    define(phrase)
    if not motion and chance > 0.8:
        return beside(draw, phrase)
    spot: Spot = [small.TOWARDS if motion else within, 0]
    draw.said([spot, *phrase.spots])
    return [spot, *phrase.spots], [(dans, (spot,)), *phrase.answers]


def beside(draw: Draw, phrase: Phrase) -> tuple[list[Spot], list[Answer]]:
    """Near the river, près de la rivière."""
    english, french = draw.pick(small.BESIDE)
    spots = spots_of(english)
    its = tuple(spots)
    return spots + phrase.spots, [(word, its) for word in french] + phrase.after(french[-1])


def _town(draw: Draw, motion: bool) -> tuple[list[Spot], list[Answer]]:
    english, french = proper(draw.pick(draw.towns))
    spots: list[Spot] = [[small.TOWARDS if motion else small.IN, 0], [english, 0]]
    return spots, [(A, (spots[0],)), (french, (spots[1],))]


def _country(draw: Draw, motion: bool) -> tuple[list[Spot], list[Answer]]:
    country, pays, feminine = draw.pick(draw.lexicon.countries)
    spots: list[Spot] = [[small.TOWARDS if motion else small.IN, 0], [country, 0]]
    within: list[Answer] = (
        [(small.EN, (spots[0],))] if feminine or pays.vowel else [(A, (spots[0],)), (LE, (spots[0],))]
    )
    return spots, [*within, (pays, (spots[1],))]
