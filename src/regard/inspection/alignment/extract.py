"""Word maps of sentence pairs: the cross-attention of a model under teacher forcing, pooled from tokens to words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from regard.adapters import NO_WORD, ModelAdapter
from regard.attention import Captured, Observe, capture
from regard.decoding import ProgressCallback, Translator
from regard.errors import PlaceError, SettingError
from regard.inspection.alignment.evaluate import Agreement, Gold, evaluate_links
from regard.inspection.alignment.links import THRESHOLD, extract_links, sinkhorn
from regard.inspection.attribution.norms import transformed_norms
from regard.inspection.attribution.word_pooling import pool_to_words
from regard.inspection.record.collect import collect
from regard.inspection.record.collector import RecordSpec

Pair = tuple[str, str]


@dataclass(frozen=True, eq=False)
class CrossAttention:
    """The cross-attention of one place for one pair.

    weights   (H, T, S), a row for the step that predicts each target token, the end token included
    norms     (H, S), the norms of the transformed values
    targets   the word of each row, NO_WORD if none
    sources   the word of each column, likewise
    """

    weights: Tensor
    norms: Tensor
    targets: list[int]
    sources: list[int]


CrossAttentions = dict[str, CrossAttention]
"""By place."""


def cross_attention_places(model: ModelAdapter, pair: Pair) -> list[str]:
    """The places of cross-attention, first layer first. `pair`: any, to run the model once."""
    if model.kind != "translates":
        model.word_ids(*pair)  # raises: this is not a translation model
    record = collect(model, *pair, spec=RecordSpec(heads=()))
    return [place.name for place in record.places if place.kind == "cross"]


def default_place(model: ModelAdapter, places: Sequence[str]) -> str:
    """The alignment layer of a translator of ours; of others, the last place."""
    return places[model.alignment_place]


def collect_cross_attention(
    model: ModelAdapter,
    pairs: Sequence[Pair],
    places: Sequence[str],
    on_progress: ProgressCallback = lambda more: None,
) -> Iterator[tuple[int, CrossAttentions]]:
    """The cross-attention at these places, for each pair by its number, in any order."""
    translator = model.batch_translator()
    if translator is not None:
        yield from _collect_batched(translator, pairs, places, on_progress)
        return
    for number, (source, target) in enumerate(pairs):
        sources, targets = model.word_ids(source, target)
        record = collect(model, source, target, spec=RecordSpec(list(places)))
        found = {}
        for name in places:
            place = record.place(name)
            weights = torch.stack([place.tile(head) for head in range(place.heads)])
            if place.value_norms is None:
                raise PlaceError("The output projection of this place is not known", where=f"align, {name}")
            found[name] = CrossAttention(weights, place.value_norms, targets, sources)
        yield number, found
        on_progress(1)


def _collect_batched(
    translator: Translator, pairs: Sequence[Pair], places: Sequence[str], on_progress: ProgressCallback
) -> Iterator[tuple[int, CrossAttentions]]:
    sources = [translator.source.encode(source) for source, _ in pairs]
    targets = [translator.target.encode(target) for _, target in pairs]
    # longest first, as `score` would sort them: the rows of a batch are then these pairs in order
    order = sorted(range(len(pairs)), key=lambda row: -len(sources[row]))
    for first in range(0, len(order), translator.rows):
        rows = order[first : first + translator.rows]
        with capture(translator.model, list(places), Observe(weights=True, values=True)) as heard:
            translator.score([pairs[row] for row in rows])
        for at, row in enumerate(rows):
            T, S = len(targets[row]) + 1, len(sources[row]) + 1  # with their end tokens
            words = ([*targets[row].words, NO_WORD], [*sources[row].words, NO_WORD])
            found = {place: _row_attention(translator.model, heard, place, at, T, S) for place in places}
            yield row, {place: CrossAttention(*one, *words) for place, one in found.items()}
        on_progress(len(rows))


def _row_attention(model: Any, heard: Captured, place: str, row: int, T: int, S: int) -> tuple[Tensor, Tensor]:
    """Weights (H, T, S) and norms (H, S) of one row of a batch, captured step by step."""
    calls = heard.calls(place)[:T]
    weights = torch.cat([_by_head(call.weights[row]) for call in calls if call.weights is not None], 1)[..., :S]
    values = calls[0].values
    assert values is not None
    own = _by_head(values[row])[:, :S].float().cpu()
    norms = transformed_norms(model, place, own, weights.size(0))
    return weights.float().cpu(), norms


def _by_head(x: Tensor) -> Tensor:
    """(N, D) of a single head, or (H, N, D), as the latter."""
    return x.unsqueeze(0) if x.dim() == 2 else x


Weighting = Literal["raw", "norm"]
WEIGHTINGS: tuple[Weighting, Weighting] = ("raw", "norm")


@dataclass(frozen=True)
class AlignmentSource:
    """The attention that an alignment is extracted from.

    place      such as "decoder.1.cross"
    heads      some of its heads; by default all of them. Several are averaged.
    weighting  "raw": the weights; "norm": weights times the norm of each transformed value (Kobayashi et al. 2020)
    shift      the row of a target word is the step that has just read it; otherwise the step that predicts it, which
               does not know the word yet (Chen et al. 2020)
    """

    place: str
    heads: tuple[int, ...] | None = None
    weighting: Weighting = "raw"
    shift: bool = False

    @classmethod
    def parse(cls, spec: str, weighting: Weighting = "raw", shift: bool = False) -> AlignmentSource:
        """From a place: "decoder.1.cross", or with heads "decoder.1.cross/0,3"."""
        place, slash, heads = spec.partition("/")
        numbers = heads.split(",")
        if slash and not all(number.isdecimal() for number in numbers):
            raise SettingError(f"heads {heads!r}", "numbers, as in decoder.1.cross/0,3", where="place")
        return cls(place, tuple(map(int, numbers)) if slash else None, weighting, shift)

    @property
    def place_spec(self) -> str:
        """The place with its heads, as `parse` takes it."""
        return self.place if self.heads is None else f"{self.place}/{','.join(map(str, self.heads))}"

    def __str__(self) -> str:
        return f"{self.place_spec}, {self.weighting}{', shifted' if self.shift else ''}"


def word_maps(
    model: ModelAdapter,
    pairs: Sequence[Pair],
    sources: Sequence[AlignmentSource],
    on_progress: ProgressCallback = lambda more: None,
) -> list[list[Tensor]]:
    """For each source, the map (target words, source words) of each pair; the model runs once for all of them."""
    places = list(dict.fromkeys(source.place for source in sources))
    found: list[list[Tensor]] = [[torch.empty(0)] * len(pairs) for _ in sources]
    for number, attention in collect_cross_attention(model, pairs, places, on_progress):
        for maps, source in zip(found, sources, strict=True):
            maps[number] = pool_word_map(attention[source.place], source)
    return found


def pool_word_map(attention: CrossAttention, source: AlignmentSource) -> Tensor:
    """(target words, source words) of one pair, from the heads of a source."""
    count = len(attention.weights)
    heads = list(range(count)) if source.heads is None else list(source.heads)
    if any(head >= count for head in heads):
        raise SettingError(f"head {max(heads)}", f"heads from 0 to {count - 1}", where=source.place)
    weights = attention.weights[heads]
    if source.weighting == "norm":
        scaled = weights * attention.norms[heads].unsqueeze(1)
        total = scaled.sum(-1, keepdim=True)
        weights = scaled / total.masked_fill(total == 0, 1.0)
    matrix = weights.mean(0)[int(source.shift) :]
    rows = [row for row, word in enumerate(attention.targets) if word != NO_WORD and row < len(matrix)]
    cols = [col for col, word in enumerate(attention.sources) if word != NO_WORD]
    return pool_to_words(
        matrix[rows][:, cols], [attention.sources[col] for col in cols], [attention.targets[row] for row in rows]
    )


def best_source(
    model: ModelAdapter,
    pairs: Sequence[Pair],
    gold: Sequence[Gold],
    template: AlignmentSource | None = None,
    normalise: Callable[[Tensor], Tensor] = sinkhorn,
    threshold: float = THRESHOLD,
) -> tuple[AlignmentSource, Agreement]:
    """The place, with all heads or one, whose links have the lowest AER; of equals the first.

    Weighting and shift are those of `template`; without it every combination is tried.
    """
    sources = _candidate_sources(model, pairs, template)
    best: tuple[AlignmentSource, Agreement] | None = None
    for source, maps in zip(sources, word_maps(model, pairs, sources), strict=True):
        got = evaluate_links((extract_links(normalise(matrix), threshold) for matrix in maps), gold)
        if best is None or got.aer < best[1].aer:
            best = source, got
    assert best is not None
    return best


def _candidate_sources(
    model: ModelAdapter, pairs: Sequence[Pair], template: AlignmentSource | None
) -> list[AlignmentSource]:
    if not pairs:
        raise SettingError("The choice of a place needs pairs with gold links, but there are none", where="align")
    places = cross_attention_places(model, pairs[0])
    every = [AlignmentSource("", weighting=one, shift=shift) for one in WEIGHTINGS for shift in (False, True)]
    [(_, attention)] = collect_cross_attention(model, pairs[:1], places)
    found = []
    for one in every if template is None else [template]:
        for place in places:
            count = len(attention[place].weights)
            single = [(head,) for head in range(count)] if count > 1 else []
            found += [replace(one, place=place, heads=heads) for heads in (None, *single)]
    return found
