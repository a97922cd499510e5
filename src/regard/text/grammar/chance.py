"""Where chance comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from regard.text.grammar import names
from regard.text.grammar.lexicon import Lexicon, lexicon

Thing = TypeVar("Thing")


class Draw:
    """Where chance comes from: every decision of the grammar is one number of this sequence."""

    __slots__ = ("families", "lexicon", "pick", "random", "towns")

    def __init__(self, seed: str, unseen: bool = False) -> None:
        random = Random(seed).random

        def pick(choices: Sequence[Thing]) -> Thing:
            return choices[int(random() * len(choices))]

        self.random: Callable[[], float] = random
        self.pick = pick
        self.lexicon: Lexicon = lexicon()
        self.families = names.UNSEEN_FAMILIES if unseen else names.FAMILIES
        self.towns = names.UNSEEN_TOWNS if unseen else names.TOWNS
