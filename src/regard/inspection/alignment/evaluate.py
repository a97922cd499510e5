"""AER (alignment error rate), precision and recall of word links against gold ones; BLEU and chrF of a translator.

evaluate_links([links], [gold]).aer
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from regard.decoding import ProgressCallback, Search, Translated, Translator
from regard.errors import CorpusError
from regard.inspection.alignment.links import translation_links
from regard.text import Links, Translation

if TYPE_CHECKING:
    from regard.training import CorpusScore


@dataclass(frozen=True)
class Gold:
    """Gold links of a pair by human annotators: the sure ones, and the possible ones, which include the sure ones."""

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]

    @classmethod
    def of(cls, sure: Iterable[tuple[int, int]], possible: Iterable[tuple[int, int]] = ()) -> Gold:
        certain = frozenset(sure)
        return cls(certain, certain | frozenset(possible))


def read_gold(line: str, where: str, first: int = 0) -> Gold:
    """A line of gold links (Pharaoh format): `i-j` sure, `ipj` or `i?j` possible; words count from `first`, 0 or 1."""
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
    """Precision, recall and alignment error rate (AER; Och & Ney 2003) of links A, summed over all sentences.

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
    """The agreement of links with the gold ones of the same sentences."""
    counts = [0, 0, 0, 0]
    for links, truth in zip(found, gold, strict=True):
        made = set(links)
        for at, more in enumerate((made, truth.sure, made & truth.sure, made & truth.possible)):
            counts[at] += len(more)
    return Agreement(*counts)


@dataclass(frozen=True, eq=False)
class TranslationEvaluation:
    """The translations of sentences with references, their scores, and the AER where gold links are known."""

    translations: list[Translated]
    bleu: CorpusScore
    chrf: CorpusScore
    agreement: Agreement | None  # None without gold links, or without attention
    by_length: dict[str, float]  # BLEU by the length of the source


def evaluate_translator(
    translator: Translator,
    pairs: Sequence[Translation],
    search: Search | None = None,
    lengths: Sequence[int] = (10, 20, 30, 40),
    on_progress: ProgressCallback = lambda more: None,
) -> TranslationEvaluation:
    """Translate the sources and compare with the references; links are extracted under teacher forcing.

    `lengths`: the bounds of the groups of sentences, in words of their sources.
    """
    from regard.training import bleu, chrf

    found = [best for best, *_ in translator([pair.source for pair in pairs], search, on_progress=on_progress)]
    got, expected = [one.text for one in found], [pair.target for pair in pairs]
    groups: dict[str, list[int]] = {}
    for row, pair in enumerate(pairs):
        groups.setdefault(_length_group(len(pair.source.split()), lengths), []).append(row)
    by_length = {
        name: bleu([got[row] for row in groups[name]], [expected[row] for row in groups[name]]).value
        for name in _length_names(lengths)
        if name in groups
    }
    has_links = all(pair.links is not None for pair in pairs)
    agreement = evaluate_reference_links(translator, pairs) if has_links else None
    return TranslationEvaluation(found, bleu(got, expected), chrf(got, expected), agreement, by_length)


def evaluate_reference_links(translator: Translator, pairs: Sequence[Translation]) -> Agreement | None:
    """The agreement of links extracted from given translations; None for a model without attention."""
    read = translator.score([(pair.source, pair.target) for pair in pairs])
    if any(one.weights is None for one in read):
        return None
    gold = (Gold.of(pair.links or ()) for pair in pairs)
    return evaluate_links((translation_links(translator, one) for one in read), gold)


def _length_names(lengths: Sequence[int]) -> list[str]:
    edges = [0, *lengths]
    return [f"{low + 1}-{high}" for low, high in pairwise(edges)] + [f"over {edges[-1]}"]


def _length_group(words: int, lengths: Sequence[int]) -> str:
    return _length_names(lengths)[bisect_left(lengths, words)]
