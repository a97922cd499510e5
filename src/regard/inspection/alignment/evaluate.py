"""How word links agree with gold ones (precision, recall, alignment error rate), and how well a translator translates.

evaluate_links([links], [gold]).aer
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from regard.decoding import Search, Tell, Translated, Translator
from regard.errors import CorpusError
from regard.inspection.alignment.links import links as links_in
from regard.text import Links, Translation

if TYPE_CHECKING:
    from regard.training import Grade


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


def evaluate_links(found: Iterable[Links], gold: Iterable[Gold]) -> Agreement:
    """Found links beside the gold ones of the same sentences."""
    counts = [0, 0, 0, 0]
    for links, truth in zip(found, gold, strict=True):
        made = set(links)
        for at, more in enumerate((made, truth.sure, made & truth.sure, made & truth.possible)):
            counts[at] += len(more)
    return Agreement(*counts)


@dataclass(frozen=True, eq=False)
class Judged:
    """What a translator made of sentences whose translations, and perhaps links, are known."""

    translations: list[Translated]
    bleu: Grade
    chrf: Grade
    agreement: Agreement | None  # of the links, where gold ones are known and the model attends
    by_length: dict[str, float]  # BLEU of the sentences of so many words


def judge(
    translator: Translator,
    pairs: Sequence[Translation],
    search: Search | None = None,
    lengths: Sequence[int] = (10, 20, 30, 40),
    tell: Tell = lambda more: None,
) -> Judged:
    """Translate the sources and compare; the links are read off while the model is made to write the references.

    `lengths`: where to cut the sentences into groups, by the words of their sources.
    """
    from regard.training import bleu, chrf

    found = [best for best, *_ in translator([pair.source for pair in pairs], search, tell=tell)]
    got, expected = [one.text for one in found], [pair.target for pair in pairs]
    groups: dict[str, list[int]] = {}
    for row, pair in enumerate(pairs):
        groups.setdefault(_group(len(pair.source.split()), lengths), []).append(row)
    by_length = {
        name: bleu([got[row] for row in groups[name]], [expected[row] for row in groups[name]]).value
        for name in _names(lengths)
        if name in groups
    }
    agreement = agreement_of(translator, pairs) if all(pair.links is not None for pair in pairs) else None
    return Judged(found, bleu(got, expected), chrf(got, expected), agreement, by_length)


def agreement_of(translator: Translator, pairs: Sequence[Translation]) -> Agreement | None:
    """How the links of given translations agree with the gold ones; None where the model attends to nothing."""
    read = translator.read([(pair.source, pair.target) for pair in pairs])
    if any(one.weights is None for one in read):
        return None
    return evaluate_links((links_in(translator, one) for one in read), (Gold.of(pair.links or ()) for pair in pairs))


def _names(lengths: Sequence[int]) -> list[str]:
    edges = [0, *lengths]
    return [f"{low + 1}-{high}" for low, high in pairwise(edges)] + [f"over {edges[-1]}"]


def _group(words: int, lengths: Sequence[int]) -> str:
    return _names(lengths)[bisect_left(lengths, words)]
