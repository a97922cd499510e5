"""Labels of heads from sums: what each gives to each pattern, what it must beat, how sure that is; and the atlas."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from regard.inspection.atlas.accumulate import Sums, loose
from regard.inspection.atlas.head_patterns import TRAITS, Trait
from regard.inspection.atlas.token_features import CLASSES, DISTANCES, RARITIES

HALF = 0.5  # Clark et al. 2019: more than half of the weight
NEARLY_ALL = 0.9  # Voita et al. 2019: so many of the largest weights at one place
MARGIN = 0.1  # Voita et al. 2019: so much better than the baseline
FAINT = 0.05  # a pattern with less of the weight than this is no name
COVER = 0.95  # of the bootstrap samples are inside the interval, which is
WIDTH = 3.92  # standard errors wide
ERRORS = 3
ENOUGH = 30  # queries that must have had a target, in
TEXTS = 5  # at least so many texts


@dataclass(frozen=True)
class Interval:
    """A share of the whole, from 0 to 1, and where it lies in 95% of bootstrap samples of texts."""

    value: float
    low: float
    high: float

    @property
    def floor(self) -> float:
        """Three standard errors below the value: thousands of questions are asked of one model, and the answer to none
        of them should be chance."""
        return self.value - ERRORS * (self.high - self.low) / WIDTH


@dataclass(frozen=True)
class Measured:
    """What a head gives to a pattern, over the `asked` queries that have a target.

    weight: the mean weight on targets; largest: how often a target is what a query looks at most. even: what a look at
    all that is visible would give; alike, largest_alike: what this head gives to keys of the same kind that are no
    targets in particular (None: the pattern has no such keys).
    """

    asked: int
    weight: Interval
    largest: Interval
    even: float
    alike: float | None = None
    largest_alike: float | None = None

    @property
    def baseline(self) -> float:
        """What the weight must beat."""
        return max(self.even, self.alike or 0.0)

    @property
    def strength(self) -> float:
        """How far it is on the way from the baseline to everything."""
        return (self.weight.value - self.baseline) / max(1e-9, 1 - self.baseline)

    def told(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, told: dict[str, Any]) -> Measured:
        return cls(**{**told, "weight": Interval(**told["weight"]), "largest": Interval(**told["largest"])})


def measured(sums: Sums) -> list[dict[str, Measured]]:
    """For each head of a place, what it gives to each pattern that there was a question of."""
    asked = sums.asked.double().clamp(min=1)
    weight, largest = loose(sums.share) / asked, sums.hits / asked
    even = loose(sums.even) / asked
    spans = _spans(loose(sums.sampled_share), sums.sampled_asked), _spans(sums.sampled_hits, sums.sampled_asked)
    found: list[dict[str, Measured]] = [{} for _ in range(sums.heads)]
    for at, trait in enumerate(TRAITS):
        if not sums.asked[at]:
            continue
        alike = _alike(sums, at, trait)
        for head in range(sums.heads):
            shares, peaks = (
                Interval(float(value[head, at]), float(low[head, at]), float(high[head, at]))
                for value, (low, high) in zip((weight, largest), spans, strict=True)
            )
            others = (None, None) if alike is None else (float(alike[0][head]), float(alike[1][head]))
            found[head][trait.name] = Measured(int(sums.asked[at]), shares, peaks, float(even[at]), *others)
    return found


def _spans(sums: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
    """The ends (H, P) of the interval that 95% of the samples (R, H, P) are in; those without a query do not count."""
    rates = sums.double() / asked[:, None]  # not a number where nothing was asked
    rest = (1 - COVER) / 2
    low, high = torch.nanquantile(rates, torch.tensor([rest, 1 - rest], dtype=torch.float64), dim=0)
    return low.nan_to_num(0.0), high.nan_to_num(1.0)


def _alike(sums: Sums, at: int, trait: Trait) -> tuple[Tensor, Tensor] | None:
    """(H,) and (H,): the mean weight, and the rate of largest weights, of keys like the targets.

    Targets are matched with all pairs of words of their kinds; for `content`, of keys only function words and open ones
    are told apart.
    """
    asked = sums.asked[at].double()
    if trait.family == "probe":
        return loose(sums.control[:, at]) / asked, loose(sums.control_hits[:, at]) / asked
    if trait.family not in ("content", "pairs"):
        return None
    counts = (sums.aims[at], sums.pairs, loose(sums.weight), sums.peaks)
    aims, pairs, weight, peaks = (one.double() if trait.family == "pairs" else _whatever(one) for one in counts)
    rate = aims / pairs.clamp(min=1) / asked
    return weight @ rate, peaks @ rate


def _whatever(by_kind: Tensor) -> Tensor:
    """Sums by kind of pair, of which is left out what an open key is, and how rare."""
    apart = by_kind.double().unflatten(-1, (2 * DISTANCES * CLASSES, CLASSES, RARITIES)).sum(-1)
    return torch.stack((apart[..., 0], apart[..., 1:].sum(-1)), -1).flatten(-2)


def criteria(name: str, one: Measured, sure: bool = True) -> list[str]:
    """By which rules a head earns this name; by none, it does not. `sure`: three standard errors below the value still
    pass, as for giving a name; else the value itself, as for checking one on other texts."""
    weight = one.weight.floor if sure else one.weight.value
    largest = one.largest.floor if sure else one.largest.value
    if one.asked < ENOUGH and sure:
        return []
    family = FAMILIES[name]
    if family == "spread":
        return ["more than half of what it sees"] if weight > HALF else []
    found = []
    if family in ("position", "landmark"):
        if weight > HALF and weight > one.even + MARGIN:
            found.append("more than half of the weight")
        if family == "position" and largest >= NEARLY_ALL:
            found.append("90% of the largest weights")
        if family == "landmark" and largest > HALF and weight > one.even + MARGIN:
            found.append("more than half of the largest weights")
        return found
    if weight > one.baseline + MARGIN:
        found.append("10 points of weight above the baseline")
    if largest > (one.largest_alike or 0.0) + MARGIN and weight > max(one.baseline, FAINT):
        found.append("10 points of largest weights above the baseline")
    return found


FAMILIES = {trait.name: trait.family for trait in TRAITS}


def names(found: dict[str, Measured]) -> list[str]:
    """The names that a head has earned, strongest first."""
    earned = [name for name, one in found.items() if criteria(name, one)]
    if "first token" in earned and "delimiter" in earned:  # [CLS] is both: the second must be more than that
        more = found["delimiter"].weight.floor - found["first token"].weight.value
        earned = [name for name in earned if name != "delimiter" or more > MARGIN]
    if "alignment" in earned:  # words that answer to each other stand near the diagonal, and come together in a corpus
        earned = [name for name in earned if name not in ("diagonal", "related word, other text")]
    return sorted(earned, key=lambda name: -found[name].strength)


VERSION = 1
UNKNOWN = "nothing known"


@dataclass(frozen=True)
class Shown:
    """An example: a word and the one that it looks at, with how much, in a text."""

    weight: float
    query: str
    key: str
    text: str


@dataclass(frozen=True, eq=False)
class Head:
    """One head: what it gives to each pattern, the names that it has earned, strongest first, and examples of these."""

    place: str
    layer: int
    head: int
    measures: dict[str, Measured]
    names: tuple[str, ...]
    examples: dict[str, tuple[Shown, ...]]

    @property
    def label(self) -> str:
        """The names in a few words, for a page."""
        return ", ".join(self.names[:2])

    def told(self) -> dict[str, Any]:
        earned = [
            {
                "name": name,
                "why": criteria(name, self.measures[name]),
                "strength": self.measures[name].strength,
                "baseline": self.measures[name].baseline,
                "examples": [vars(one) for one in self.examples.get(name, ())],
            }
            for name in self.names
        ]
        measures = {name: one.told() for name, one in self.measures.items()}
        return {"place": self.place, "layer": self.layer, "head": self.head, "names": earned, "measures": measures}

    @classmethod
    def read(cls, told: dict[str, Any]) -> Head:
        earned = {one["name"]: tuple(Shown(**shown) for shown in one["examples"]) for one in told["names"]}
        measures = {name: Measured.read(one) for name, one in told["measures"].items()}
        return cls(told["place"], told["layer"], told["head"], measures, tuple(earned), earned)


@dataclass(frozen=True, eq=False)
class Sheet:
    """What every head of a model looks at, over so many texts."""

    model: str
    texts: int
    heads: tuple[Head, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many heads have each name, the most frequent first; those without any last."""
        found = Counter(name for head in self.heads for name in head.names)
        nameless = sum(not head.names for head in self.heads)
        return dict(found.most_common()) | ({UNKNOWN: nameless} if nameless else {})

    @property
    def patterns(self) -> dict[str, dict[str, str]]:
        """For each place and head its names, as a page shows them."""
        found: dict[str, dict[str, str]] = {}
        for head in self.heads:
            if head.names:
                found.setdefault(head.place, {})[str(head.head)] = head.label
        return found

    def told(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "model": self.model,
            "texts": self.texts,
            "counts": self.counts,
            "patterns": self.patterns,
            "heads": [head.told() for head in self.heads],
        }
