"""Criteria for labelling a head (induction, previous token, ...): its weight on a pattern against a baseline.

Weights come with bootstrap confidence intervals; the patterns themselves are in head_patterns.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from regard.inspection.atlas.accumulate import PatternSums, from_fixed_point
from regard.inspection.atlas.head_patterns import PATTERNS, HeadPattern
from regard.inspection.atlas.token_features import CLASSES, DISTANCES, RARITY_CLASSES
from regard.inspection.bootstrap import STANDARD_ERRORS, percentile_interval

MAJORITY = 0.5  # Clark et al. 2019: more than half of the weight
NEARLY_ALL = 0.9  # Voita et al. 2019: the share of largest weights at one offset
MARGIN = 0.1  # Voita et al. 2019: above the baseline
MIN_WEIGHT = 0.05  # of a pattern that is a label
SAFETY = 3  # standard errors below the value
MIN_QUERIES = 30  # that have a target, in
MIN_TEXTS = 5  # texts


@dataclass(frozen=True)
class Interval:
    """A share, from 0 to 1, with its bootstrap confidence interval over texts (bootstrap.py)."""

    value: float
    low: float
    high: float

    @property
    def floor(self) -> float:
        """Three standard errors below the value: thousands of hypotheses are tested on one model, and none should pass
        by chance."""
        return self.value - SAFETY * (self.high - self.low) / STANDARD_ERRORS


@dataclass(frozen=True)
class PatternMeasure:
    """A head's attention to the targets of a pattern, over the `queries` that have one.

    weight           the mean weight on targets
    largest          how often a target has the largest weight
    uniform          the weight on targets of uniform attention
    control          the head's weight on similar keys, whether targets or not; None: the pattern has none
    largest_control  how often one of those has the largest weight
    """

    queries: int
    weight: Interval
    largest: Interval
    uniform: float
    control: float | None = None
    largest_control: float | None = None

    @property
    def baseline(self) -> float:
        """The weight that the head must exceed."""
        return max(self.uniform, self.control or 0.0)

    @property
    def strength(self) -> float:
        """The position of the weight between the baseline (0) and all of it (1)."""
        return (self.weight.value - self.baseline) / max(1e-9, 1 - self.baseline)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> PatternMeasure:
        return cls(**{**data, "weight": Interval(**data["weight"]), "largest": Interval(**data["largest"])})


def measure_patterns(sums: PatternSums) -> list[dict[str, PatternMeasure]]:
    """For each head of a place, the measure of each pattern that had targets."""
    queries = sums.query_counts.double().clamp(min=1)
    weight, largest = from_fixed_point(sums.target_weight) / queries, sums.target_peaks / queries
    uniform = from_fixed_point(sums.uniform) / queries
    intervals = (
        _intervals(from_fixed_point(sums.sampled_weight), sums.sampled_queries),
        _intervals(sums.sampled_peaks, sums.sampled_queries),
    )
    found: list[dict[str, PatternMeasure]] = [{} for _ in range(sums.heads)]
    for at, pattern in enumerate(PATTERNS):
        if not sums.query_counts[at]:
            continue
        control = _control(sums, at, pattern)
        for head in range(sums.heads):
            weights, peaks = (
                Interval(float(value[head, at]), float(low[head, at]), float(high[head, at]))
                for value, (low, high) in zip((weight, largest), intervals, strict=True)
            )
            controls = (None, None) if control is None else (float(control[0][head]), float(control[1][head]))
            measure = PatternMeasure(int(sums.query_counts[at]), weights, peaks, float(uniform[at]), *controls)
            found[head][pattern.name] = measure
    return found


def _intervals(sums: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
    """The ends (H, P) of the intervals from the bootstrap samples (R, H, P); samples without a query do not count."""
    low, high = percentile_interval(sums.double() / queries[:, None])  # NaN without a query
    return low.nan_to_num(0.0), high.nan_to_num(1.0)


def _control(sums: PatternSums, at: int, pattern: HeadPattern) -> tuple[Tensor, Tensor] | None:
    """(H,) and (H,): the mean weight, and the rate of largest weights, of keys similar to the targets.

    Targets are matched with all pairs of words of their kinds; for `content`, the kind of a key is only whether it is a
    function word.
    """
    queries = sums.query_counts[at].double()
    if pattern.family == "probe":
        return from_fixed_point(sums.control_weight[:, at]) / queries, from_fixed_point(
            sums.control_peaks[:, at]
        ) / queries
    if pattern.family not in ("content", "pairs"):
        return None
    counts = (sums.kind_targets[at], sums.kind_pairs, from_fixed_point(sums.kind_weight), sums.kind_peaks)
    targets, pairs, weight, peaks = (
        one.double() if pattern.family == "pairs" else _merge_key_kinds(one) for one in counts
    )
    rate = targets / pairs.clamp(min=1) / queries
    return weight @ rate, peaks @ rate


def _merge_key_kinds(by_kind: Tensor) -> Tensor:
    """Sums by kind of pair, in which the key is only a function word or not."""
    apart = by_kind.double().unflatten(-1, (2 * DISTANCES * CLASSES, CLASSES, RARITY_CLASSES)).sum(-1)
    return torch.stack((apart[..., 0], apart[..., 1:].sum(-1)), -1).flatten(-2)


def criteria(name: str, one: PatternMeasure, sure: bool = True) -> list[str]:
    """The criteria by which a head earns this label; empty: it does not. `sure`: three standard errors below the value
    must pass, as for giving a label; otherwise the value itself, as for checking one on other texts."""
    weight = one.weight.floor if sure else one.weight.value
    largest = one.largest.floor if sure else one.largest.value
    if one.queries < MIN_QUERIES and sure:
        return []
    family = FAMILIES[name]
    if family == "spread":
        return ["more than half of what it sees"] if weight > MAJORITY else []
    found = []
    if family in ("position", "landmark"):
        if weight > MAJORITY and weight > one.uniform + MARGIN:
            found.append("more than half of the weight")
        if family == "position" and largest >= NEARLY_ALL:
            found.append("90% of the largest weights")
        if family == "landmark" and largest > MAJORITY and weight > one.uniform + MARGIN:
            found.append("more than half of the largest weights")
        return found
    if weight > one.baseline + MARGIN:
        found.append("10 points of weight above the baseline")
    if largest > (one.largest_control or 0.0) + MARGIN and weight > max(one.baseline, MIN_WEIGHT):
        found.append("10 points of largest weights above the baseline")
    return found


FAMILIES = {pattern.name: pattern.family for pattern in PATTERNS}


def earned_names(found: dict[str, PatternMeasure]) -> list[str]:
    """The labels that a head has earned, strongest first."""
    earned = [name for name, one in found.items() if criteria(name, one)]
    if "first token" in earned and "delimiter" in earned:  # [CLS] is both: the second needs more than that
        more = found["delimiter"].weight.floor - found["first token"].weight.value
        earned = [name for name in earned if name != "delimiter" or more > MARGIN]
    if "alignment" in earned:  # aligned words are near the diagonal, and co-occur in a corpus
        earned = [name for name in earned if name not in ("diagonal", "related word, other text")]
    return sorted(earned, key=lambda name: -found[name].strength)


VERSION = 2
UNKNOWN = "no known pattern"


@dataclass(frozen=True)
class PatternExample:
    """An example: a query word and a key word, the weight between them, and the text around."""

    weight: float
    query: str
    key: str
    text: str


@dataclass(frozen=True, eq=False, repr=False)
class Head:
    """One head: its measure of each pattern, the labels that it has earned, strongest first, and examples of these."""

    place: str
    layer: int
    head: int
    measures: dict[str, PatternMeasure]
    names: tuple[str, ...]
    examples: dict[str, tuple[PatternExample, ...]]

    def __repr__(self) -> str:
        named = [f"{name} {self.measures[name].weight.value:.0%}" for name in self.names]
        return f"Head({self.place}/{self.head}: {', '.join(named) or UNKNOWN})"

    @property
    def label(self) -> str:
        """The first two labels, for a page."""
        return ", ".join(self.names[:2])

    def to_dict(self) -> dict[str, Any]:
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
        measures = {name: one.to_dict() for name, one in self.measures.items()}
        return {"place": self.place, "layer": self.layer, "head": self.head, "names": earned, "measures": measures}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Head:
        examples = {one["name"]: tuple(PatternExample(**pair) for pair in one["examples"]) for one in data["names"]}
        measures = {name: PatternMeasure.from_dict(one) for name, one in data["measures"].items()}
        return cls(data["place"], data["layer"], data["head"], measures, tuple(examples), examples)


@dataclass(frozen=True, eq=False, repr=False)
class AtlasData:
    """The labels of every head of a model, measured over `texts` texts."""

    model: str
    texts: int
    heads: tuple[Head, ...]

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in list(self.counts.items())[:4])
        return f"{type(self).__name__}({self.model!r}, {len(self.heads)} heads, {self.texts} texts: {counts})"

    @property
    def counts(self) -> dict[str, int]:
        """The number of heads with each label, most frequent first; those without any last."""
        found = Counter(name for head in self.heads for name in head.names)
        unlabelled = sum(not head.names for head in self.heads)
        return dict(found.most_common()) | ({UNKNOWN: unlabelled} if unlabelled else {})

    @property
    def patterns(self) -> dict[str, dict[str, str]]:
        """The label of each head by place and head, as a page shows it."""
        found: dict[str, dict[str, str]] = {}
        for head in self.heads:
            if head.names:
                found.setdefault(head.place, {})[str(head.head)] = head.label
        return found

    def to_dict(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "model": self.model,
            "texts": self.texts,
            "counts": self.counts,
            "patterns": self.patterns,
            "heads": [head.to_dict() for head in self.heads],
        }
