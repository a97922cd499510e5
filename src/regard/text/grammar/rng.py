"""The random number generator (RNG) that every rule of the grammar draws from, with the lexicon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from regard.text.grammar import nouns
from regard.text.grammar.lexicon import BilingualLexicon, lexicon
from regard.text.grammar.tokens import Slot

Item = TypeVar("Item")


class GrammarRng:
    """A seeded random number generator: every decision of the grammar consumes one number of its sequence.

    Rules pass each run of adjacent English words to `emit`. Generation ignores it; a parser that searches the rules
    for a given sentence overrides it to prune.
    """

    __slots__ = ("choice", "emit", "families", "lexicon", "random", "towns")

    def __init__(self, seed: str, unseen: bool = False) -> None:
        random = Random(seed).random

        def choice(choices: Sequence[Item]) -> Item:
            return choices[int(random() * len(choices))]

        self.random: Callable[[], float] = random
        self.choice = choice
        self.emit: Callable[[Sequence[Slot]], None] = _discard
        self.lexicon: BilingualLexicon = lexicon()
        self.families = nouns.HELD_OUT_FAMILIES if unseen else nouns.FAMILIES
        self.towns = nouns.HELD_OUT_TOWNS if unseen else nouns.TOWNS


def _discard(slots: Sequence[Slot]) -> None:
    """Generation ignores what was emitted."""
