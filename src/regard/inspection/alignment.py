"""Which word answers to which, read off a map of attention: from pieces to words, from weights to links, and how right.

matrix = between_words(weights, source.words, target.words)        # (target words, source words)
links = links_of(balanced(matrix))                                 # ((0, 0), (1, 2), ...): source word, target word
measure([links], [gold]).aer
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from regard.errors import CorpusError
from regard.text.examples import Links

THRESHOLD = 0.2  # a share from which on a source word is linked to its best target word, though that prefers another
ROUNDS = 3  # of sharing out; further ones change next to nothing


def balanced(matrix: Tensor) -> Tensor:
    """The map after words have competed for each other: every source word shares itself out among the target words,
    then every target word among the source words, and again (Sinkhorn & Knopp 1967).

    An article is often written while looking at its noun, whose gender it needs. The noun belongs to a word that wants
    nothing else; what is left for the article is the article.
    """
    shares = matrix.double() + 1e-6  # a word that nobody looked at is shared out evenly
    for _ in range(ROUNDS):
        shares = shares / shares.sum(0, keepdim=True)
        shares = shares / shares.sum(1, keepdim=True)
    return shares.to(matrix.dtype)


def as_it_is(matrix: Tensor) -> Tensor:
    """The map without competition, where `balanced` could stand."""
    return matrix


def links_of(shares: Tensor, threshold: float = THRESHOLD) -> Links:
    """Each target word with its best source word, and each source word with its best target word, if that gives it
    at least this share. `shares` (target words, source words): a map as it is, or balanced."""
    if not shares.numel():
        return ()
    best, whose = shares.max(0)
    links = {(j, i) for i, j in enumerate(shares.argmax(1).tolist())}
    wanted = (best >= threshold).tolist()
    links |= {(j, i) for j, i in enumerate(whose.tolist()) if wanted[j]}
    return tuple(sorted(links))


def pharaoh(links: Links) -> str:
    """`0-0 1-2`: source word - target word."""
    return " ".join(f"{i}-{j}" for i, j in links)


@dataclass(frozen=True)
class Gold:
    """What people linked: surely, and possibly (the sure ones are among the possible)."""

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]

    @classmethod
    def of(cls, sure: Iterable[tuple[int, int]], possible: Iterable[tuple[int, int]] = ()) -> Gold:
        certain = frozenset(sure)
        return cls(certain, certain | frozenset(possible))


def read_gold(line: str, where: str, first: int = 0) -> Gold:
    """A line of gold links: `i-j` sure, `ipj` or `i?j` possible; words count from `first`, 0 or 1."""
    sure: set[tuple[int, int]] = set()
    possible: set[tuple[int, int]] = set()
    for one in line.split():
        mark = next((sign for sign in "-p?" if sign in one), "")
        left, _, right = one.partition(mark) if mark else ("", "", "")
        if not (left.isdecimal() and right.isdecimal() and int(left) >= first and int(right) >= first):
            raise CorpusError(f"link {one!r}", f"i-j (sure) or ipj (possible), words counted from {first}", where=where)
        (sure if mark == "-" else possible).add((int(left) - first, int(right) - first))
    return Gold.of(sure, possible)


@dataclass(frozen=True)
class Agreement:
    """How links agree with gold ones (Och & Ney 2003), summed over all sentences.

    precision = |A and P| / |A|,  recall = |A and S| / |S|,  AER = 1 - (|A and S| + |A and P|) / (|A| + |S|)
    """

    links: int
    sure: int
    in_sure: int
    in_possible: int

    @property
    def precision(self) -> float:
        return self.in_possible / self.links if self.links else 0.0

    @property
    def recall(self) -> float:
        return self.in_sure / self.sure if self.sure else 0.0

    @property
    def aer(self) -> float:
        total = self.links + self.sure
        return 1 - (self.in_sure + self.in_possible) / total if total else 0.0


def measure(found: Iterable[Links], gold: Iterable[Gold]) -> Agreement:
    """Found links beside the gold ones of the same sentences."""
    counts = [0, 0, 0, 0]
    for links, truth in zip(found, gold, strict=True):
        made = set(links)
        for at, more in enumerate((made, truth.sure, made & truth.sure, made & truth.possible)):
            counts[at] += len(more)
    return Agreement(*counts)
