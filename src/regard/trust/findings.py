"""All that an audit found, as data: means with their intervals beside their controls, and a verdict for every map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from regard.trust.intervals import Estimate
from regard.trust.verdict import BADGES, Verdict

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
