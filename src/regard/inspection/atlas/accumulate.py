"""Sums over texts for each head, in fixed point, so that any order and any number of processes give the same result.

Weights are counted in steps of 2^-32. Every sum is also computed for each bootstrap sample: how often a text counts in
it depends only on the number of the text and that of the sample (Poisson, mean 1), not on the process. The strongest
examples of each pattern are stored too.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from regard.inspection.atlas.head_patterns import BROAD, MIN_CHOICES, NUMBERS, PATTERNS, Level, other_half
from regard.inspection.atlas.token_features import KINDS, MapFeatures, WordUnits, pool_to_units
from regard.inspection.bootstrap import poisson_counts

EXAMPLES = 3  # of each pattern of a head
SNIPPET = 90  # characters of the text around an example
STEPS = 2**32

ExamplePair = tuple[int, int, int, int, str, str, str]
"""The weight in steps of 2^-32, negative so that the largest comes first; the numbers of the text, the query and the
key; both as words; and the text around the query."""


def best_examples(examples: Iterable[ExamplePair]) -> list[ExamplePair]:
    """The first few of different words, largest weights first; of equal ones those of earlier texts."""
    found: dict[tuple[str, str], ExamplePair] = {}
    for one in sorted(examples):
        found.setdefault((one[4].lower(), one[5].lower()), one)
    return list(found.values())[:EXAMPLES]


def strongest_pairs(weights: Tensor, wanted: Tensor) -> list[tuple[int, int]]:
    """For each head the target with the largest weight, weights (H, N, M) and targets (N, M): the weight in steps, and
    its place in the flat map."""
    values, places = (weights * wanted).flatten(1).max(1)
    return [(-round(value * STEPS), place) for value, place in zip(values.tolist(), places.tolist(), strict=True)]


def update_examples(
    known: list[ExamplePair], found: tuple[int, int], features: MapFeatures, level: Level, number: int
) -> list[ExamplePair]:
    """The examples of a head's pattern after another text."""
    steps, place = found
    if not steps or (len(known) == EXAMPLES and (steps, number) > known[-1][:2]):
        return known
    keys = features.keys
    query, key = divmod(place, len(keys.unit_of_token if level == "tokens" else keys))
    return best_examples([*known, (steps, number, query, key, *_example_text(features, level, query, key))])


def _example_text(features: MapFeatures, level: Level, query: int, key: int) -> tuple[str, str, str]:
    one, other = (
        int(units.unit_of_token[at]) if level == "tokens" else at
        for units, at in ((features.queries, query), (features.keys, key))
    )
    return features.queries.texts[one], features.keys.texts[other], _context(features.queries, one)


def _context(units: WordUnits, at: int) -> str:
    """The words around a unit, as many as fit."""
    low, high = at, at + 1
    while high - low < len(units):
        wider = (max(0, low - 1), min(len(units), high + 1))
        if sum(len(word) + 1 for word in units.texts[slice(*wider)]) > SNIPPET:
            break
        low, high = wider
    return " ".join(units.texts[low:high])


STEP = 2.0**-32
SAMPLES = 200
_TIE = 1e-6  # largest weights that differ by less are no peak
P = len(PATTERNS)


def to_fixed_point(x: Tensor) -> Tensor:
    return (x / STEP).round().long()


def from_fixed_point(steps: Tensor) -> Tensor:
    return steps.double() * STEP


@dataclass(eq=False)
class PatternSums:
    """The sums of one place with H heads over texts. P patterns, K kinds of pairs, R bootstrap samples.

    query_counts (P,)          queries that have a target
    uniform (P,)               the weight that uniform attention would give to these targets
    target_weight (H, P)       the weight on them; target_peaks (H, P): how often one of them has the largest weight
    control_weight (H, P)      the weight of a probe on keys like its target, and control_peaks (H, P)
    kind_pairs (K,)            pairs of words of each kind; kind_weight, kind_peaks (H, K): their weight and peaks
    kind_targets (P, K)        targets among them
    sampled_*                  query_counts, target_weight and target_peaks in every bootstrap sample
    """

    layer: int
    is_self: bool
    query_counts: Tensor
    uniform: Tensor
    target_weight: Tensor
    target_peaks: Tensor
    control_weight: Tensor
    control_peaks: Tensor
    kind_pairs: Tensor
    kind_weight: Tensor
    kind_peaks: Tensor
    kind_targets: Tensor
    sampled_queries: Tensor
    sampled_weight: Tensor
    sampled_peaks: Tensor
    examples: dict[tuple[int, int], list[ExamplePair]] = field(default_factory=dict)

    @classmethod
    def zeros(cls, heads: int, layer: int, is_self: bool) -> PatternSums:
        H, K, R = heads, KINDS, SAMPLES
        shapes = [(P,), (P,), (H, P), (H, P), (H, P), (H, P), (K,), (H, K), (H, K), (P, K)]
        shapes += [(R, P), (R, H, P), (R, H, P)]
        numbers = {name: torch.zeros(shape, dtype=torch.long) for name, shape in zip(_TENSORS, shapes, strict=True)}
        return cls(layer, is_self, **numbers)  # type: ignore[arg-type]

    @property
    def heads(self) -> int:
        return self.target_weight.size(0)

    def add(self, other: PatternSums) -> None:
        """Add the sums of another process for the same place."""
        for name in _TENSORS:
            getattr(self, name).add_(getattr(other, name))
        for key, found in other.examples.items():
            self.examples[key] = best_examples([*self.examples.get(key, []), *found])

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without loss."""
        numbers = {name: _encode(getattr(self, name)) for name in _TENSORS}
        examples = [[*key, found] for key, found in self.examples.items()]
        return {"heads": self.heads, "layer": self.layer, "is_self": self.is_self, "examples": examples, **numbers}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PatternSums:
        found = cls.zeros(data["heads"], data["layer"], data["is_self"])
        for name in _TENSORS:
            own: Tensor = getattr(found, name)
            content = bytearray(base64.b64decode(data[name]))
            own.copy_(torch.frombuffer(content, dtype=torch.int64).reshape(own.shape))
        for head, pattern, examples in data["examples"]:
            found.examples[head, pattern] = [tuple(one) for one in examples]
        return found


_TENSORS = [one.name for one in fields(PatternSums) if one.type == "Tensor"]


def accumulate(sums: PatternSums, targets: PatternTargets, weights: Tensor, number: int, seed: int = 0) -> None:
    """Add one text to the sums of a place: weights (H, T, S), float64, between the tokens of the targets' features."""
    features, one = targets.features, _TextSums(sums.heads)
    maps = {
        "tokens": _AttentionMap(weights, targets.visibility["tokens"]),
        "words": _AttentionMap(pool_to_units(weights, features.queries, features.keys), targets.visibility["words"]),
    }
    for at, wanted in targets.wanted.items():
        pattern, map_ = PATTERNS[at], maps[PATTERNS[at].level]
        _count_pattern(one, at, map_, wanted)
        if pattern.family == "probe":
            _count_control(one, at, map_, wanted, features)
        if pattern.family in ("content", "pairs"):
            sums.kind_targets[at] += features.kinds[wanted].bincount(minlength=KINDS)
        for head, found in enumerate(strongest_pairs(map_.weights, wanted)):
            known = sums.examples.get((head, at), [])
            sums.examples[head, at] = update_examples(known, found, features, pattern.level, number)
    if not features.probe:
        _count_broad(one, maps["tokens"])
        _count_kinds(sums, features, maps["words"])
    _add_text(sums, one, poisson_counts(number, seed, SAMPLES))


@dataclass(frozen=True, eq=False)
class _Visibility:
    """The visible keys of queries that have a choice (N, M), and the weights of uniform attention."""

    visible: Tensor
    uniform: Tensor


class PatternTargets:
    """The targets of each pattern, by its number, in every map with these features."""

    def __init__(self, features: MapFeatures) -> None:
        visible = features.visible.double()
        uniform = visible / visible.sum(-1, keepdim=True).clamp(min=1)
        between = pool_to_units(uniform.unsqueeze(0), features.queries, features.keys)[0]
        self.features = features
        self.visibility = {
            "tokens": _Visibility(_with_choice(features.visible), uniform),
            "words": _Visibility(_with_choice(features.visible_words), between),
        }
        self.wanted: dict[int, Tensor] = {}
        for at, pattern in enumerate(PATTERNS):
            targets = pattern.targets(features)
            if targets is not None and bool((targets & self.visibility[pattern.level].visible).any()):
                self.wanted[at] = targets & self.visibility[pattern.level].visible


def _with_choice(visible: Tensor) -> Tensor:
    return visible & (visible.sum(-1, keepdim=True) >= 2)


class _TextSums:
    """The sums of one text."""

    def __init__(self, heads: int) -> None:
        self.query_counts, self.uniform = torch.zeros(P, dtype=torch.long), torch.zeros(P, dtype=torch.float64)
        self.target_weight, self.control_weight = (torch.zeros(heads, P, dtype=torch.float64) for _ in range(2))
        self.target_peaks, self.control_peaks = torch.zeros(heads, P, dtype=torch.long), torch.zeros(heads, P).double()


class _AttentionMap:
    """A map between tokens or words: weights (H, N, M), and the key of each query's largest weight (H, N), -1 where two
    are equal."""

    def __init__(self, weights: Tensor, visibility: _Visibility) -> None:
        self.weights, self.visibility = weights, visibility
        masked = weights.masked_fill(~visibility.visible, -1.0)
        self.peak = torch.full(masked.shape[:-1], -1)
        if masked.size(-1) >= 2:
            values, keys = masked.topk(2, -1)
            self.peak = keys[..., 0].masked_fill(values[..., 0] <= values[..., 1] + _TIE, -1)


def _count_pattern(one: _TextSums, at: int, map_: _AttentionMap, wanted: Tensor) -> None:
    flat = wanted.flatten().double()
    one.query_counts[at] = wanted.any(-1).sum()
    one.uniform[at] = map_.visibility.uniform.flatten() @ flat
    one.target_weight[:, at] = map_.weights.flatten(1) @ flat
    one.target_peaks[:, at] = _at_peaks(wanted, map_.peak).sum(-1).long()


def _count_control(one: _TextSums, at: int, map_: _AttentionMap, wanted: Tensor, features: MapFeatures) -> None:
    """The weight of a query on an average key of the other half of a repeated text."""
    similar = other_half(features) & map_.visibility.visible
    rate = wanted.sum(-1).double() / similar.sum(-1).clamp(min=1)
    one.control_weight[:, at] = (map_.weights * similar).sum(-1) @ rate
    one.control_peaks[:, at] = _at_peaks(similar, map_.peak) @ rate


def _at_peaks(matrix: Tensor, peak: Tensor) -> Tensor:
    """(H, N): the matrix (N, M) at each query's peak, 0 where it has none."""
    found = matrix[torch.arange(matrix.size(0)), peak.clamp(min=0)]
    return (found & (peak >= 0)).double()


def _count_broad(one: _TextSums, map_: _AttentionMap) -> None:
    """e^entropy, the number of keys of uniform attention with the same entropy, as a share of the visible ones; the
    baseline is one half."""
    at = NUMBERS[BROAD]
    many = map_.visibility.visible.sum(-1)
    rows = many >= MIN_CHOICES
    weights = map_.weights / map_.weights.sum(-1, keepdim=True).clamp(min=1e-30)
    spread = torch.special.entr(weights).sum(-1).exp() / many.clamp(min=1)
    one.query_counts[at], one.uniform[at] = rows.sum(), rows.sum() / 2
    one.target_weight[:, at] = spread @ rows.double()


def _count_kinds(sums: PatternSums, features: MapFeatures, map_: _AttentionMap) -> None:
    """The weight of the pairs of words of each kind, and their number."""
    visible = map_.visibility.visible
    kinds = features.kinds[visible]
    sums.kind_pairs += kinds.bincount(minlength=KINDS)
    got = torch.zeros(sums.heads, KINDS, dtype=torch.float64).index_add_(1, kinds, map_.weights[:, visible])
    sums.kind_weight += to_fixed_point(got)
    for head, peak in enumerate(map_.peak):
        rows = (peak >= 0).nonzero().squeeze(-1)
        sums.kind_peaks[head] += features.kinds[rows, peak[rows]].bincount(minlength=KINDS)


def _add_text(sums: PatternSums, one: _TextSums, times: Tensor) -> None:
    weight, peaks = to_fixed_point(one.target_weight), one.target_peaks
    sums.query_counts += one.query_counts
    sums.uniform += to_fixed_point(one.uniform)
    sums.target_weight += weight
    sums.target_peaks += peaks
    sums.control_weight += to_fixed_point(one.control_weight)
    sums.control_peaks += to_fixed_point(one.control_peaks)
    sums.sampled_queries += times[:, None] * one.query_counts
    sums.sampled_weight += times[:, None, None] * weight
    sums.sampled_peaks += times[:, None, None] * peaks


def _encode(numbers: Tensor) -> str:
    return base64.b64encode(numbers.contiguous().numpy().tobytes()).decode("ascii")
