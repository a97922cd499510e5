"""Where chance comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from regard.text.grammar import nouns
from regard.text.grammar.lexicon import Lexicon, lexicon
from regard.text.grammar.tokens import Spot

Thing = TypeVar("Thing")


class Draw:
    """Where chance comes from: every decision of the grammar is one number of this sequence.

    Rules tell it what they `said`, words that will stand beside each other: nothing to whoever draws, but a reader
    who follows the rules learns early that they lead astray.
    """

    __slots__ = ("families", "lexicon", "pick", "random", "said", "towns")

    def __init__(self, seed: str, unseen: bool = False) -> None:
        random = Random(seed).random

        def pick(choices: Sequence[Thing]) -> Thing:
            return choices[int(random() * len(choices))]

        self.random: Callable[[], float] = random
        self.pick = pick
        self.said: Callable[[Sequence[Spot]], None] = _nobody_listens
        self.lexicon: Lexicon = lexicon()
        self.families = nouns.UNSEEN_FAMILIES if unseen else nouns.FAMILIES
        self.towns = nouns.UNSEEN_TOWNS if unseen else nouns.TOWNS


def _nobody_listens(spots: Sequence[Spot]) -> None:
    """Whoever draws does not need to hear what was said."""
