"""What the tests, the maps and the verdicts of an audit are called on its page, and what each of them means."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Literal

from regard.faithfulness.findings import DIFFERENT, Findings, Status
from regard.inspection import Estimate


@dataclass(frozen=True)
class Term:
    """`label`: in the head of a column; `form`: a share is told in percent, a gain in percent with its sign."""

    label: str
    meaning: str
    form: Literal["share", "gain", "number"] = "share"


TESTS: dict[str, Term] = {
    "tau gradient": Term(
        "tau with gradient",
        "how the map's order of the words agrees with that of the gradient (Kendall's tau, from -1 to 1)",
        "number",
    ),
    "tau left out": Term(
        "tau with leave-one-out",
        "how it agrees with the order by how far the output moves when a word is left out (Kendall's tau)",
        "number",
    ),
    "permuted": Term("moved by exchange", "how far the output moves when the words exchange their weights at random"),
    "permuted flips": Term("flipped by exchange", "how often the decision is another one then"),
    "uniform": Term("moved by even weights", "how far the output moves when every word gets the same weight"),
    "uniform flips": Term("flipped by even weights", "how often the decision is another one then"),
    "largest weight": Term("largest weight", "the largest weight of the map, the mean over decisions"),
    "adversarial jsd": Term(
        "furthest other map",
        "how far from the map the most different one lies that keeps the output (Jensen-Shannon divergence, from 0 to "
        "ln 2 = 0.69)",
        "number",
    ),
    "adversarial shared": Term("furthest one shares", "how much of its weight lies where the map's own lies"),
    "other map": Term(
        "very different map", f"how often that map is a very different one, by a divergence of {DIFFERENT} at least"
    ),
    "other map shares": Term(
        "very different ones share", "how much of their weight these maps have in common with the real one"
    ),
    "erased attention share": Term(
        "erased by attention", "the share of the words whose weights must go, largest first, before the decision flips"
    ),
    "erased gradient share": Term(
        "erased by gradient", "the same, in the order of how fast the decision changes with each weight"
    ),
    "erased gradient x attention share": Term("erased by both", "the same, in the order of gradient times weight"),
    "erased random share": Term("erased at random", "the same, in a random order: the control"),
    "erased flips": Term("largest flips", "how often the decision flips when the largest weight alone goes"),
    "erased random flips": Term("random one flips", "how often it flips when a random weight goes: the control"),
    "erased more": Term("flips over random", "how much more often the largest one flips it than a random one", "gain"),
    "comprehensiveness": Term(
        "comprehensiveness", "how much probability is gone without the map's best words: higher is better", "gain"
    ),
    "sufficiency": Term(
        "sufficiency", "how much probability is gone with its best words alone: lower is better", "gain"
    ),
    "points": Term("over random", "comprehensiveness less that of as many random words", "gain"),
    "class change": Term(
        "change with the class", "how much the map changes when it is asked about the second class instead"
    ),
    "precision": Term("precision", "of the words that hold half of the map, how many are known to decide"),
    "true": Term("precision over random", "precision less that of random words", "gain"),
    "recall": Term("recall", "of the words that are known to decide, how many are among those"),
    "first": Term("best word right", "how often the map's best word is one of those that decide"),
    "average": Term(
        "average precision", "the mean precision at each deciding word, down the map's order: 100% where all lead"
    ),
}

METHODS: dict[str, str] = {
    "attention": "the weights of the last place that looks at the text, the mean of its heads",
    "norm-based attention": "the same weights times the length of the vector that each lets through (Kobayashi et al. "
    "2020)",
    "rollout": "weights of all layers multiplied, half of each word staying where it is (Abnar & Zuidema 2020)",
    "gradient x attention": "each weight times how fast the decision changes with it, summed over places and heads",
    "gradient x input": "each word's vector times how fast the decision changes with it",
    "integrated gradients": "the same, averaged along the way from no vector to the whole (Sundararajan et al. 2017)",
    "random": "numbers drawn at random: what a map reaches that knows nothing (control)",
    "gradient": "the gradient set beside leave-one-out: how two honest orders agree with each other (control)",
}

SIGNS: dict[Status, str] = {"explains": "✓", "points": "~", "does not explain": "✗", "not known": "?"}
CLASSES: dict[Status, str] = {
    "explains": "explains",
    "points": "points",
    "does not explain": "fails",
    "not known": "unknown",
}


def label(test: str) -> str:
    return TESTS[test].label if test in TESTS else test


def told(test: str, value: float) -> str:
    """A number as its test has it: 52%, +4%, 0.31."""
    form = TESTS[test].form if test in TESTS else "number"
    nothing = abs(value) < (0.005 if form == "number" else 0.0005)  # what would be told as -0
    value = 0.0 if nothing else value
    return {"share": f"{value:.1%}", "gain": f"{value:+.1%}", "number": f"{value:.2f}"}[form]


def interval(test: str, one: Estimate) -> str:
    return "" if one.low is None or one.high is None else f"[{told(test, one.low)}, {told(test, one.high)}]"


def called(report: Findings) -> dict[str, str]:
    """By map, its name as short as it can be told from the others; controls say what they are."""
    kinds = {one.map: one.kind for one in report.findings}
    names = short([one for one, kind in kinds.items() if kind == "layer"])
    for one, kind in kinds.items():
        place, _, head = one.rpartition("/")
        if kind == "head":
            names[one] = f"{names.get(place, place)}/{head}"
        elif kind != "layer":
            names[one] = f"{one} (control)" if kind == "control" else one
    return names


def written(name: str) -> str:
    """A name as HTML that may go on in the next line after a dot."""
    return escape(name).replace(".", ".<wbr>")


def short(places: list[str]) -> dict[str, str]:
    """Names of places without what all of them begin with, but for its last part: blocks.0.self, blocks.1.self."""
    parts = [place.split(".") for place in places]
    same = [len(set(some)) == 1 for some in zip(*parts, strict=False)] if len(places) > 1 else []
    common = [*same, False].index(False)
    return {place: ".".join(one[max(0, common - 1) :]) for place, one in zip(places, parts, strict=True)}
