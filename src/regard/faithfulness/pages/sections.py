"""The sections of the report page, one for each test: the question, the method, how to read the figure, its control."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from regard.faithfulness.findings import MIN_DIVERGENCE, MIN_OUTPUT_CHANGE, Findings
from regard.faithfulness.pages.figures import (
    MAX_PANELS,
    Panel,
    draw_adversary,
    draw_erasure,
    draw_means,
    draw_permutation,
)
from regard.faithfulness.pages.tables import render_table

MARKS_NOTE = "Circles are layers, squares other methods, diamonds controls; lines are confidence intervals."
BAND_NOTE = "The grey band is the interval of random maps."
FEW_LAYERS = 6  # up to which the table is not folded


@dataclass(frozen=True)
class ReportSection:
    """The section of one test.

    name, nav_label          its id, and its name in the navigation
    title                    the question that the test answers
    method, interpretation   what is done, and how to read the result
    paper, tests             where it was published; the numbers that it gives
    draw, caption            the figure of the maps that have one of these numbers
    open_table               show the table beside the figure, which has no intervals
    """

    name: str
    nav_label: str
    title: str
    method: str
    interpretation: str
    paper: str
    tests: Sequence[str]
    draw: Callable[[Findings, list[str]], str]
    caption: str
    open_table: bool = False


def _means_figure(name: str, *panels: Panel) -> Callable[[Findings, list[str]], str]:
    return lambda report, maps: draw_means(report, maps, panels, name)


def _precision_figure(report: Findings, maps: list[str]) -> str:
    """Ranked by precision, the best first; ties keep their order."""
    best = sorted(maps, key=lambda name: -report.estimates(name)["precision"].value)
    tests = ("precision", "recall", "precision_at_1", "average_precision")
    return draw_means(report, best, [Panel(test, unit_axis=True) for test in tests], "ground-truth")


SECTIONS = (
    ReportSection(
        "agreement",
        "agreement",
        "Does the map rank the words like gradients and leave-one-out?",
        "Words can be ranked without attention: by the gradient of the output with respect to each word, and by "
        "leave-one-out, the change of the output when the word is removed. Kendall's tau measures how well a map "
        "agrees with such a ranking: 1 is the same ranking, 0 no relation, -1 the reverse.",
        "A faithful map should lie well to the right of random maps. The row “gradient” shows how far right can be "
        "expected: it is the agreement of the two rankings with each other.",
        "Jain & Wallace 2019, Attention is not Explanation",
        ("tau_gradient", "tau_leave_one_out"),
        _means_figure("agreement", Panel("tau_gradient"), Panel("tau_leave_one_out")),
        f"{MARKS_NOTE} {BAND_NOTE}",
    ),
    ReportSection(
        "permutation",
        "permutation test",
        "Does the output depend on the weights?",
        "The weights are permuted at random among the words, many times, and replaced once by uniform attention. Each "
        "dot is a decision: the change of the output (total variation) against the largest weight.",
        "If attention is the reason for the output, the output changes, most of all where one weight was large. Dots "
        "at the bottom, whatever the largest weight, mean that the output does not depend on the weights. Uniform "
        "attention is the baseline: what does attention add to a plain average?",
        "Jain & Wallace 2019; Wiegreffe & Pinter 2019, Attention is not not Explanation",
        ("permuted", "permuted_flips", "uniform", "uniform_flips", "largest_weight"),
        draw_permutation,
        f"Filled: permuted weights; hollow: uniform weights. Below the dashed line ({MIN_OUTPUT_CHANGE:.0%}) the "
        "output counts as unchanged.",
        open_table=True,
    ),
    ReportSection(
        "adversary",
        "adversarial attention",
        "Is the map unique, or does a very different one give the same output?",
        "For each decision a search looks for adversarial attention: the weights most different from the real ones "
        "that keep the output nearly unchanged. Their distance is the Jensen-Shannon divergence: 0 is the same map, "
        "ln 2 = 0.69 means no overlap.",
        "Bars at the right mean that the model would have predicted the same with very different attention: the map is "
        "one of several possible explanations. Bars at the left mean that it is the only one. The search may miss a "
        "map, so the true divergence is at the bars or to the right of them.",
        "Jain & Wallace 2019",
        ("adversarial_jsd", "adversarial_overlap", "alternative_exists", "alternative_overlap"),
        draw_adversary,
        f"The line marks the bound, ln 2; beyond the dashed line ({MIN_DIVERGENCE}) a map counts as very different.",
        open_table=True,
    ),
    ReportSection(
        "erasure",
        "erasure",
        "How many weights must be erased until the prediction changes?",
        "Weights are set to zero one after another, and the others renormalised, until the predicted class changes: in "
        "the order of the weights, of their gradients, of the product of both, or in random order.",
        "If large weights decide, few of them must be erased: far fewer than in random order, and no more than in the "
        "order of the gradient. At 100% the prediction never changes.",
        "Serrano & Smith 2019, Is Attention Interpretable?",
        (
            "erased_attention_share",
            "erased_gradient_share",
            "erased_gradient_x_attention_share",
            "erased_random_share",
            "erased_flips",
            "erased_random_flips",
            "erased_flips_gain",
        ),
        draw_erasure,
        "Share of the weights that must be erased; further left is better. Lines are confidence intervals; hollow "
        "marks are the control.",
    ),
    ReportSection(
        "rationales",
        "rationales",
        "Does the decision rest on the map's top words?",
        "The top words of a map are removed from the text (comprehensiveness: how much probability is lost?), or only "
        "they are kept (sufficiency: how much is lost then?). Both are averages over several sizes (AOPC).",
        "A good map has a high comprehensiveness, to the right of random maps, and a low sufficiency, to the left. The "
        "gain over random decides whether a map is informative.",
        "DeYoung et al. 2020, ERASER",
        ("comprehensiveness", "sufficiency", "comprehensiveness_gain"),
        _means_figure("rationales", Panel("comprehensiveness"), Panel("sufficiency")),
        f"{MARKS_NOTE} {BAND_NOTE}",
    ),
    ReportSection(
        "class-sensitivity",
        "class sensitivity",
        "Does the map change with the class that it explains?",
        "Each map is computed again for the second most likely class. A map that explains one class and not the other "
        "must change; one that stays the same “explains” both, a husky as well as a flute.",
        "0% is the same map, 100% means no overlap. Attention weights do not depend on the class, so they are at 0% by "
        "construction: they show where the model attended, whatever it predicted. With two classes, what supports one "
        "opposes the other, so gradients are at 100% by construction.",
        "Rudin 2019, Stop Explaining Black Box Machine Learning Models for High Stakes Decisions",
        ("class_sensitivity",),
        _means_figure("class-sensitivity", Panel("class_sensitivity", unit_axis=True)),
        "Circles are layers, squares other methods; lines are confidence intervals.",
    ),
    ReportSection(
        "ground-truth",
        "ground truth",
        "Does the map find the words that are known to decide?",
        "For these texts the deciding words are known, so a map can be right or wrong, not just plausible.",
        "Precision: of the top words that hold half of the map, the share that decide. Recall: the share of the "
        "deciding words among them. Precision at 1: whether the top word decides. Average precision: whether the "
        "deciding words rank first. A model may decide by other words than intended, so even a faithful map "
        "need not reach 100%.",
        "",
        ("precision", "precision_gain", "recall", "precision_at_1", "average_precision"),
        _precision_figure,
        f"Ranked by precision. {MARKS_NOTE} {BAND_NOTE}",
    ),
)


def present_sections(report: Findings) -> list[ReportSection]:
    """The sections of the tests that were run."""
    tests = {one.test for one in report.findings}
    return [one for one in SECTIONS if one.tests[0] in tests]


def render_sections(report: Findings) -> str:
    return "\n".join(_render_section(report, one) for one in present_sections(report))


def _render_section(report: Findings, section: ReportSection) -> str:
    kinds = {one.map: one.kind for one in report.findings if one.test in section.tests}
    order = ("layer", "method", "control")
    maps = [name for kind in order for name in kinds if kinds[name] == kind]
    heads = [name for name in kinds if kinds[name] == "head"]
    tests = [test for test in section.tests if any(one.test == test for one in report.findings)]
    layers = [name for name in maps if kinds[name] == "layer"]
    caption = section.caption
    if section.open_table and len(layers) > MAX_PANELS:
        caption += f" {MAX_PANELS} of {len(layers)} layers are drawn; the table has all."
    table = render_table(report, maps, tests)
    shown = table if section.open_table and len(layers) <= FEW_LAYERS else _details("table", table)
    by_head = render_table(report, heads, tests)
    more = _details(f"table of the {len(heads)} heads", by_head) if len(heads) > len(layers) else ""
    paper = f" <cite>{escape(section.paper)}</cite>" if section.paper else ""
    return (
        f'<section id="{section.name}"><h2>{escape(section.title)}</h2><p>{escape(section.method)}</p>'
        f"<p>{escape(section.interpretation)}</p><figure>{section.draw(report, maps)}"
        f"<figcaption>{escape(caption)}{paper}</figcaption></figure>"
        f"{shown}{more}</section>"
    )


def _details(summary: str, content: str) -> str:
    return f'<details class="long"><summary>{summary}</summary>{content}</details>'
