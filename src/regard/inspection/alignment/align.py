"""Word alignment of sentences and their translations by a model's cross-attention, from pairs to links and AER."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from regard.adapters import ModelAdapter, adapter
from regard.decoding import ProgressCallback
from regard.errors import SettingError
from regard.inspection.alignment.evaluate import Agreement, Gold, evaluate_links
from regard.inspection.alignment.extract import (
    AlignmentSource,
    Pair,
    Weighting,
    best_source,
    cross_attention_places,
    default_place,
    word_maps,
)
from regard.inspection.alignment.links import (
    THRESHOLD,
    extract_links,
    sinkhorn,
    to_pharaoh,
    translation_links,
    translation_to_dict,
)
from regard.inspection.alignment.symmetrize import reverse_links, symmetrize
from regard.text import Links

BEST = "best"


@dataclass(frozen=True, repr=False)
class Aligned:
    """The links of a pair; `details`: the pair, its links and its word map, for JSON."""

    links: Links
    details: dict[str, Any]

    def __repr__(self) -> str:
        return f"Aligned({to_pharaoh(self.links)!r})"


@dataclass(frozen=True)
class AlignmentExtractor:
    """How links are extracted from cross-attention.

    place      such as "decoder.1.cross"; None: the default place of the model
    weighting  "raw": the weights; "norm": weights times the norms of the transformed values
    shift      take the step that has just read a target word, not the one that predicts it
    normalise  what is done to a word map first: `sinkhorn` or `unnormalized`
    threshold  the share that links a source word to its best target word too
    """

    place: str | None = None
    weighting: Weighting = "raw"
    shift: bool = False
    normalise: Callable[[Tensor], Tensor] = sinkhorn
    threshold: float = THRESHOLD

    def __call__(
        self, model: ModelAdapter, pairs: Sequence[Pair], on_progress: ProgressCallback = lambda more: None
    ) -> list[Aligned]:
        """Align every pair of a sentence and its translation with a model of that direction."""
        if not pairs:
            return []
        by_default = self.place is None and self.weighting == "raw" and not self.shift
        translator = model.batch_translator()
        if by_default and translator is not None:  # the same weights that its search reports
            read = translator.score(pairs, on_progress)
            found = [translation_links(translator, one, self.threshold, self.normalise) for one in read]
            rows = zip(read, found, strict=True)
            return [Aligned(links, {**translation_to_dict(translator, one), "links": links}) for one, links in rows]
        [maps] = word_maps(model, pairs, [self.source_for(model, pairs[0])], on_progress)
        return [self._aligned(pair, matrix) for pair, matrix in zip(pairs, maps, strict=True)]

    def source_for(self, model: ModelAdapter, pair: Pair) -> AlignmentSource:
        """The same with an explicit place. `pair`: any, to run the model once."""
        place = self.place or default_place(model, cross_attention_places(model, pair))
        return AlignmentSource.parse(place, self.weighting, self.shift)

    def _aligned(self, pair: Pair, matrix: Tensor) -> Aligned:
        links = extract_links(self.normalise(matrix), self.threshold)
        source, target = pair
        details = {
            "source": source,
            "text": target,
            "links": links,
            "words": {"source": source.split(), "target": target.split()},
            "weights": [[round(value, 4) for value in row] for row in matrix.tolist()],
        }
        return Aligned(links, details)


def symmetrize_aligned(forward: Sequence[Aligned], reverse: Sequence[Aligned], method: str) -> list[Aligned]:
    """Pairs aligned by a model of each direction, symmetrised; in `reverse` the target is the source."""
    found = []
    for one, other in zip(forward, reverse, strict=True):
        links = symmetrize(one.links, reverse_links(other.links), method)
        found.append(replace(one, links=links, details={**one.details, "links": links}))
    return found


@dataclass(frozen=True, repr=False)
class Alignments:
    """Aligned pairs, and their agreement with gold links, if given.

    Where `place` was "best": `chosen` is the source that was chosen on the first `held_out` pairs with its agreement
    there; those pairs are not among the aligned ones.
    """

    aligned: list[Aligned]
    agreement: Agreement | None = None
    chosen: tuple[AlignmentSource, Agreement] | None = None
    held_out: int = 0

    def __repr__(self) -> str:
        aer = "" if self.agreement is None else f", AER {self.agreement.aer:.1%}"
        return f"Alignments({len(self.aligned)} pairs{aer})"


def align(
    model: nn.Module | str | os.PathLike[str] | ModelAdapter,
    pairs: Sequence[Pair],
    extractor: AlignmentExtractor | None = None,
    *,
    gold: Sequence[Gold] | None = None,
    reverse_model: nn.Module | str | os.PathLike[str] | ModelAdapter | None = None,
    symmetrization: str = "grow-diag-final-and",
    on_progress: ProgressCallback = lambda more: None,
) -> Alignments:
    """Align the words of sentences and their translations by the attention of a model under teacher forcing.

    `extractor`: place, weighting and threshold; its place "best" is chosen by AER on the first half of the pairs, which
    needs gold links. `reverse_model`: a model of the other direction; the links of both are symmetrised (`symmetrize`).

    >>> align("runs/transformer", [("the black cat", "le chat noir")]).aligned[0].links     # doctest: +SKIP
    """
    extractor, found = extractor or AlignmentExtractor(), _adapter(model)
    chosen, half = None, 0
    if extractor.place == BEST:
        if gold is None or len(pairs) < 2:
            raise SettingError(f"The place {BEST!r} needs gold links of two pairs or more", where="align")
        half = len(pairs) // 2
        template = AlignmentSource("", weighting=extractor.weighting, shift=extractor.shift)
        normalise, threshold = extractor.normalise, extractor.threshold
        chosen = best_source(found, pairs[:half], gold[:half], template, normalise, threshold)
        extractor, pairs, gold = replace(extractor, place=chosen[0].place_spec), pairs[half:], gold[half:]
    made = extractor(found, pairs, on_progress)
    if reverse_model is not None:
        reverse = extractor(_adapter(reverse_model), [(target, source) for source, target in pairs], on_progress)
        made = symmetrize_aligned(made, reverse, symmetrization)
    return Alignments(made, None if gold is None else evaluate_links([one.links for one in made], gold), chosen, half)


def _adapter(model: nn.Module | str | os.PathLike[str] | ModelAdapter) -> ModelAdapter:
    return adapter(model) if isinstance(model, nn.Module | str | os.PathLike) else model
