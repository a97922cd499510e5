"""The look-up of `regard lookup`: one query against shelf labels, by exact match, then by softer attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from regard.attention import Attended

SHELF = {"butter": 2.49, "buttermilk": 1.09, "milk": 1.19, "bread": 2.20, "honey": 5.90, "apples": 2.99}
"""Label and price: the labels are what is compared (keys), the prices what is averaged (values)."""

TEMPERATURES = (0.02, 0.1, 0.25, 1.0, 10.0)
"""From cold, where attention is almost the exact match, to hot, where it is almost the mean."""


@dataclass(frozen=True)
class LookupResult:
    """The result of one way of looking up the word."""

    temperature: float | None  # None: exact match
    weights: tuple[float, ...]  # one per label; they sum to 1, or to 0 where nothing matches
    entropy: float  # in nats; e ** entropy is about the number of labels looked at
    price: float | None  # None: no match


@dataclass(frozen=True)
class Lookup:
    """A word, the shelf labels and prices, and the results from exact match to high temperature."""

    word: str
    labels: tuple[str, ...]
    prices: tuple[float, ...]
    answers: tuple[LookupResult, ...]


def look_up(word: str) -> Lookup:
    """Look a word up: by exact match, then by softmax(q.k / temperature) at each temperature."""
    import torch

    from regard.attention import Observe, attend, scores

    pairs = sorted({pair for text in (word, *SHELF) for pair in letter_pairs(text)})
    query = torch.stack([letter_pair_vector(word, pairs)])  # (T=1, D)
    keys = torch.stack([letter_pair_vector(label, pairs) for label in SHELF])  # (S, D)
    values = torch.tensor([[price] for price in SHELF.values()], dtype=torch.float64)  # (S, Dv=1)
    observe = Observe(weights=True, entropy=True)
    answers = [_answer(None, attend(query, keys, values, score=scores.Match(), observe=observe))]
    for temperature in TEMPERATURES:
        score = scores.ScaledDot(scale=1 / temperature)
        answers.append(_answer(temperature, attend(query, keys, values, score=score, observe=observe)))
    return Lookup(word, tuple(SHELF), tuple(SHELF.values()), tuple(answers))


def letter_pairs(text: str) -> list[str]:
    """The letter bigrams of a word with its two ends: milk gives ^m mi il lk k$."""
    marked = f"^{text.lower()}$"
    return [marked[i : i + 2] for i in range(len(marked) - 1)]


def letter_pair_vector(text: str, pairs: Sequence[str]) -> Tensor:
    """The word as a unit vector of letter bigram counts (D,), so that q.k is the similarity of two words."""
    import torch

    found = letter_pairs(text)
    counts = torch.tensor([found.count(pair) for pair in pairs], dtype=torch.float64)
    return counts / counts.norm()


def _answer(temperature: float | None, attended: Attended) -> LookupResult:
    assert attended.weights is not None
    assert attended.entropy is not None
    weights = tuple(float(weight) for weight in attended.weights[0])
    price = float(attended.output[0, 0]) if any(weights) else None
    return LookupResult(temperature, weights, float(attended.entropy[0]), price)
