"""The findings of an audit: means with confidence intervals and their controls, and a verdict for every map.

Three questions decide a verdict. Do the top tokens of the map *matter*: does removing them lower the probability more
than removing random tokens, and, where the deciding tokens are known, are they among them? Does the output *depend* on
the weights: does it change when they are permuted or uniform? Is the map *unique*: or does a very different map give
the same output? A map with all three explains the decision. One whose top tokens matter, but that is not unique or that
the output does not depend on, is informative, but is not shown to be the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from regard.errors import unknown
from regard.inspection import ConfidenceInterval

Status = Literal["explains", "informative", "does not explain", "inconclusive"]
MIN_OUTPUT_CHANGE = 0.05  # total variation distance from which on the output counts as changed
MIN_DIVERGENCE = 0.35  # half of the largest Jensen-Shannon divergence: from which on a map counts as very different
MAX_ALTERNATIVE_RATE = 0.5  # of the decisions: a map is unique where fewer have an alternative

BADGES: dict[Status, str] = {
    "explains": "explains",
    "informative": "informative, not shown to be the reason",
    "does not explain": "does not explain",
    "inconclusive": "too few examples",
}


@dataclass(frozen=True)
class Verdict:
    """The verdict on one map, and the reason for it in words."""

    map: str
    kind: Literal["head", "layer", "method"]
    status: Status
    reason: str

    def __repr__(self) -> str:
        return f"Verdict({self.map!r}, {self.status!r})"


def judge(name: str, kind: Literal["head", "layer", "method"], estimates: Mapping[str, ConfidenceInterval]) -> Verdict:
    """The verdict that follows from the estimates of a map, by test."""
    gain = estimates.get("comprehensiveness_gain")
    if gain is None or gain.low is None:
        return Verdict(name, kind, "inconclusive", "Too few examples for a verdict.")
    matters = gain.low > 0
    reasons = [_comprehensiveness_reason(estimates["comprehensiveness"], gain, matters)]
    if "precision_gain" in estimates:
        precise = (estimates["precision_gain"].low or 0.0) > 0
        reasons.insert(0, _precision_reason(estimates["precision"], estimates["precision_gain"], precise))
        matters = matters and precise
    if kind == "method":
        status: Status = "informative" if matters else "does not explain"
        return Verdict(name, kind, status, _sentence(status, reasons))
    depends = max(estimates["permuted"].low or 0.0, estimates["uniform"].low or 0.0) > MIN_OUTPUT_CHANGE
    alternatives = estimates["alternative_exists"]
    rate = alternatives.high if alternatives.high is not None else alternatives.value
    unique = rate < MAX_ALTERNATIVE_RATE
    reasons.append(_permutation_reason(estimates["permuted"], depends))
    reasons.append(_alternatives_reason(alternatives, estimates.get("alternative_overlap"), unique))
    status = "does not explain" if not matters else "explains" if depends and unique else "informative"
    return Verdict(name, kind, status, _sentence(status, reasons))


def _sentence(status: Status, reasons: list[str]) -> str:
    opening = {
        "explains": "This map explains the decision: ",
        "informative": "This map is informative, but it is not shown to be the reason: ",
        "does not explain": "This map does not explain the decision: ",
        "inconclusive": "",
    }[status]
    return opening + "; ".join(reasons) + "."


def _comprehensiveness_reason(comprehensiveness: ConfidenceInterval, gain: ConfidenceInterval, matters: bool) -> str:
    how = "more" if matters else "no more"
    return (
        f"removing its top words lowers the probability by {comprehensiveness.value:.0%}, {how} than removing as many "
        f"random words (difference {_signed_percent(gain.value)} [{_signed_percent(gain.low)}, "
        f"{_signed_percent(gain.high)}])"
    )


def _precision_reason(precision: ConfidenceInterval, gain: ConfidenceInterval, precise: bool) -> str:
    how = "better" if precise else "no better"
    random = precision.value - gain.value
    return f"{precision.value:.0%} of its top words are known to decide, {how} than random ({random:.0%})"


def _permutation_reason(permuted: ConfidenceInterval, depends: bool) -> str:
    if depends:
        return f"permuting its weights changes the output by {permuted.value:.0%}"
    if permuted.low is not None and permuted.high is not None and permuted.high > MIN_OUTPUT_CHANGE:
        interval = f"{permuted.value:.0%} [{permuted.low:.0%}, {permuted.high:.0%}]"
        return f"it is uncertain whether permuting its weights changes the output ({interval})"
    return f"permuting its weights hardly changes the output ({permuted.value:.1%})"


def _alternatives_reason(alternatives: ConfidenceInterval, overlap: ConfidenceInterval | None, unique: bool) -> str:
    if overlap is None or alternatives.value == 0:
        return "no very different map gives the same output"
    only = "only " if unique else ""
    return (
        f"a very different map (overlap {overlap.value:.0%}) gives the same output in {only}{alternatives.value:.0%} "
        "of cases"
    )


def _signed_percent(value: float | None) -> str:
    """With its sign, but for what rounds to 0."""
    text = f"{value or 0.0:+.0%}"
    return "0%" if text in ("+0%", "-0%") else text


MapKind = Literal["head", "layer", "method", "control"]
VERSION = 2


@dataclass(frozen=True)
class Finding:
    """The mean result of one test for one map."""

    map: str
    kind: MapKind
    test: str
    estimate: ConfidenceInterval

    def __repr__(self) -> str:
        return f"Finding({self.map!r}, {self.test}: {self.estimate})"


@dataclass(frozen=True, eq=False)
class Findings:
    """What an audit found.

    facts      model, kind of decision, counts, accuracy, settings
    findings   the mean of every test for every map; `verdicts`: on heads, layers and methods
    examples   every decision with all its numbers, as `ExampleResult.to_dict` gives it
    """

    facts: Mapping[str, Any]
    findings: Sequence[Finding]
    verdicts: Sequence[Verdict]
    examples: Sequence[Mapping[str, Any]]

    def __repr__(self) -> str:
        layers = [f"{one.map}: {one.status}" for one in self.verdicts if one.kind == "layer"]
        shown = ", ".join(layers[:4]) + (f", {len(layers) - 4} more" if len(layers) > 4 else "")
        model = self.facts.get("model", "")
        return f"{type(self).__name__}({model!r}, {len(self.examples)} decisions; {shown or 'no layers'})"

    def estimates(self, name: str) -> dict[str, ConfidenceInterval]:
        """By test, the estimates of a map."""
        return {one.test: one.estimate for one in self.findings if one.map == name}

    def verdict(self, name: str) -> Verdict:
        """The verdict on a map: "PLACE", "PLACE/HEAD" or the name of a method."""
        verdicts = {one.map: one for one in self.verdicts}
        if name not in verdicts:
            raise unknown(name, verdicts, kind="map", where="report")
        return verdicts[name]

    @property
    def maps(self) -> list[str]:
        return list(dict.fromkeys(one.map for one in self.findings))

    def badges(self) -> dict[str, dict[str, str]]:
        """For the viewer: by place and head, the status of its map in words."""
        found: dict[str, dict[str, str]] = {}
        for one in self.verdicts:
            if one.kind == "head":
                place, _, head = one.map.rpartition("/")
                found.setdefault(place, {})[head] = BADGES[one.status]
        return found

    def to_dict(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "facts": dict(self.facts),
            "findings": [
                {"map": one.map, "kind": one.kind, "test": one.test, **asdict(one.estimate)} for one in self.findings
            ],
            "verdicts": [asdict(one) for one in self.verdicts],
            "badges": self.badges(),
            "examples": list(self.examples),
        }
