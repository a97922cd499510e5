"""Steppers small enough to know everything about: what they say depends on all that they have read, and on the row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.decoding import Rules

END = 0


class Read(NamedTuple):
    """What a toy has read: the number of each row, and its tokens so far."""

    numbers: Tensor  # (B,)
    tokens: Tensor  # (B, t)


class Toy:
    """ln p of the next token, by chance that depends on the row's number and on every token before.

    `places`: how many places of a source it reports attention to, which depends on the same; row n has n % places + 1
    of them, the others are padding. None: it reports none. `sharp` makes its opinions stronger.
    """

    def __init__(
        self, size: int = 4, places: int | None = None, sharp: float = 1.0, dtype: torch.dtype = torch.float64
    ) -> None:
        self.size, self.places, self.sharp, self.dtype = size, places, sharp, dtype
        self.steps: list[int] = []  # how many rows each step had

    def start(self, inputs: Tensor, lengths: Tensor) -> Read:
        """inputs (B, 1) are the numbers of the rows."""
        return Read(inputs[:, 0], inputs[:, :0])

    def step(self, state: Read, tokens: Tensor) -> tuple[Tensor, Tensor | None, Read]:
        self.steps.append(len(tokens))
        read = torch.cat((state.tokens, tokens.unsqueeze(1)), 1)
        rows = [(number, *row) for number, row in zip(state.numbers.tolist(), read.tolist(), strict=True)]
        said = torch.tensor(np.stack([self.opinion(row) for row in rows]), dtype=self.dtype)
        weights = None
        if self.places is not None:
            weights = torch.tensor(np.stack([self.attention(row) for row in rows]), dtype=self.dtype)
        return said.log_softmax(-1), weights, Read(state.numbers, read)

    def reorder(self, state: Read, rows: Tensor) -> Read:
        return Read(state.numbers[rows], state.tokens[rows])

    def opinion(self, row: Sequence[int]) -> np.ndarray:
        return np.random.default_rng(row).normal(size=self.size) * self.sharp

    def attention(self, row: Sequence[int]) -> np.ndarray:
        """(places,), summing to 1."""
        assert self.places is not None
        shares = np.random.default_rng([7, *row]).random(self.places)
        shares[row[0] % self.places + 1 :] = 0
        return shares / shares.sum()

    def log_probs(self, number: int, tokens: Sequence[int], first: int = 1) -> list[float]:
        """ln p of each token of a text, the end among them if it is there."""
        known = (number, first, *tokens)
        opinions = [self.opinion(known[: 2 + at]) for at in range(len(tokens))]
        return [float(one[token] - np.logaddexp.reduce(one)) for one, token in zip(opinions, tokens, strict=True)]

    def weights(self, number: int, steps: Sequence[int], first: int = 1) -> np.ndarray:
        """(len(steps), places): where each step looked before it wrote its token."""
        known = (number, first, *steps)
        return np.stack([self.attention(known[: 2 + at]) for at in range(len(steps))])


def begin(toy: Toy, numbers: Sequence[int]) -> tuple[Read, Tensor]:
    """The state and the first tokens of rows with these numbers."""
    inputs = torch.tensor(numbers).view(-1, 1)
    return toy.start(inputs, torch.ones(len(numbers))), torch.ones(len(numbers), dtype=torch.long)


def every_text(size: int, rules: Rules, row: int = 0) -> Iterator[tuple[tuple[int, ...], bool]]:
    """All texts that the rules allow to a row, by trying everything; and whether they end or were cut off."""
    words = [token for token in range(size) if token != rules.end]
    for length in range(rules.max_length + 1):
        for text in product(words, repeat=length):
            finished = length < rules.max_length
            if finished and (rules.end is None or length < rules.min_length):
                continue
            if _follows(text, rules, row) and not _banned((*text, rules.end) if finished else text, rules, row):
                yield text, finished


def _follows(text: tuple[int, ...], rules: Rules, row: int) -> bool:
    prefix = tuple(rules.prefix[row]) if rules.prefix else ()
    if text[: len(prefix)] != prefix:
        return False
    required = rules.required[row] if rules.required else ()
    return all(tuple(ids) in _stretches(text, len(ids)) for ids in required)


def _banned(steps: tuple[int | None, ...], rules: Rules, row: int) -> bool:
    """Whether a banned sequence is in it; what the prefix itself has is the prefix's affair."""
    own = len(rules.prefix[row]) if rules.prefix else 0
    return any(
        found == tuple(ids) and at + len(ids) > own
        for ids in rules.banned
        for at, found in enumerate(_stretches(steps, len(ids)))
    )


def _stretches(text: tuple[int | None, ...], size: int) -> list[tuple[int | None, ...]]:
    return [text[at : at + size] for at in range(len(text) - size + 1)]
