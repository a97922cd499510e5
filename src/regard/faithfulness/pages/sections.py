"""A section for each test: what is asked, how to read the answer, the figure, its control, the numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from regard.faithfulness.findings import DIFFERENT, MOVED, Findings
from regard.faithfulness.pages.figures import (
    PANELS,
    Panel,
    adversary_figure,
    erasure_figure,
    means_figure,
    permuting_figure,
)
from regard.faithfulness.pages.tables import table

MARKS = "Circles are layers, squares other methods, diamonds controls; lines are intervals."
BAND = "The grey band is the interval of random maps, which know nothing."
FEW = 6  # layers of which the table is shown without being asked for


@dataclass(frozen=True)
class Section:
    """One test: `called` so in the contents; `draw` makes its figure of the maps that have one of its `tests`; `plain`:
    shown as a table as well, where the figure has no intervals."""

    name: str
    called: str
    title: str
    asks: str
    reads: str
    paper: str
    tests: Sequence[str]
    draw: Callable[[Findings, list[str]], str]
    caption: str
    plain: bool = False


def _means(name: str, *panels: Panel) -> Callable[[Findings, list[str]], str]:
    return lambda report, maps: means_figure(report, maps, panels, name)


def _ranked(report: Findings, maps: list[str]) -> str:
    """By precision, the best first; what is equal stays in its order."""
    best = sorted(maps, key=lambda name: -report.of(name)["precision"].value)
    panels = [Panel(test, whole=True) for test in ("precision", "recall", "first", "average")]
    return means_figure(report, best, panels, "planted")


SECTIONS = (
    Section(
        "agreement",
        "agreement",
        "Does its order of the words agree with what moves the output?",
        "Words can be put in order without attention: by the gradient, how fast the output changes with each word, and "
        "by leaving each word out, how far the output moves without it. Kendall's tau says how well a map agrees with "
        "such an order: 1 is the same, 0 no relation, -1 the reverse.",
        "An explanation should lie well to the right of random maps. How far right one can hope for is shown by the "
        "row “gradient”: the agreement of the two orders with each other.",
        "Jain & Wallace 2019, Attention is not Explanation",
        ("tau gradient", "tau left out"),
        _means("agreement", Panel("tau gradient"), Panel("tau left out")),
        f"{MARKS} {BAND}",
    ),
    Section(
        "permuting",
        "exchanged weights",
        "Does the output hang on the weights?",
        "The words exchange their weights at random, many times; and once every word gets the same weight. Each dot is "
        "a decision: how much of the output's probability moved, against the largest weight that was there.",
        "If attention is the reason, the output moves, most of all where one weight was large. Dots along the bottom, "
        "however large the weight, mean that nothing hangs on it. Even weights are the control: what does attention "
        "add to a plain average?",
        "Jain & Wallace 2019; Wiegreffe & Pinter 2019, Attention is not not Explanation",
        ("permuted", "permuted flips", "uniform", "uniform flips", "largest weight"),
        permuting_figure,
        f"Filled: weights exchanged; hollow: all the same. Below the dashed line ({MOVED:.0%}) the output counts as "
        "not moved.",
        plain=True,
    ),
    Section(
        "adversary",
        "other maps",
        "Is it the only map, or does a very different one give the same output?",
        "For each decision a search looks for the weights furthest from the real ones that leave the output nearly as "
        "it was. Their distance is the Jensen-Shannon divergence: 0 is the same map, ln 2 = 0.69 shares nothing.",
        "Bars at the right mean that the model would have said the same while looking elsewhere: then the map is one "
        "story among several. Bars at the left mean that it is the only one. The search may miss a map, so the truth "
        "lies at the bars or to the right of them.",
        "Jain & Wallace 2019",
        ("adversarial jsd", "adversarial shared", "other map", "other map shares"),
        adversary_figure,
        f"The line marks the bound, ln 2; from the dashed line ({DIFFERENT}) on, a map counts as a different one.",
        plain=True,
    ),
    Section(
        "erasure",
        "erased weights",
        "How many weights must go before the decision flips?",
        "Weights are set to zero one after another, the rest made larger by as much, until the decision is another "
        "one: the largest first, or in the order of the gradient, of both multiplied, or at random.",
        "If large weights decide, few of them need to go, far fewer than at random, and no more than by gradient. At "
        "100% the decision never flips.",
        "Serrano & Smith 2019, Is Attention Interpretable?",
        (
            "erased attention share",
            "erased gradient share",
            "erased gradient x attention share",
            "erased random share",
            "erased flips",
            "erased random flips",
            "erased more",
        ),
        erasure_figure,
        "Share of the weights that must go; further left is better. Lines are intervals; hollow is the control.",
    ),
    Section(
        "rationales",
        "words taken away",
        "Is the decision in the words that it names?",
        "The words that a map holds most important are taken out of the text (comprehensiveness: how much of the "
        "probability is gone?), or everything else is (sufficiency: how much is gone with these words alone?). Both "
        "are means over several numbers of words.",
        "A good map has a high comprehensiveness, further right than random, and a low sufficiency, further left. This "
        "decides whether a map “points” at what matters.",
        "DeYoung et al. 2020, ERASER",
        ("comprehensiveness", "sufficiency", "points"),
        _means("rationales", Panel("comprehensiveness"), Panel("sufficiency")),
        f"{MARKS} {BAND}",
    ),
    Section(
        "classes",
        "another question",
        "Does it change when the question does?",
        "Each map is made again for the answer that the model held second. A map that explains one answer and not the "
        "other must change; one that stays the same “explains” both, a husky as well as a flute.",
        "0% is the same map, 100% one that shares nothing. Attention weights are there before anyone asks about an "
        "answer, so they stay at 0 by their nature: they show where the model looked, whatever it said. Of two "
        "answers alone, what speaks for one speaks against the other, so gradients stay at 100% by theirs.",
        "Rudin 2019, Stop Explaining Black Box Machine Learning Models for High Stakes Decisions",
        ("class change",),
        _means("classes", Panel("class change", whole=True)),
        "Circles are layers, squares other methods; lines are intervals.",
    ),
    Section(
        "planted",
        "planted truth",
        "Does it find the words that are known to decide?",
        "Of these texts it is known which words decide, so a map can be right or wrong, and not only plausible.",
        "Precision: of the words that hold half of a map, how many decide. Recall: how many of those that decide are "
        "among them. Best word right: is it one that decides. Average precision: do those that decide lead its order. "
        "A model may decide by other words than it should, so even an honest map need not reach 100%.",
        "",
        ("precision", "true", "recall", "first", "average"),
        _ranked,
        f"Ranked by precision. {MARKS} {BAND}",
    ),
)


def made(report: Findings) -> list[Section]:
    """The sections of those tests that were made."""
    tests = {one.test for one in report.findings}
    return [one for one in SECTIONS if one.tests[0] in tests]


def sections(report: Findings) -> str:
    return "\n".join(_shown(report, one) for one in made(report))


def _shown(report: Findings, section: Section) -> str:
    having = {one.map: one.kind for one in report.findings if one.test in section.tests}
    order = ("layer", "method", "control")
    maps = [name for kind in order for name in having if having[name] == kind]
    heads = [name for name in having if having[name] == "head"]
    tests = [test for test in section.tests if any(one.test == test for one in report.findings)]
    layers = [name for name in maps if having[name] == "layer"]
    caption = section.caption
    if section.plain and len(layers) > PANELS:
        caption += f" {PANELS} of {len(layers)} layers are drawn; the table has all."
    numbers = table(report, maps, tests)
    plain = numbers if section.plain and len(layers) <= FEW else _folded("in numbers", numbers)
    more = _folded(f"{len(heads)} heads in numbers", table(report, heads, tests)) if len(heads) > len(layers) else ""
    paper = f" <cite>{escape(section.paper)}</cite>" if section.paper else ""
    return (
        f'<section id="{section.name}"><h2>{escape(section.title)}</h2><p>{escape(section.asks)}</p>'
        f"<p>{escape(section.reads)}</p><figure>{section.draw(report, maps)}"
        f"<figcaption>{escape(caption)}{paper}</figcaption></figure>"
        f"{plain}{more}</section>"
    )


def _folded(named: str, content: str) -> str:
    return f'<details class="long"><summary>{named}</summary>{content}</details>'
