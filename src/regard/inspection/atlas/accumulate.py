"""Sums over texts, by head: whole numbers, so that they can be added up in any order and by any number of processes.

Weights are counted in steps of 2^-32. Every sum is kept for a number of bootstrap samples too: in each of them a text
counts as often as its own number and the sample's decide (Poisson, mean 1), whoever has read it. The strongest examples
of each pattern are kept beside them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from regard.inspection.atlas.head_patterns import BROAD, FEW, NUMBERS, TRAITS, Level, other_half
from regard.inspection.atlas.token_features import KINDS, Scene, Units, between_units

SHOWN = 3  # of each head's pattern
SNIPPET = 90  # characters of a text around an example
STEPS = 2**32

Example = tuple[int, int, int, int, str, str, str]
"""The weight in steps of 2^-32, negative so that the largest comes first; the numbers of the text, the query and the
key; both as words; and the text around the query."""


def best(examples: Iterable[Example]) -> list[Example]:
    """The first few of different words, largest weights first; of equal ones those of earlier texts."""
    found: dict[tuple[str, str], Example] = {}
    for one in sorted(examples):
        found.setdefault((one[4].lower(), one[5].lower()), one)
    return list(found.values())[:SHOWN]


def strongest(weights: Tensor, wanted: Tensor) -> list[tuple[int, int]]:
    """For each head the target that got most, weights (H, N, M) and targets (N, M): the weight in steps, and its place
    in the flat map."""
    values, places = (weights * wanted).flatten(1).max(1)
    return [(-round(value * STEPS), place) for value, place in zip(values.tolist(), places.tolist(), strict=True)]


def added(known: list[Example], found: tuple[int, int], scene: Scene, level: Level, number: int) -> list[Example]:
    """The examples of a head's pattern after another text."""
    steps, place = found
    if not steps or (len(known) == SHOWN and (steps, number) > known[-1][:2]):
        return known
    query, key = divmod(place, len(scene.keys.of_token if level == "tokens" else scene.keys))
    return best([*known, (steps, number, query, key, *_shown(scene, level, query, key))])


def _shown(scene: Scene, level: Level, query: int, key: int) -> tuple[str, str, str]:
    one, other = (
        int(units.of_token[at]) if level == "tokens" else at
        for units, at in ((scene.queries, query), (scene.keys, key))
    )
    return scene.queries.shown[one], scene.keys.shown[other], _around(scene.queries, one)


def _around(units: Units, at: int) -> str:
    """The words about a unit, as many as fit."""
    low, high = at, at + 1
    while high - low < len(units):
        wider = (max(0, low - 1), min(len(units), high + 1))
        if sum(len(word) + 1 for word in units.shown[slice(*wider)]) > SNIPPET:
            break
        low, high = wider
    return " ".join(units.shown[low:high])


STEP = 2.0**-32
SAMPLES = 200
_ALIKE = 1e-6  # largest weights that differ by less are no peak
P = len(TRAITS)


def fixed(x: Tensor) -> Tensor:
    return (x / STEP).round().long()


def loose(steps: Tensor) -> Tensor:
    return steps.double() * STEP


@dataclass(eq=False)
class Sums:
    """Of one place with H heads, over texts. P patterns, K kinds of pairs, R bootstrap samples.

    asked (P,): queries that have a target; even (P,): what an even look would give these; share, hits (H, P): the
    weight that they gave it, and how often it was their largest; control, control_hits (H, P): what a probe gave to
    keys that are like its target. pairs (K,): pairs of words of each kind; weight, peaks (H, K): what they got; aims
    (P, K): targets among them. sampled_*: asked, share and hits in every bootstrap sample.
    """

    layer: int
    within: bool
    asked: Tensor
    even: Tensor
    share: Tensor
    hits: Tensor
    control: Tensor
    control_hits: Tensor
    pairs: Tensor
    weight: Tensor
    peaks: Tensor
    aims: Tensor
    sampled_asked: Tensor
    sampled_share: Tensor
    sampled_hits: Tensor
    examples: dict[tuple[int, int], list[Example]] = field(default_factory=dict)

    @classmethod
    def none(cls, heads: int, layer: int, within: bool) -> Sums:
        H, K, R = heads, KINDS, SAMPLES
        shapes = [(P,), (P,), (H, P), (H, P), (H, P), (H, P), (K,), (H, K), (H, K), (P, K)]
        shapes += [(R, P), (R, H, P), (R, H, P)]
        numbers = {name: torch.zeros(shape, dtype=torch.long) for name, shape in zip(_TENSORS, shapes, strict=True)}
        return cls(layer, within, **numbers)  # type: ignore[arg-type]

    @property
    def heads(self) -> int:
        return self.share.size(0)

    def add(self, other: Sums) -> None:
        """What somebody else has counted of the same place."""
        for name in _TENSORS:
            getattr(self, name).add_(getattr(other, name))
        for key, found in other.examples.items():
            self.examples[key] = best([*self.examples.get(key, []), *found])

    def told(self) -> dict[str, Any]:
        """As JSON takes it, exactly."""
        numbers = {name: _told(getattr(self, name)) for name in _TENSORS}
        shown = [[*key, found] for key, found in self.examples.items()]
        return {"heads": self.heads, "layer": self.layer, "within": self.within, "examples": shown, **numbers}

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Sums:
        found = cls.none(told["heads"], told["layer"], told["within"])
        for name in _TENSORS:
            own: Tensor = getattr(found, name)
            content = bytearray(base64.b64decode(told[name]))
            own.copy_(torch.frombuffer(content, dtype=torch.int64).reshape(own.shape))
        for head, trait, examples in told["examples"]:
            found.examples[head, trait] = [tuple(one) for one in examples]
        return found


_TENSORS = [one.name for one in fields(Sums) if one.type == "Tensor"]


def samples(number: int, seed: int) -> Tensor:
    """(R,): how often text number `number` counts in each bootstrap sample."""
    chance = torch.Generator().manual_seed(seed * 1_000_003 + number)
    return torch.poisson(torch.ones(SAMPLES), generator=chance).long()


def count(sums: Sums, plan: Plan, weights: Tensor, number: int, seed: int = 0) -> None:
    """Add one text to the sums of a place: weights (H, T, S), float64, between the tokens of the plan's scene."""
    scene, one = plan.scene, _One(sums.heads)
    maps = {
        "tokens": _Map(weights, plan.grids["tokens"]),
        "words": _Map(between_units(weights, scene.queries, scene.keys), plan.grids["words"]),
    }
    for at, wanted in plan.wanted.items():
        trait, map_ = TRAITS[at], maps[TRAITS[at].level]
        _count_trait(one, at, map_, wanted)
        if trait.family == "probe":
            _count_control(one, at, map_, wanted, scene)
        if trait.family in ("content", "pairs"):
            sums.aims[at] += scene.kinds[wanted].bincount(minlength=KINDS)
        for head, found in enumerate(strongest(map_.weights, wanted)):
            sums.examples[head, at] = added(sums.examples.get((head, at), []), found, scene, trait.level, number)
    if not scene.probe:
        _count_broad(one, maps["tokens"])
        _count_kinds(sums, scene, maps["words"])
    _add_one(sums, one, samples(number, seed))


@dataclass(frozen=True, eq=False)
class _Grid:
    """Where queries may look and have a choice (N, M), and what an even look would give."""

    seen: Tensor
    even: Tensor


class Plan:
    """What is asked of every map over one scene: the targets of each pattern, by its number."""

    def __init__(self, scene: Scene) -> None:
        visible = scene.visible.double()
        even = visible / visible.sum(-1, keepdim=True).clamp(min=1)
        between = between_units(even.unsqueeze(0), scene.queries, scene.keys)[0]
        self.scene = scene
        self.grids = {"tokens": _Grid(_choice(scene.visible), even), "words": _Grid(_choice(scene.seen), between)}
        self.wanted: dict[int, Tensor] = {}
        for at, trait in enumerate(TRAITS):
            targets = trait.targets(scene)
            if targets is not None and bool((targets & self.grids[trait.level].seen).any()):
                self.wanted[at] = targets & self.grids[trait.level].seen


def _choice(seen: Tensor) -> Tensor:
    return seen & (seen.sum(-1, keepdim=True) >= 2)


class _One:
    """What one text adds."""

    def __init__(self, heads: int) -> None:
        self.asked, self.even = torch.zeros(P, dtype=torch.long), torch.zeros(P, dtype=torch.float64)
        self.share, self.control = (torch.zeros(heads, P, dtype=torch.float64) for _ in range(2))
        self.hits, self.control_hits = torch.zeros(heads, P, dtype=torch.long), torch.zeros(heads, P).double()


class _Map:
    """A map between tokens or words: weights (H, N, M), and the key of each query's largest weight (H, N), -1 where two
    are alike."""

    def __init__(self, weights: Tensor, grid: _Grid) -> None:
        self.weights, self.grid = weights, grid
        masked = weights.masked_fill(~grid.seen, -1.0)
        self.peak = torch.full(masked.shape[:-1], -1)
        if masked.size(-1) >= 2:
            values, keys = masked.topk(2, -1)
            self.peak = keys[..., 0].masked_fill(values[..., 0] <= values[..., 1] + _ALIKE, -1)


def _count_trait(one: _One, at: int, map_: _Map, wanted: Tensor) -> None:
    flat = wanted.flatten().double()
    one.asked[at] = wanted.any(-1).sum()
    one.even[at] = map_.grid.even.flatten() @ flat
    one.share[:, at] = map_.weights.flatten(1) @ flat
    one.hits[:, at] = _at(wanted, map_.peak).sum(-1).long()


def _count_control(one: _One, at: int, map_: _Map, wanted: Tensor, scene: Scene) -> None:
    """What a query gives to a key of the other half of a text that is said twice, whichever it is."""
    like = other_half(scene) & map_.grid.seen
    rate = wanted.sum(-1).double() / like.sum(-1).clamp(min=1)
    one.control[:, at] = (map_.weights * like).sum(-1) @ rate
    one.control_hits[:, at] = _at(like, map_.peak) @ rate


def _at(matrix: Tensor, peak: Tensor) -> Tensor:
    """(H, N): the matrix (N, M) at each query's peak, 0 where it has none."""
    found = matrix[torch.arange(matrix.size(0)), peak.clamp(min=0)]
    return (found & (peak >= 0)).double()


def _count_broad(one: _One, map_: _Map) -> None:
    """e^entropy: as many keys as one would have to look at evenly; counted as the share of those that are visible, of
    which half is to be beaten."""
    at = NUMBERS[BROAD]
    many = map_.grid.seen.sum(-1)
    rows = many >= FEW
    weights = map_.weights / map_.weights.sum(-1, keepdim=True).clamp(min=1e-30)
    spread = torch.special.entr(weights).sum(-1).exp() / many.clamp(min=1)
    one.asked[at], one.even[at] = rows.sum(), rows.sum() / 2
    one.share[:, at] = spread @ rows.double()


def _count_kinds(sums: Sums, scene: Scene, map_: _Map) -> None:
    """What pairs of words of each kind got, and how many targets are among them."""
    seen = map_.grid.seen
    kinds = scene.kinds[seen]
    sums.pairs += kinds.bincount(minlength=KINDS)
    got = torch.zeros(sums.heads, KINDS, dtype=torch.float64).index_add_(1, kinds, map_.weights[:, seen])
    sums.weight += fixed(got)
    for head, peak in enumerate(map_.peak):
        rows = (peak >= 0).nonzero().squeeze(-1)
        sums.peaks[head] += scene.kinds[rows, peak[rows]].bincount(minlength=KINDS)


def _add_one(sums: Sums, one: _One, times: Tensor) -> None:
    share, hits = fixed(one.share), one.hits
    sums.asked += one.asked
    sums.even += fixed(one.even)
    sums.share += share
    sums.hits += hits
    sums.control += fixed(one.control)
    sums.control_hits += fixed(one.control_hits)
    sums.sampled_asked += times[:, None] * one.asked
    sums.sampled_share += times[:, None, None] * share
    sums.sampled_hits += times[:, None, None] * hits


def _told(numbers: Tensor) -> str:
    return base64.b64encode(numbers.contiguous().numpy().tobytes()).decode("ascii")
