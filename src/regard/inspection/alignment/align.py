"""Sentences and their translations aligned by a model: the links, and what they were read off, as plain data."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from regard.adapters import ModelAdapter, adapter
from regard.decoding import Tell
from regard.errors import SettingError
from regard.inspection.alignment.evaluate import Agreement, Gold, evaluate_links
from regard.inspection.alignment.extract import By, Pair, Reading, across, best_reading, own_place, word_maps
from regard.inspection.alignment.links import THRESHOLD, balanced, links, links_of, told
from regard.inspection.alignment.symmetrize import merged, turned_about
from regard.text import Links

BEST = "best"


@dataclass(frozen=True)
class Aligned:
    """The links of a pair, and all that is known of it, as JSON takes it."""

    links: Links
    told: dict[str, Any]


@dataclass(frozen=True)
class Aligning:
    """How links are read: at which place (None: where a model itself tells), by weights or norms, shifted or not; what
    is made of the map, and from which share on a source word gets a link of its own."""

    place: str | None = None
    by: By = "raw"
    shift: bool = False
    shares: Callable[[Tensor], Tensor] = balanced
    threshold: float = THRESHOLD

    def __call__(self, subject: ModelAdapter, pairs: Sequence[Pair], tell: Tell = lambda more: None) -> list[Aligned]:
        """Every pair of a sentence and its translation, aligned by a model that translates that way."""
        if not pairs:
            return []
        plain = self.place is None and self.by == "raw" and not self.shift
        translator = subject.batch_translator()
        if plain and translator is not None:  # what steps of its search see too
            read = translator.read(pairs, tell)
            found = [links(translator, one, self.threshold, self.shares) for one in read]
            rows = zip(read, found, strict=True)
            return [Aligned(made, {**told(translator, one), "links": made}) for one, made in rows]
        [maps] = word_maps(subject, pairs, [self.reading(subject, pairs[0])], tell)
        return [self._aligned(pair, matrix) for pair, matrix in zip(pairs, maps, strict=True)]

    def reading(self, subject: ModelAdapter, pair: Pair) -> Reading:
        """The same with the place spelled out. `pair`: any, to see the model look."""
        place = self.place or own_place(subject, across(subject, pair))
        return Reading.at(place, self.by, self.shift)

    def _aligned(self, pair: Pair, matrix: Tensor) -> Aligned:
        made = links_of(self.shares(matrix), self.threshold)
        source, target = pair
        shown = {
            "source": source,
            "text": target,
            "links": made,
            "words": {"source": source.split(), "target": target.split()},
            "weights": [[round(value, 4) for value in row] for row in matrix.tolist()],
        }
        return Aligned(made, shown)


def both_ways(forth: Sequence[Aligned], back: Sequence[Aligned], method: str) -> list[Aligned]:
    """Pairs aligned by a model of each direction, made one; `back` has the target for its source."""
    found = []
    for one, other in zip(forth, back, strict=True):
        made = merged(one.links, turned_about(other.links), method)
        found.append(replace(one, links=made, told={**one.told, "links": made}))
    return found


@dataclass(frozen=True)
class Alignments:
    """Aligned pairs, and how they agree with gold links, where there are some.

    Where `place` was "best": `chosen` is the place with its agreement on the first `held_out` pairs, by which it was
    chosen and which are not among the aligned ones.
    """

    aligned: list[Aligned]
    agreement: Agreement | None = None
    chosen: tuple[Reading, Agreement] | None = None
    held_out: int = 0


def align(
    model: nn.Module | str | os.PathLike[str] | ModelAdapter,
    pairs: Sequence[Pair],
    how: Aligning | None = None,
    *,
    gold: Sequence[Gold] | None = None,
    back: nn.Module | str | os.PathLike[str] | ModelAdapter | None = None,
    merge: str = "grow-diag-final-and",
    tell: Tell = lambda more: None,
) -> Alignments:
    """Word links of sentences and their translations, from the attention of a model made to write the translations.

    `how`: place, reading and threshold; its place "best" is chosen by AER on the first half of the pairs, which takes
    gold links. `back`: a model that translates the other way, whose links are merged with these (`merged`).

    >>> align("runs/transformer", [("the black cat", "le chat noir")]).aligned[0].links     # doctest: +SKIP
    """
    how, found = how or Aligning(), _adapter(model)
    chosen, half = None, 0
    if how.place == BEST:
        if gold is None or len(pairs) < 2:
            raise SettingError(f"place {BEST!r}", "gold links of two pairs or more", where="align")
        half = len(pairs) // 2
        like = Reading("", by=how.by, shift=how.shift)
        chosen = best_reading(found, pairs[:half], gold[:half], like, how.shares, how.threshold)
        how, pairs, gold = replace(how, place=chosen[0].spelled), pairs[half:], gold[half:]
    made = how(found, pairs, tell)
    if back is not None:
        made = both_ways(made, how(_adapter(back), [(target, source) for source, target in pairs], tell), merge)
    return Alignments(made, None if gold is None else evaluate_links([one.links for one in made], gold), chosen, half)


def _adapter(model: nn.Module | str | os.PathLike[str] | ModelAdapter) -> ModelAdapter:
    return adapter(model) if isinstance(model, nn.Module | str | os.PathLike) else model
