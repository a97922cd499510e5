"""What an audit found, as data: means with their intervals beside their controls, and a verdict in plain words for
every map.

Three questions decide. Does it *point* at what matters: is more of the decision gone without its best tokens than
without as many taken at random, and, where it is known which tokens decide, are more of these among them? Does the
output *hang* on it: does it move when the weights do? Is it the *only* one: or does a quite different map give the same
output? A map that points, on which the output hangs and that is the only one explains the decision. One that points but
is not the only one, or that nothing hangs on, is a hint and no reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from regard.inspection import Estimate

Status = Literal["explains", "points", "does not explain", "not known"]
MOVED = 0.05  # how far the output must move, by total variation, to count as moved
DIFFERENT = 0.35  # a divergence, half of what is possible, from which on another map is a different one
OFTEN = 0.5  # of the decisions

BADGES: dict[Status, str] = {
    "explains": "explains",
    "points": "points, not shown to be the reason",
    "does not explain": "does not explain",
    "not known": "too few examples",
}


@dataclass(frozen=True)
class Verdict:
    """Of one map: `kind` is head, layer or method; `words` say why."""

    map: str
    kind: Literal["head", "layer", "method"]
    status: Status
    words: str


def judge(name: str, kind: Literal["head", "layer", "method"], found: Mapping[str, Estimate]) -> Verdict:
    """`found`: by test, the estimates of this map; "points" is its comprehensiveness less that of random tokens, "true"
    its precision less theirs, where it is known which tokens decide."""
    points = found.get("points")
    if points is None or points.low is None:
        return Verdict(name, kind, "not known", "Too few examples to say anything.")
    pointing = points.low > 0
    reasons = [_pointed(found["comprehensiveness"], points, pointing)]
    if "true" in found:
        right = (found["true"].low or 0.0) > 0
        reasons.insert(0, _true(found["precision"], found["true"], right))
        pointing = pointing and right
    if kind == "method":
        status: Status = "points" if pointing else "does not explain"
        return Verdict(name, kind, status, _joined(status, reasons))
    hangs = max(found["permuted"].low or 0.0, found["uniform"].low or 0.0) > MOVED
    others = found["other map"]
    only = (others.high if others.high is not None else others.value) < OFTEN
    reasons.append(_hung(found["permuted"], hangs))
    reasons.append(_alone(others, found.get("other map shares"), only))
    status = "does not explain" if not pointing else "explains" if hangs and only else "points"
    return Verdict(name, kind, status, _joined(status, reasons))


def _joined(status: Status, reasons: list[str]) -> str:
    opening = {
        "explains": "This map explains the decision: ",
        "points": "This map points at words that matter, which is no proof that it is the reason: ",
        "does not explain": "This map does not explain the decision: ",
        "not known": "",
    }[status]
    return opening + "; ".join(reasons) + "."


def _pointed(whole: Estimate, points: Estimate, pointing: bool) -> str:
    how = "more" if pointing else "no more"
    return (
        f"without its best words {whole.value:.0%} of the probability is gone, {how} than without as many at random"
        f" ({_change(points.value)} [{_change(points.low)}, {_change(points.high)}])"
    )


def _true(precision: Estimate, gain: Estimate, right: bool) -> str:
    how = "more" if right else "no more"
    chance = precision.value - gain.value
    return (
        f"{precision.value:.0%} of the words that it holds most important are known to decide, {how} than at random"
        f" ({chance:.0%})"
    )


def _hung(permuted: Estimate, hangs: bool) -> str:
    if hangs:
        return f"the output moves by {permuted.value:.0%} when the words exchange their weights"
    if permuted.low is not None and permuted.high is not None and permuted.high > MOVED:
        reach = f"{permuted.value:.0%} [{permuted.low:.0%}, {permuted.high:.0%}]"
        return f"it is not sure that the output moves when the words exchange their weights ({reach})"
    return f"the output hardly moves ({permuted.value:.1%}) when the words exchange their weights"


def _alone(others: Estimate, shares: Estimate | None, only: bool) -> str:
    if shares is None or others.value == 0:
        return "no very different map gives the same output"
    seldom = "only " if only else ""
    return f"a map sharing {shares.value:.0%} with it gives the same output in {seldom}{others.value:.0%} of cases"


def _change(value: float | None) -> str:
    """With its sign; what rounds to nothing has none."""
    shown = f"{value or 0.0:+.0%}"
    return "0%" if shown in ("+0%", "-0%") else shown


Kind = Literal["head", "layer", "method", "control"]
VERSION = 1


@dataclass(frozen=True)
class Finding:
    """What one test found of one map."""

    map: str
    kind: Kind
    test: str
    estimate: Estimate


@dataclass(frozen=True, eq=False)
class Findings:
    """`facts`: model, kind of decision, counts, accuracy, settings; `examined`: every decision with all its numbers."""

    facts: Mapping[str, Any]
    findings: Sequence[Finding]
    verdicts: Sequence[Verdict]
    examined: Sequence[Mapping[str, Any]]

    def of(self, name: str) -> dict[str, Estimate]:
        """By test, what was found of a map."""
        return {one.test: one.estimate for one in self.findings if one.map == name}

    def verdict(self, name: str) -> Verdict:
        return next(one for one in self.verdicts if one.map == name)

    @property
    def maps(self) -> list[str]:
        return list(dict.fromkeys(one.map for one in self.findings))

    def badges(self) -> dict[str, dict[str, str]]:
        """For the viewer: by place and head, what to believe of its map."""
        found: dict[str, dict[str, str]] = {}
        for one in self.verdicts:
            if one.kind == "head":
                place, _, head = one.map.rpartition("/")
                found.setdefault(place, {})[head] = BADGES[one.status]
        return found

    def told(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "facts": dict(self.facts),
            "findings": [
                {"map": one.map, "kind": one.kind, "test": one.test, **asdict(one.estimate)} for one in self.findings
            ],
            "verdicts": [asdict(one) for one in self.verdicts],
            "badges": self.badges(),
            "examined": list(self.examined),
        }
