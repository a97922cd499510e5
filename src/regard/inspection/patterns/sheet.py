"""An atlas as data: every head with its names, what they rest on, and examples."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from regard.inspection.patterns.naming import Measured, criteria

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
